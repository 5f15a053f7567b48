// Hugging Face folders of one model: config.json, model.safetensors or shards with their index, and
// the texts beside them (tokenizer, chat template, generation settings). Import checks every key
// and every tensor, and refuses by name what would change the mathematics; export writes the folder
// aside and renames it. Weights stay in their mapped files until they are asked for.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "agreed/flat_buffer.h"
#include "agreed/tile_grid.h"
#include "base/json.h"
#include "base/result.h"
#include "data/tokenizer.h"
#include "model/config.h"
#include "tensor/safetensors.h"

namespace loom::train {

class HfWeights;

/// What a folder says beside sizes and weights, kept word for word.
struct HfTexts {
  /// tokenizer.json, tokenizer_config.json, special_tokens_map.json, chat_template.jinja,
  /// generation_config.json: those that are there.
  std::map<std::string, std::string, std::less<>> files;
  /// bos_token_id, eos_token_id and pad_token_id of config.json, where it has them.
  json::Object token_ids;
};

/// A folder that was opened and checked, all but the values of its weights.
class HfFolder {
 public:
  static Result<HfFolder> Open(const std::string& folder);
  HfFolder(HfFolder&&) noexcept;
  ~HfFolder();

  model::ModelConfig config;
  agreed::TileGrid grid;                    ///< of model::ParameterShapes(config)
  std::vector<tensor::TensorView> tensors;  ///< of the grid, in its order; F32, BF16 or F16
  HfTexts texts;

  /// Fills those tensors of a layout that the folder has, in fp32; with `grid`, all. Errors name
  /// the tensor with a value that is not finite.
  Status ReadWeights(const agreed::TileGrid& layout, std::span<float> weights) const;
  /// The same check without keeping anything.
  Status CheckValues() const;
  /// kNotFound without a tokenizer.json; other errors when Loom cannot use it.
  Result<std::unique_ptr<data::Tokenizer>> ReadTokenizer() const;

 private:
  HfFolder();
  std::string path_;
  std::unique_ptr<HfWeights> files_;
};

/// A model in memory.
struct HfModel {
  model::ModelConfig config;
  agreed::TileGrid grid;  ///< of model::ParameterShapes(config)
  agreed::FlatBuffer weights;
  std::unique_ptr<data::Tokenizer> tokenizer;  ///< null when there is none that Loom can use
  std::optional<Error> no_tokenizer;           ///< then: why
  HfTexts texts;
};
/// Reads a folder whole; F32, BF16 and F16 tensors become fp32.
Result<HfModel> ImportHfFolder(const std::string& folder);

/// What an export writes. Everything is only looked at.
struct HfExport {
  const model::ModelConfig& config;
  std::span<const tensor::TensorView> tensors;  ///< F32, BF16 or F16
  const HfTexts& texts;
  std::optional<tensor::DType> dtype = {};    ///< of what is written; none: each as it is
  std::uint64_t shard_bytes = 5'000'000'000;  ///< more than that goes into several files
};
/// Writes a folder. An existing one is replaced only when it is empty or itself a model folder;
/// otherwise kConflict. Texts that are missing are written with what follows from the model.
Status ExportHfFolder(const std::string& folder, const HfExport& content);
/// The same of fp32 weights (one flat buffer in the layout of grid) with nothing but a tokenizer.
Status ExportHfFolder(const std::string& folder, const model::ModelConfig& config,
                      const agreed::TileGrid& grid, std::span<const float> weights,
                      const data::Tokenizer& tokenizer);
/// The most bytes that a file of an exported folder with one weights file can have; none: it has no
/// file of that name.
std::optional<std::uint64_t> MostBytesOfExported(std::string_view name,
                                                 const model::ModelConfig& config);
/// The format of most numbers. tensors must not be empty.
tensor::DType MostCommonType(std::span<const tensor::TensorView> tensors);
/// Views of the tensors of a flat buffer, in the order of the grid.
std::vector<tensor::TensorView> WeightViews(const agreed::TileGrid& grid,
                                            std::span<const float> weights);

/// The config.json of a model, and back. The texts are Hugging Face's.
std::string HfConfigJson(const model::ModelConfig& config,
                         tensor::DType dtype = tensor::DType::kF32,
                         const json::Object& token_ids = {});
Result<model::ModelConfig> ParseHfConfig(std::string_view config_json);
/// The ids of special tokens in a config.json; an error names the key.
Result<json::Object> ParseTokenIds(std::string_view config_json);

}  // namespace loom::train
