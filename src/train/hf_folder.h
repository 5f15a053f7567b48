// Hugging Face folders of a LlamaForCausalLM: config.json, model.safetensors, tokenizer.json,
// tokenizer_config.json, generation_config.json. Export writes the folder aside and renames it;
// import checks every key and every tensor, and refuses by name what would change the mathematics.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "agreed/flat_buffer.h"
#include "agreed/tile_grid.h"
#include "base/result.h"
#include "data/tokenizer.h"
#include "model/config.h"

namespace loom::train {

struct HfModel {
  model::ModelConfig config;
  agreed::TileGrid grid;  ///< of model::ParameterShapes(config)
  agreed::FlatBuffer weights;
  std::unique_ptr<data::Tokenizer> tokenizer;  ///< null when the folder has no tokenizer.json
};

/// Writes fp32 weights (one flat buffer in the layout of grid). An existing folder is replaced only
/// when it is empty or itself a model folder; otherwise kConflict.
Status ExportHfFolder(const std::string& folder, const model::ModelConfig& config,
                      const agreed::TileGrid& grid, std::span<const float> weights,
                      const data::Tokenizer& tokenizer);

/// Reads a folder with model.safetensors or model.safetensors.index.json; F32, BF16 and F16 tensors
/// become fp32.
Result<HfModel> ImportHfFolder(const std::string& folder);

/// The config.json of a model, and back. The texts are Hugging Face's.
std::string HfConfigJson(const model::ModelConfig& config);
Result<model::ModelConfig> ParseHfConfig(std::string_view config_json);

}  // namespace loom::train
