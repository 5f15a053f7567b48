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
  explicit OptimizerRule(const OptimizerConfig& config) : config_(config) {}
  std::size_t num_slots() const override { return 2; }
  bool needs_norm() const override { return config_.clip_norm > 0; }
  StepScalars Scalars(const StepClock& clock, double norm) const override {
    return {LearningRate(config_.schedule, clock.tokens), clock.step,
            ClipScale(norm, config_.clip_norm)};
  }
  void Step(std::span<const std::span<float>> state, std::span<const float> mean,
            const StepScalars& scalars, bool matrix, Isa isa) const override {
    LOOM_CHECK(state.size() == 3, "AdamW on {} buffers", state.size());
    AdamWStep(state[0], mean, state[1], state[2], config_.adamw, scalars.lr, scalars.step,
              scalars.scale, matrix, isa);
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
