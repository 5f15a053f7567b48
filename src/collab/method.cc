#include "collab/method.h"

#include "agreed/combine.h"
#include "collab/ledger.h"

namespace loom::collab {
namespace {

/// arXiv 2311.08105: H inner steps, Δ = θ - θ_m, old minus new.
class DiLoCo final : public SyncMethod {
 public:
  DiLoCo(const SyncConfig& config, agreed::Isa isa)
      : step_(MakeStepRule(config)),
        reset_(config.inner_state == InnerStateRule::kReset),
        isa_(isa) {}
  const agreed::StepRule& step() const override { return *step_; }
  bool has_inner_state() const override { return true; }
  Result<WorkDone> Contribute(Worker& worker, const WorkOrder& order, std::span<float> weights,
                              std::span<float> out, const std::atomic<bool>& cut) const override {
    if (reset_) worker.Reset();
    LOOM_ASSIGN(const WorkDone done, worker.Work(order, weights, out, cut));
    agreed::Subtract(weights, out, out, isa_);
    return done;
  }

 private:
  std::unique_ptr<agreed::StepRule> step_;
  bool reset_;
  agreed::Isa isa_;
};

/// The gradient of the mean loss over the worker's batch; the reduce weighs by tokens.
class AllReduce final : public SyncMethod {
 public:
  explicit AllReduce(const SyncConfig& config)
      : step_(MakeStepRule(config)), context_(config.context) {}
  const agreed::StepRule& step() const override { return *step_; }
  bool has_inner_state() const override { return false; }
  Result<WorkDone> Contribute(Worker& worker, const WorkOrder& order, std::span<float> weights,
                              std::span<float> out, const std::atomic<bool>&) const override {
    const auto targets = static_cast<float>(CountSamples(order.ranges) * context_);
    return worker.Gradient(order, weights, out, 1.0F / targets);
  }

 private:
  std::unique_ptr<agreed::StepRule> step_;
  std::uint64_t context_;
};

}  // namespace

std::string_view MethodName(Method method) {
  return method == Method::kDiloco ? "diloco" : "allreduce";
}

std::unique_ptr<SyncMethod> MakeSyncMethod(const SyncConfig& config, agreed::Isa isa) {
  if (config.method == Method::kAllReduce) return std::make_unique<AllReduce>(config);
  return std::make_unique<DiLoCo>(config, isa);
}

std::unique_ptr<agreed::StepRule> MakeStepRule(const SyncConfig& config) {
  if (config.method == Method::kAllReduce) return agreed::MakeOptimizerRule(config.optimizer);
  return agreed::MakeOuterRule({config.outer, config.outer_lr, config.outer_momentum});
}

}  // namespace loom::collab
