// The inner optimizer of one worker: agreed AdamW over the whole flat buffer, after a finite check
// and clipping by the global norm. Gradient accumulation is the caller's: add micro-batches into
// one gradient span (Model::ForwardBackward does), then Step once and ZeroGradients.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "agreed/adamw.h"
#include "agreed/tile_grid.h"
#include "base/result.h"

namespace loom::optim {

struct InnerConfig {
  agreed::AdamWConfig adamw;
  float clip_norm = 1.0f;  ///< largest global gradient norm; 0 switches clipping off
};

struct StepReport {
  double grad_norm = 0;    ///< before clipping
  float grad_scale = 1;    ///< what the gradient was multiplied with
  std::uint64_t step = 0;  ///< number of this step, from 1
};

/// Thread: one compute thread. Owns the moments (two flat buffers), nothing else.
class InnerOptimizer {
 public:
  /// Errors name the setting that is out of range.
  static Result<InnerOptimizer> Make(const agreed::TileGrid& grid, const InnerConfig& config);
  InnerOptimizer(InnerOptimizer&&) noexcept;
  InnerOptimizer& operator=(InnerOptimizer&&) noexcept;
  ~InnerOptimizer();

  /// One AdamW step; weight decay on tensors of two or more dimensions only.
  /// A gradient or learning rate that is not finite is an error that names the first bad tensor;
  /// weights and moments are then untouched.
  Result<StepReport> Step(std::span<float> weights, std::span<const float> grads, float lr);

  /// Forgets moments and step count.
  void Reset();
  std::uint64_t step() const;
  std::span<const float> first_moment() const;
  std::span<const float> second_moment() const;
  /// Continues from saved moments; sizes must be the grid's flat size.
  Status Restore(std::uint64_t step, std::span<const float> first, std::span<const float> second);

 private:
  struct State;
  explicit InnerOptimizer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

void ZeroGradients(std::span<float> grads);

}  // namespace loom::optim
