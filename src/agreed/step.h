// The step rule of a run: what the mean that a round agreed on does to the agreed state (rule R28).
// Methods with local steps take an outer step on the mean pseudo-gradient, `allreduce` an optimizer
// step on the mean gradient. A state is the weights and the buffers ("slots") that the rule keeps
// beside them: outer momentum, or the optimizer's moments.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "agreed/inner.h"
#include "agreed/outer.h"
#include "agreed/schedule.h"

namespace loom::agreed {

/// Where a run is when it takes a step: a pure function of its records.
struct StepClock {
  std::uint64_t step = 1;    ///< number of this step, from 1
  std::uint64_t tokens = 0;  ///< that the run has used, those of this step included
};

/// The scalars of one step, equal for every tile.
struct StepScalars {
  float lr = 0;
  std::uint64_t step = 1;
  float scale = 1;  ///< what the mean is multiplied with (clipping)
};

/// Immutable, thread-safe.
class StepRule {
 public:
  virtual ~StepRule() = default;
  virtual std::size_t num_slots() const = 0;
  /// Whether Scalars looks at the norm; else any number will do.
  virtual bool needs_norm() const = 0;
  /// `norm`: of the whole mean, by SumSquares over the tiles in order.
  virtual StepScalars Scalars(const StepClock& clock, double norm) const = 0;
  /// Takes the step on one tile, in place: state[0] are weights, then the slots. All spans have one
  /// length. `matrix`: the tile's tensor has two dimensions or more. Finite input may overflow; the
  /// caller checks.
  virtual void Step(std::span<const std::span<float>> state, std::span<const float> mean,
                    const StepScalars& scalars, bool matrix, Isa isa = BestIsa()) const = 0;
};

/// One slot: outer momentum, also when it stays zero (sgd).
std::unique_ptr<StepRule> MakeOuterRule(const OuterConfig& config);

/// An optimizer on the mean gradient, tile by tile: AdamW with its two moments as slots, or SGD
/// with its momentum. Not Muon, whose steps are of whole matrices. Weight decay on matrices only.
struct OptimizerConfig {
  InnerConfig inner;
  ScheduleConfig schedule;
};
/// Requires: inner.kind is not kMuon.
std::unique_ptr<StepRule> MakeOptimizerRule(const OptimizerConfig& config);

/// The factor that brings a gradient of this norm to clip_norm at most: clip_norm / norm in double,
/// rounded once; 1 when nothing is to be clipped.
float ClipScale(double norm, float clip_norm);

}  // namespace loom::agreed
