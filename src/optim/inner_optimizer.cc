// Check, clip, step; see inner_optimizer.h.
#include "optim/inner_optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "agreed/combine.h"
#include "agreed/flat_buffer.h"
#include "base/check.h"

namespace loom::optim {
namespace {

Status Setting(std::string_view name, float value, bool ok, std::string_view allowed) {
  if (ok) return {};  // comparisons with NaN are false, so NaN is refused too
  return MakeError(Code::kInvalid,
                   fmt::format("optim.{} is {}, allowed are {}", name, value, allowed));
}

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
  agreed::FlatBuffer first, second;
  std::uint64_t step = 0;
};

InnerOptimizer::InnerOptimizer(std::unique_ptr<State> state) : state_(std::move(state)) {}
InnerOptimizer::InnerOptimizer(InnerOptimizer&&) noexcept = default;
InnerOptimizer& InnerOptimizer::operator=(InnerOptimizer&&) noexcept = default;
InnerOptimizer::~InnerOptimizer() = default;

Result<InnerOptimizer> InnerOptimizer::Make(const agreed::TileGrid& grid,
                                            const InnerConfig& config) {
  const agreed::AdamWConfig& adamw = config.adamw;
  LOOM_RETURN_IF_ERROR(
      Setting("beta1", adamw.beta1, adamw.beta1 >= 0 && adamw.beta1 < 1, "0 to below 1"));
  LOOM_RETURN_IF_ERROR(
      Setting("beta2", adamw.beta2, adamw.beta2 >= 0 && adamw.beta2 < 1, "0 to below 1"));
  LOOM_RETURN_IF_ERROR(Setting("eps", adamw.eps, adamw.eps > 0 && adamw.eps <= 1, "above 0 to 1"));
  LOOM_RETURN_IF_ERROR(Setting("weight_decay", adamw.weight_decay,
                               adamw.weight_decay >= 0 && adamw.weight_decay <= 10, "0 to 10"));
  LOOM_RETURN_IF_ERROR(Setting("clip_norm", config.clip_norm,
                               config.clip_norm >= 0 && std::isfinite(config.clip_norm),
                               "0 (off) and above"));
  auto state = std::make_unique<State>();
  state->grid = grid;
  state->config = config;
  LOOM_ASSIGN(state->first, agreed::FlatBuffer::Allocate(grid.flat_size()));
  LOOM_ASSIGN(state->second, agreed::FlatBuffer::Allocate(grid.flat_size()));
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
  if (s.config.clip_norm > 0 && report.grad_norm > static_cast<double>(s.config.clip_norm)) {
    report.grad_scale =
        static_cast<float>(static_cast<double>(s.config.clip_norm) / report.grad_norm);
  }
  // Neighbours of one kind go in one call; the padding between them is zero and stays zero.
  const auto& tensors = s.grid.tensors();
  for (std::size_t t = 0; t < tensors.size();) {
    const bool decay = tensors[t].shape.size() >= 2;
    std::size_t next = t + 1;
    while (next < tensors.size() && (tensors[next].shape.size() >= 2) == decay) ++next;
    const std::uint64_t begin = s.grid.TensorOffset(t);
    const std::uint64_t end = s.grid.TensorOffset(next - 1) + tensors[next - 1].Numel();
    const std::uint64_t count = end - begin;
    agreed::AdamWStep(weights.subspan(begin, count), grads.subspan(begin, count),
                      s.first.span().subspan(begin, count), s.second.span().subspan(begin, count),
                      s.config.adamw, lr, report.step, report.grad_scale, decay);
    t = next;
  }
  s.step = report.step;
  return report;
}

void InnerOptimizer::Reset() {
  std::fill_n(state_->first.data(), state_->first.size(), 0.0f);
  std::fill_n(state_->second.data(), state_->second.size(), 0.0f);
  state_->step = 0;
}

std::uint64_t InnerOptimizer::step() const { return state_->step; }
std::span<const float> InnerOptimizer::first_moment() const {
  return std::as_const(state_->first).span();
}
std::span<const float> InnerOptimizer::second_moment() const {
  return std::as_const(state_->second).span();
}

Status InnerOptimizer::Restore(std::uint64_t step, std::span<const float> first,
                               std::span<const float> second) {
  State& s = *state_;
  if (first.size() != s.first.size() || second.size() != s.second.size()) {
    return MakeError(Code::kInvalid, fmt::format("moments of {} and {} values for a model of {}",
                                                 first.size(), second.size(), s.first.size()));
  }
  std::copy(first.begin(), first.end(), s.first.data());
  std::copy(second.begin(), second.end(), s.second.data());
  s.step = step;
  return {};
}

void ZeroGradients(std::span<float> grads) { std::fill(grads.begin(), grads.end(), 0.0f); }

}  // namespace loom::optim
