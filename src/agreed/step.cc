// The two kinds of step rules.
#include "agreed/step.h"

#include "base/check.h"

namespace loom::agreed {
namespace {

class OuterRule final : public StepRule {
 public:
  explicit OuterRule(const OuterConfig& config) : config_(config) {}
  std::size_t num_slots() const override { return 1; }
  bool needs_norm() const override { return false; }
  StepScalars Scalars(const StepClock& clock, double) const override {
    return {config_.lr, clock.step, 1.0F};
  }
  void Step(std::span<const std::span<float>> state, std::span<const float> mean,
            const StepScalars&, bool, Isa isa) const override {
    LOOM_CHECK(state.size() == 2, "an outer step on {} buffers", state.size());
    OuterStep(state[0], state[1], mean, config_, state[0], state[1], isa);
  }

 private:
  OuterConfig config_;
};

class OptimizerRule final : public StepRule {
 public:
  explicit OptimizerRule(const OptimizerConfig& config) : config_(config) {
    LOOM_CHECK(config.inner.kind != InnerKind::kMuon, "Muon does not step tile by tile");
  }
  std::size_t num_slots() const override {
    if (config_.inner.kind == InnerKind::kAdamW) return 2;
    return config_.inner.momentum > 0 ? 1 : 0;
  }
  bool needs_norm() const override { return config_.inner.clip_norm > 0; }
  StepScalars Scalars(const StepClock& clock, double norm) const override {
    return {LearningRate(config_.schedule, clock.tokens), clock.step,
            ClipScale(norm, config_.inner.clip_norm)};
  }
  void Step(std::span<const std::span<float>> state, std::span<const float> mean,
            const StepScalars& scalars, bool matrix, Isa isa) const override {
    const InnerConfig& inner = config_.inner;
    LOOM_CHECK(state.size() == 1 + num_slots(), "{} on {} buffers", InnerKindName(inner.kind),
               state.size());
    if (inner.kind == InnerKind::kAdamW) {
      AdamWStep(state[0], mean, state[1], state[2], inner.adamw, scalars.lr, scalars.step,
                scalars.scale, matrix, isa);
      return;
    }
    const SgdConfig sgd{inner.momentum, inner.nesterov, matrix ? inner.adamw.weight_decay : 0.0F};
    SgdStep(state[0], mean, state.size() > 1 ? state[1] : std::span<float>{}, sgd, scalars.lr,
            scalars.scale, isa);
  }

 private:
  OptimizerConfig config_;
};

}  // namespace

std::unique_ptr<StepRule> MakeOuterRule(const OuterConfig& config) {
  return std::make_unique<OuterRule>(config);
}

std::unique_ptr<StepRule> MakeOptimizerRule(const OptimizerConfig& config) {
  return std::make_unique<OptimizerRule>(config);
}

float ClipScale(double norm, float clip_norm) {
  if (!(clip_norm > 0) || norm <= double{clip_norm}) return 1.0F;
  return static_cast<float>(double{clip_norm} / norm);
}

}  // namespace loom::agreed
