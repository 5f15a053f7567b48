// The tensors of a Hugging Face folder, mapped: one model.safetensors, or several files with an
// index. Names, shapes and types are checked against the model of config.json. Internal to train.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "agreed/tile_grid.h"
#include "base/result.h"
#include "model/config.h"
#include "tensor/safetensors.h"

namespace loom::train {

/// "'a', 'b' and 7 more"
std::string FirstFew(const std::vector<std::string>& names);
/// Fills those tensors of the layout that there are, by name, in fp32. Requires: equal shapes. The
/// error names the tensor with a value that is not finite.
Status ReadTensors(const agreed::TileGrid& layout, std::span<const tensor::TensorView> tensors,
                   std::span<float> weights);

/// The files; views of their tensors die with it.
class HfWeights {
 public:
  static Result<HfWeights> Open(const std::string& folder);

  /// The tensors of the grid, in its order. Errors name what is missing, left over, or of another
  /// shape or type.
  Result<std::vector<tensor::TensorView>> Match(const agreed::TileGrid& grid,
                                                const model::ModelConfig& config) const;

 private:
  Status Add(const std::string& path);
  Status OpenIndexed(const std::string& folder);

  std::vector<std::unique_ptr<tensor::SafetensorsFile>> files_;
  std::map<std::string, const tensor::TensorView*, std::less<>> tensors_;
};

}  // namespace loom::train
