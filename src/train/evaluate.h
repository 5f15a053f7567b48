// The one definition of loss in Loom's reports: the sum of negative log-likelihoods over all
// targets of a split, in non-overlapping windows of the context length, N-1 targets for N tokens,
// in nats.
#pragma once

#include "base/result.h"
#include "data/shards.h"
#include "model/model.h"

namespace loom::train {

/// Loss of the whole stream. Error: fewer than two tokens, or an id outside the vocabulary.
Result<model::LossSum> EvaluateLoss(model::Model& model, const data::TokenStream& stream);

}  // namespace loom::train
