// The inner optimizer of one worker: an agreed step (AdamW, SGD or Muon, agreed/inner.h) over the
// whole flat buffer, after a finite check and clipping by the global norm. Gradient accumulation is
// the caller's: add micro-batches into one gradient span (Model::ForwardBackward does), then Step
// once and ZeroGradients.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "agreed/inner.h"
#include "agreed/tile_grid.h"
#include "base/result.h"

namespace loom::optim {

using InnerConfig = agreed::InnerConfig;

struct StepReport {
  double grad_norm = 0;    ///< before clipping
  float grad_scale = 1;    ///< what the gradient was multiplied with
  std::uint64_t step = 0;  ///< number of this step, from 1
};

/// Thread: one compute thread. Owns the optimizer's state and scratch memory, nothing else.
class InnerOptimizer {
 public:
  /// Errors name the setting that is out of range.
  static Result<InnerOptimizer> Make(const agreed::TileGrid& grid, const InnerConfig& config);
  InnerOptimizer(InnerOptimizer&&) noexcept;
  InnerOptimizer& operator=(InnerOptimizer&&) noexcept;
  ~InnerOptimizer();

  /// One step; weight decay on tensors of two or more dimensions only.
  /// A gradient or learning rate that is not finite is an error that names the first bad tensor;
  /// weights and state are then untouched.
  Result<StepReport> Step(std::span<float> weights, std::span<const float> grads, float lr);

  /// Forgets state and step count.
  void Reset();
  std::uint64_t step() const;
  const InnerConfig& config() const;
  /// Momentum or first moments, then AdamW's second moments: the planes of agreed::InnerPlan.
  std::span<const float> state() const;
  /// Continues from what state() and step() of such an optimizer gave: `fill` writes the state in
  /// place. An error of it, or kCorrupt for a value that is not finite or a negative second moment;
  /// the optimizer is then as after Reset.
  Status Restore(std::uint64_t step, const std::function<Status(std::span<float>)>& fill);

 private:
  struct State;
  explicit InnerOptimizer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// Bytes that an optimizer holds: state and scratch. Requires: config is valid.
std::uint64_t InnerBytes(const agreed::TileGrid& grid, const InnerConfig& config);

void ZeroGradients(std::span<float> grads);

}  // namespace loom::optim
