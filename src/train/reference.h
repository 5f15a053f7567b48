// The yardstick of a swarm: synchronous training in one process, one optimizer step on the mean
// gradient of all logical workers' batches, with the same samples, tokens and schedule.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "train/trainer.h"

namespace loom::train {

struct ReferenceProgress {
  std::uint64_t round = 0;   ///< rounds done
  std::uint64_t steps = 0;   ///< optimizer steps done
  std::uint64_t tokens = 0;  ///< used so far
  double loss = 0;           ///< mean over the round's tokens, nats
  float learning_rate = 0;
  double grad_norm = 0;
};

/// Thread: compute thread.
class ReferenceTrainer {
 public:
  /// weights are trained in place; they hold the first weights.
  static Result<std::unique_ptr<ReferenceTrainer>> Make(std::shared_ptr<StepEngine> engine,
                                                        std::span<float> weights);

  /// inner_steps optimizer steps, each on the next batch of every one of `workers` workers. Worker
  /// m has its own run of inner_steps * batch samples, as a round of the swarm issues them. Stops
  /// after the current step once `cut` is true.
  Result<ReferenceProgress> Round(std::uint32_t workers, const std::atomic<bool>& cut);
  /// The same on given samples: those of each worker in its own order, as a record of a swarm names
  /// them. As many steps as the longest of them fills; a worker that has run out sits the rest out.
  Result<ReferenceProgress> RoundOn(std::span<const std::vector<std::uint64_t>> samples,
                                    const std::atomic<bool>& cut);
  const ReferenceProgress& progress() const { return progress_; }

 private:
  ReferenceTrainer(std::shared_ptr<StepEngine> engine, std::span<float> weights,
                   optim::InnerOptimizer optimizer);

  std::shared_ptr<StepEngine> engine_;
  std::span<float> weights_;
  optim::InnerOptimizer optimizer_;
  std::uint64_t next_sample_ = 0;
  ReferenceProgress progress_;
};

}  // namespace loom::train
