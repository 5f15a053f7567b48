// The seam between the protocol and the learning: one logical worker's inner optimisation on plain
// spans. `train` implements it with libtorch, `sim` with a small model of its own.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "base/id.h"
#include "base/result.h"
#include "base/stream.h"

namespace loom::collab {

/// Consecutive sample numbers, both ends included.
struct Range {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  std::uint64_t size() const { return last - first + 1; }
  auto operator<=>(const Range&) const = default;
};

/// What one worker has to do in a round. Everything in it follows from the parent record.
struct WorkOrder {
  Round round = 0;
  WorkerIndex worker = 0;
  std::vector<Range> ranges;          ///< samples to use, in this order
  std::uint32_t batch = 0;            ///< samples of an inner step; the last step may have fewer
  std::uint64_t tokens_before = 0;    ///< tokens the whole run had used before this round
  std::uint64_t tokens_per_step = 0;  ///< tokens all workers together use in one inner step
};

struct WorkDone {
  std::uint64_t samples = 0;  ///< the prefix of the order's samples that was used
  std::uint64_t tokens = 0;   ///< targets in them, whether or not a loss is taken on each
  std::uint32_t steps = 0;
  std::uint64_t targets = 0;  ///< those of them that a loss is taken on
  double loss_sum = 0;        ///< their negative log-likelihoods, in nats
  float grad_norm = 0;        ///< of the last step, before clipping
  float learning_rate = 0;    ///< of the last step
};

/// Owner: the compute thread. One object a logical worker; its inner optimizer state lives in it.
class Worker {
 public:
  virtual ~Worker() = default;

  /// Trains from `start` (the agreed weights) and leaves the trained weights in `theta`. Stops
  /// after the current inner step once `cut` is true. Errors: non-finite loss or gradient
  /// (kInvalid).
  virtual Result<WorkDone> Work(const WorkOrder& order, std::span<const float> start,
                                std::span<float> theta, const std::atomic<bool>& cut) = 0;

  /// Gradient of loss_scale x the summed losses of the order's samples at `weights`, which it does
  /// not change, into `gradient`; the same bits wherever and whenever it is computed. No inner
  /// state takes part. What is not finite comes back as it is.
  virtual Result<WorkDone> Gradient(const WorkOrder& order, std::span<float> weights,
                                    std::span<float> gradient, float loss_scale) = 0;

  /// Zero inner state (rule R22).
  virtual void Reset() = 0;

  /// Inner optimizer state as bytes for a checkpoint.
  virtual Status SaveState(ByteSink& out) const = 0;
  /// Takes all that is left of `in`, and checks size and finiteness. After an error the inner state
  /// is what it was, or zero.
  virtual Status RestoreState(ByteSource& in) = 0;
};

}  // namespace loom::collab
