// LoRA adapters as PEFT keeps them: a folder with adapter_config.json and
// adapter_model.safetensors. Reading refuses by name whatever would compute something else; merging
// adds an adapter into the weights of its network (Hu et al. 2021, section 4.1).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agreed/flat_buffer.h"
#include "agreed/tile_grid.h"
#include "base/result.h"
#include "model/config.h"
#include "tensor/safetensors.h"

namespace loom::train {

inline constexpr std::string_view kAdapterConfig = "adapter_config.json";
inline constexpr std::string_view kAdapterWeights = "adapter_model.safetensors";

/// Whether the folder holds an adapter_config.json.
bool IsAdapterFolder(const std::string& folder);

/// An adapter folder that was opened: what its configuration says; the weights stay in their mapped
/// file until they are asked for.
class AdapterFolder {
 public:
  static Result<AdapterFolder> Open(const std::string& folder);

  model::Tuning tuning;  ///< rank, alpha and modules
  std::string base;      ///< base_model_name_or_path, as it stands there
  const std::vector<tensor::TensorView>& tensors() const { return file_.content().tensors; }

  /// The network (its own tuning is not looked at) with this adapter's tuning. kInvalid unless the
  /// adapter belongs to it; errors list the tensors that are missing and those that have no place.
  Result<model::ModelConfig> For(const model::ModelConfig& network) const;
  /// Fills a flat buffer of `grid`, whose tensors are the ParameterShapes of For(network), in fp32.
  /// Errors name the tensor with a value that is not finite.
  Status ReadWeights(const agreed::TileGrid& grid, std::span<float> weights) const;

 private:
  AdapterFolder(std::string path, tensor::SafetensorsFile file)
      : path_(std::move(path)), file_(std::move(file)) {}
  std::string path_;
  tensor::SafetensorsFile file_;
  std::optional<bool> fan_in_fan_out_;
};

/// An adapter in memory.
struct Adapter {
  model::ModelConfig config;  ///< the network's, with tuning as the adapter has it
  agreed::TileGrid grid;      ///< of model::ParameterShapes(config)
  agreed::FlatBuffer weights;
  std::string base;  ///< base_model_name_or_path, as it stands there
};
/// Reads an adapter for this network whole.
Result<Adapter> ReadAdapter(const std::string& folder, const model::ModelConfig& network);

/// What is written. `weights` is the flat buffer of `grid`, the grid of ParameterShapes(config).
struct AdapterExport {
  const model::ModelConfig& config;
  const agreed::TileGrid& grid;
  std::span<const float> weights;
  std::string base;  ///< for base_model_name_or_path: where its users find the network
  tensor::DType dtype = tensor::DType::kF32;
};
/// Writes a folder that PEFT loads. An existing one is replaced file by file only when it holds
/// nothing but an adapter; otherwise kConflict.
Status ExportAdapter(const std::string& folder, const AdapterExport& content);
/// The most bytes that a file of an exported adapter can have; none: it has no file of that name.
std::optional<std::uint64_t> MostBytesOfAdapter(std::string_view name,
                                                const model::ModelConfig& config);

/// Adds scale * B A of the additions into a network: `network` is the flat buffer of
/// MakeGrid(config without tuning). Each product is summed in double over the rank, in order, and
/// rounded once: the same bits everywhere.
Status MergeAdapter(const model::ModelConfig& config, const agreed::TileGrid& grid,
                    std::span<const float> weights, std::span<float> network);

}  // namespace loom::train
