// A model small enough to train thousands of times: every sample is a noisy view of one hidden
// point, its loss the squared distance to it. The gradient of a sample is a pure function of its
// number, so that "which samples were used" decides the bits. SGD with momentum.
#pragma once

#include "agreed/tile_grid.h"
#include "collab/worker.h"

namespace loom::sim {

struct PlainModel {
  float learning_rate = 0.1F;
  float momentum = 0.5F;
  std::uint32_t tokens_per_sample = 16;
  std::uint64_t burst = 0;   ///< a sample whose gradient is 2^40 times as large; 0: none
  std::uint64_t spoilt = 0;  ///< a sample whose gradient is not finite; 0: none
};

class PlainWorker final : public collab::Worker {
 public:
  /// `step_limit` is read at each Work: no more inner steps than that. It outlives the worker.
  PlainWorker(const agreed::TileGrid& grid, const PlainModel& model,
              const std::uint32_t* step_limit);

  Result<collab::WorkDone> Work(const collab::WorkOrder& order, std::span<const float> start,
                                std::span<float> theta, const std::atomic<bool>& cut) override;
  Result<collab::WorkDone> Gradient(const collab::WorkOrder& order, std::span<float> weights,
                                    std::span<float> gradient, float loss_scale) override;
  void Reset() override;
  Status SaveState(ByteSink& out) const override;
  Status RestoreState(ByteSource& in) override;

  /// Its loss and gradient turn into NaN.
  void Poison() { poisoned_ = true; }

 private:
  /// Adds the gradients of the samples times scale to `gradient`; the loss.
  double AddGradient(std::span<const std::uint64_t> samples, std::span<const float> theta,
                     std::span<float> gradient, float scale) const;

  const agreed::TileGrid* grid_;
  PlainModel model_;
  const std::uint32_t* step_limit_;
  std::vector<float> velocity_;
  std::vector<float> gradient_;
  bool poisoned_ = false;
};

/// A deterministic number in [-1, 1).
float NoiseAt(std::uint64_t a, std::uint64_t b);

}  // namespace loom::sim
