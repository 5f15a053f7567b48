// The part of a network that a run does not train (model::Tuning): where it comes from, and how it
// and the trained parameters make the whole network again.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "agreed/flat_buffer.h"
#include "agreed/tile_grid.h"
#include "base/result.h"
#include "model/config.h"

namespace loom::train {

/// A flat buffer of the grid of model::FrozenShapes, shared by all that compute with it; null where
/// everything is trained.
using FrozenWeights = std::shared_ptr<const agreed::FlatBuffer>;
inline std::span<const float> SpanOf(const FrozenWeights& frozen) {
  return frozen == nullptr ? std::span<const float>() : frozen->span();
}

/// Those of a model folder, checked as ReadStartWeights does.
Result<FrozenWeights> ReadFrozen(const std::string& folder, const model::ModelConfig& config);
/// Drawn ones, for what only has to compute as much.
Result<FrozenWeights> DrawFrozen(const model::ModelConfig& config, std::uint64_t seed);

/// All parameters of the network, LoRA merged into them: a flat buffer of the grid of
/// model::NetworkShapes. `weights` is the flat buffer of `grid`, of model::ParameterShapes.
Result<agreed::FlatBuffer> WholeNetwork(const model::ModelConfig& config,
                                        const agreed::TileGrid& grid,
                                        std::span<const float> weights,
                                        const FrozenWeights& frozen);

}  // namespace loom::train
