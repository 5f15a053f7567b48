// Check, clip, step; see inner_optimizer.h.
#include "optim/inner_optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "agreed/combine.h"
#include "agreed/flat_buffer.h"
#include "agreed/step.h"
#include "base/check.h"

namespace loom::optim {
namespace {

/// Names the first tensor with a value that is not finite.
Error NotFinite(const agreed::TileGrid& grid, std::span<const float> grads, std::uint64_t step) {
  for (std::size_t t = 0; t < grid.tensors().size(); ++t) {
    const agreed::TensorShape& tensor = grid.tensors()[t];
    if (!agreed::AllFinite(grads.subspan(grid.TensorOffset(t), tensor.Numel()))) {
      return MakeError(
          Code::kInvalid,
          fmt::format("step {}: the gradient of {} is not finite; the step was not taken", step,
                      tensor.name),
          "lower the learning rate, or warm up for longer");
    }
  }
  return MakeError(
      Code::kInvalid,
      fmt::format("step {}: the gradient norm is not finite; the step was not taken", step),
      "lower the learning rate, or warm up for longer");
}

}  // namespace

struct InnerOptimizer::State {
  agreed::TileGrid grid;
  InnerConfig config;
  agreed::InnerPlan plan;
  agreed::FlatBuffer state, scratch;
  std::uint64_t step = 0;
};

InnerOptimizer::InnerOptimizer(std::unique_ptr<State> state) : state_(std::move(state)) {}
InnerOptimizer::InnerOptimizer(InnerOptimizer&&) noexcept = default;
InnerOptimizer& InnerOptimizer::operator=(InnerOptimizer&&) noexcept = default;
InnerOptimizer::~InnerOptimizer() = default;

Result<InnerOptimizer> InnerOptimizer::Make(const agreed::TileGrid& grid,
                                            const InnerConfig& config) {
  LOOM_RETURN_IF_ERROR(agreed::Validate(config));
  auto state = std::make_unique<State>();
  state->grid = grid;
  state->config = config;
  state->plan = agreed::PlanInner(grid, config);
  LOOM_ASSIGN(state->state, agreed::FlatBuffer::Allocate(state->plan.state_size(),
                                                         "the inner optimizer's state"));
  LOOM_ASSIGN(state->scratch,
              agreed::FlatBuffer::Allocate(state->plan.scratch, "the inner optimizer's scratch"));
  return InnerOptimizer(std::move(state));
}

Result<StepReport> InnerOptimizer::Step(std::span<float> weights, std::span<const float> grads,
                                        float lr) {
  State& s = *state_;
  LOOM_CHECK(weights.size() == s.grid.flat_size() && grads.size() == weights.size(),
             "{} weights, {} gradients, grid of {}", weights.size(), grads.size(),
             s.grid.flat_size());
  StepReport report;
  report.step = s.step + 1;
  if (!std::isfinite(lr) || lr < 0) {
    return MakeError(
        Code::kInvalid,
        fmt::format("step {}: the learning rate is {}; the step was not taken", report.step, lr));
  }
  // A sum of squares in double overflows for no finite fp32 gradients, so it is the finite check.
  report.grad_norm = std::sqrt(agreed::SumSquares(grads));
  if (!std::isfinite(report.grad_norm)) return NotFinite(s.grid, grads, report.step);
  report.grad_scale = agreed::ClipScale(report.grad_norm, s.config.clip_norm);
  agreed::InnerStep(s.plan, s.config, weights, grads, s.state.span(), s.scratch.span(), lr,
                    report.step, report.grad_scale);
  s.step = report.step;
  return report;
}

void InnerOptimizer::Reset() {
  std::ranges::fill(state_->state.span(), 0.0f);
  state_->step = 0;
}

std::uint64_t InnerOptimizer::step() const { return state_->step; }
const InnerConfig& InnerOptimizer::config() const { return state_->config; }
std::span<const float> InnerOptimizer::state() const { return std::as_const(state_->state).span(); }

Status InnerOptimizer::Restore(std::uint64_t step,
                               const std::function<Status(std::span<float>)>& fill) {
  State& s = *state_;
  const auto read = [&]() -> Status {
    const std::span<float> state = s.state.span();
    LOOM_RETURN_IF_ERROR(fill(state));
    if (!agreed::AllFinite(state))
      return MakeError(Code::kCorrupt, "inner state: a value is not finite");
    if (std::ranges::any_of(state.last(s.plan.second_size), [](float v) { return v < 0; }))
      return MakeError(Code::kCorrupt, "inner state: a second moment is negative");
    return {};
  };
  Status status = read();
  if (!status) {
    Reset();
    return status;
  }
  s.step = step;
  return {};
}

std::uint64_t InnerBytes(const agreed::TileGrid& grid, const InnerConfig& config) {
  const agreed::InnerPlan plan = agreed::PlanInner(grid, config);
  return (plan.state_size() + plan.scratch) * sizeof(float);
}

void ZeroGradients(std::span<float> grads) { std::fill(grads.begin(), grads.end(), 0.0f); }

}  // namespace loom::optim
