// The first weights of a run: drawn by the settings' seed, or those of a published model, or of a
// LoRA adapter of one. Of such a model the peer keeps a folder of its own, D/start: config.json,
// model.safetensors in the format it had, and the texts beside them; of an adapter D/adapter, in
// fp32. The genesis record pins every file of them by content; joiners fetch them as they fetch the
// data (run_data.h). The tokenizer is the run's, in D/data.
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

inline constexpr std::string_view kStartFolder = "start";      ///< in the peer's folder
inline constexpr std::string_view kAdapterFolder = "adapter";  ///< in the peer's folder

/// Where a file that the genesis record names lies in the peer's folder: "start/config.json".
std::string StartFilePath(std::string_view name);
/// Whether the run trains an adapter further.
bool StartsFromAdapter(const collab::Genesis& genesis);

/// Copies the model that the run starts from into `dir`: every value checked, tensors in the order
/// of the grid.
Status KeepModel(const train::RunFile& file, const std::string& dir);
/// The same of the adapter that it starts from.
Status KeepAdapter(const train::RunFile& file, const std::string& dir);
/// Both, as far as the run has them, and what the genesis record says about their files.
Result<std::vector<collab::NamedObject>> KeepStart(const train::RunFile& file,
                                                   const std::string& dir);
/// A genesis record's word about them: kInvalid for a name that neither folder has, kLimit for a
/// size that no such model or adapter can have.
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
