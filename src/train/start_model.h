// [model] from and [tune] from: a run that starts from a published model, and maybe from an adapter
// of it. Here is what run.toml takes out of their folders (sizes, tokenizer, tuning, first
// weights), and what beside them is refused. How a run pins and keeps their files is in
// node/run_start.h.
#pragma once

#include <span>
#include <string>

#include "agreed/tile_grid.h"
#include "base/result.h"
#include "data/tokenizer.h"
#include "model/config.h"
#include "train/spec.h"

namespace loom::train {

/// Reads config.json of a model folder. kNotFound when there is none.
Result<StartModel> OpenStartModel(const std::string& folder);
/// The tuning of an adapter for this network, names and shapes of its tensors checked. kNotFound
/// when there is none.
Result<model::Tuning> OpenStartAdapter(const std::string& folder,
                                       const model::ModelConfig& network);

/// Gives the run the vocabulary of its tokenizer. One that starts from a model keeps the model's,
/// which may have rows to spare; kInvalid where the tokenizer has other ids than the model's own.
Status FitTokenizer(RunFile& run, const data::Tokenizer& tokenizer);

/// Fills those tensors of a flat buffer of `grid` that the folder's model has; others stay as they
/// are. kInvalid, with what differs, unless the folder's model is `config`, whatever context and
/// tuning.
Status ReadStartWeights(const std::string& folder, const model::ModelConfig& config,
                        const agreed::TileGrid& grid, std::span<float> weights);

/// The folders that a run starts from; "": none.
struct StartFolders {
  std::string model;
  std::string adapter;
};
/// Fills a zeroed flat buffer of the trained parameters' grid with a run's first weights: drawn by
/// the seed, those of the model that it starts from, or LoRA's, which are the adapter's or drawn.
/// kInvalid when the adapter is another one than the run trains.
Status FirstWeights(const RunSpec& spec, const StartFolders& from, const agreed::TileGrid& grid,
                    std::span<float> weights);

}  // namespace loom::train
