// What a sync method adds to the round machine: what a worker contributes, and the step that the
// agreed mean takes (methods 2.1, 2.3). Exact mode sums the contributions of `allreduce` in another
// way (exact.h) and takes the same step.
#pragma once

#include <atomic>
#include <memory>
#include <span>

#include "agreed/step.h"
#include "collab/sync_config.h"
#include "collab/worker.h"

namespace loom::collab {

std::string_view MethodName(Method method);  ///< "diloco", "allreduce"

/// Immutable, thread-safe.
class SyncMethod {
 public:
  virtual ~SyncMethod() = default;
  virtual const agreed::StepRule& step() const = 0;
  /// Whether workers have state of their own that lasts from round to round.
  virtual bool has_inner_state() const = 0;
  /// Does the order from the agreed weights (unchanged afterwards) and leaves in `out` what
  /// travels: the pseudo-gradient, or the gradient of the mean loss. All spans are flat buffers.
  virtual Result<WorkDone> Contribute(Worker& worker, const WorkOrder& order,
                                      std::span<float> weights, std::span<float> out,
                                      const std::atomic<bool>& cut) const = 0;
};

std::unique_ptr<SyncMethod> MakeSyncMethod(const SyncConfig& config,
                                           agreed::Isa isa = agreed::BestIsa());
/// The step rule alone.
std::unique_ptr<agreed::StepRule> MakeStepRule(const SyncConfig& config);

}  // namespace loom::collab
