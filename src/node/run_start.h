// The first weights of a run: drawn by the settings' seed, or those of a published model. Of such a
// model the peer keeps a folder of its own, D/start: config.json, model.safetensors in the format
// it had, and the texts beside them. The genesis record pins every file of it by content; joiners
// fetch them as they fetch the data (run_data.h). The tokenizer is the run's, in D/data.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "agreed/tile_grid.h"
#include "collab/record.h"
#include "node/run_data.h"
#include "train/frozen.h"
#include "train/hf_folder.h"
#include "train/spec.h"

namespace loom::node {

inline constexpr std::string_view kStartFolder = "start";  ///< in the peer's folder

/// Copies the model that the run starts from into `dir`: every value checked, tensors in the order
/// of the grid. What the genesis record says about it.
Result<std::vector<collab::NamedObject>> KeepStart(const train::RunFile& file,
                                                   const std::string& dir);
/// A genesis record's word about it: kInvalid for a name that no model folder has, kLimit for a
/// size that no such model can have.
Status CheckStart(const std::vector<collab::NamedObject>& start, const model::ModelConfig& config);

/// Fills a zeroed flat buffer of the trained parameters' grid with the first weights, in fp32.
/// kCorrupt names a kept file that is not the one of the genesis record.
Status ReadFirstWeights(const Run& run, const std::string& dir, const agreed::TileGrid& grid,
                        std::span<float> weights);
/// What the run does not train, of the kept model; null when it trains everything.
Result<train::FrozenWeights> ReadFrozenWeights(const Run& run, const std::string& dir);
/// The root of a first state: these weights, and zeros beside them.
Hash FirstRoot(const train::RunSpec& spec, const agreed::TileGrid& grid,
               std::span<const float> weights);

/// What exports of the run carry along: chat template, special tokens, generation settings. Empty
/// where the run starts from drawn weights.
Result<train::HfTexts> ReadStartTexts(const Run& run, const std::string& dir);

}  // namespace loom::node
