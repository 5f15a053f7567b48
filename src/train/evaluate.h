// The one definition of loss in Loom's reports: the sum of negative log-likelihoods over all
// targets of a split, in non-overlapping windows of the context length, N-1 targets for N tokens,
// in nats. Targets that the data takes no loss on are left out.
#pragma once

#include <atomic>
#include <functional>
#include <span>

#include "base/result.h"
#include "data/shards.h"
#include "data/tokenizer.h"
#include "model/model.h"
#include "train/frozen.h"
#include "train/spec.h"

namespace loom::train {

/// Loss of the whole stream. Error: fewer than two tokens, none with a loss, an id outside the
/// vocabulary, or kRefused: `cut` became true. `progress` is told how many tokens are done.
using EvaluateProgress = std::function<void(std::uint64_t done, std::uint64_t total)>;
Result<model::LossSum> EvaluateLoss(model::Model& model, const data::TokenStream& stream,
                                    const std::atomic<bool>& cut = std::atomic<bool>(false),
                                    const EvaluateProgress& progress = {});
/// The same with these weights (flat_size elements of `grid`) and frozen ones, on local.device.
Result<model::LossSum> EvaluateLoss(const RunSpec& spec, const LocalConfig& local,
                                    const agreed::TileGrid& grid, std::span<float> weights,
                                    const FrozenWeights& frozen, const data::TokenStream& stream,
                                    const std::atomic<bool>& cut = std::atomic<bool>(false),
                                    const EvaluateProgress& progress = {});

/// Bytes that the targets of EvaluateLoss stand for, for a loss in bits a byte.
std::uint64_t TargetBytes(const data::Tokenizer& tokenizer, const data::TokenStream& stream);

}  // namespace loom::train
