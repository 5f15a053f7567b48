// [model] from: a run that starts from a published model. Here is what run.toml takes out of its
// folder (sizes, tokenizer, first weights), and what beside it is refused. How a run pins and keeps
// the model's files is in node/run_start.h.
#pragma once

#include <span>
#include <string>

#include "base/result.h"
#include "data/tokenizer.h"
#include "model/config.h"
#include "train/spec.h"

namespace loom::train {

/// Reads config.json of a model folder. kNotFound when there is none.
Result<StartModel> OpenStartModel(const std::string& folder, const LocalConfig& local = {});

/// Gives the run the vocabulary of its tokenizer. One that starts from a model keeps the model's,
/// which may have rows to spare; kInvalid where the tokenizer has other ids than the model's own.
Status FitTokenizer(RunFile& run, const data::Tokenizer& tokenizer);

/// Fills a flat buffer of the model's grid from a folder. kInvalid, with what differs, unless the
/// folder's model is `config`, whatever the context.
Status ReadStartWeights(const std::string& folder, const model::ModelConfig& config,
                        std::span<float> weights);

}  // namespace loom::train
