// How many multiple-choice questions a model answers by likelihood, as lm-evaluation-harness counts
// it: `acc` takes the choice whose tokens together are likeliest behind the query, `acc_norm` the
// one that is likeliest for each of its characters.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "data/choices.h"
#include "model/model.h"

namespace loom::train {

struct ChoiceScore {
  std::uint64_t questions = 0;
  std::uint64_t right = 0;             ///< by the whole likelihood
  std::uint64_t right_normalized = 0;  ///< by the likelihood for each character
};

/// Log-likelihoods in nats, one a choice. Of a text longer than the context its end counts, with
/// as many tokens before the choice as there is room for. Error: a choice longer than the context.
Result<std::vector<double>> ChoiceLikelihoods(model::Model& model, const data::Tokenizer& tokenizer,
                                              const data::Question& question);

/// Of equal choices the first is taken.
void Count(const data::Question& question, const std::vector<double>& likelihoods,
           ChoiceScore& score);

}  // namespace loom::train
