// Products with weights and their gradients; see ops.h.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "tensor/backward.h"

namespace loom::tensor {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

at::Tensor Joined(std::span<const Weight> parts) {
  if (parts.size() == 1) return parts[0].value();
  std::vector<at::Tensor> values;
  values.reserve(parts.size());
  for (const Weight& part : parts) values.push_back(part.value());
  return at::cat(values);
}

void AddBiasGradients(std::span<const Weight> biases, const at::Tensor& dy) {
  const auto wanted = [](const Weight& bias) { return bias.grad().defined(); };
  if (!std::ranges::any_of(biases, wanted)) return;
  const at::Tensor db = dy.to(at::kFloat).sum(0);
  std::int64_t row = 0;
  for (const Weight& bias : biases) {
    const std::int64_t rows = bias.value().size(0);
    bias.grad().add_(db.narrow(0, row, rows));
    row += rows;
  }
}

/// y += scale (x A^T) B^T, in the columns from `column` on that each addition is for.
void AddLowRank(const Weight& weight, const at::Tensor& x, const at::Tensor& y,
                std::int64_t column) {
  for (const LowRank& low : weight.additions()) {
    const at::Tensor &a = low.a_NI.value(), &b = low.b_ON.value();
    y.narrow(1, column + low.first, b.size(0)).addmm_(at::mm(x, a.t()), b.t(), 1, low.scale);
  }
}

/// The gradients of A and B, and dx += scale (dy B) A. x A^T is computed again: it costs less than
/// keeping it.
void LowRankBackward(const Weight& weight, const at::Tensor& x, const at::Tensor& dy,
                     std::int64_t column, at::Tensor& dx) {
  for (const LowRank& low : weight.additions()) {
    const at::Tensor &a = low.a_NI.value(), &b = low.b_ON.value();
    const at::Tensor dy_RO = dy.narrow(1, column + low.first, b.size(0));
    const at::Tensor inner_RN = at::mm(x, a.t()).mul_(low.scale);
    AddProduct(low.b_ON.grad(), dy_RO.t(), inner_RN);
    const at::Tensor dinner_RN = at::mm(dy_RO, b).mul_(low.scale);
    AddProduct(low.a_NI.grad(), dinner_RN.t(), x);
    dx.addmm_(dinner_RN, a);
  }
}

struct LinearFunction : Function<LinearFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const Stack& weights,
                            const Stack& biases) {
    ctx->save_for_backward({x});
    ctx->saved_data["matrices"] = static_cast<std::int64_t>(weights.size());
    std::vector<Weight> all = weights;
    all.insert(all.end(), biases.begin(), biases.end());
    HoldWeights(ctx, std::move(all));
    const at::Tensor weight_IO = Joined(weights).t();
    const at::Tensor y =
        biases.empty() ? at::mm(x, weight_IO) : at::addmm(Joined(biases), x, weight_IO);
    std::int64_t row = 0;
    for (const Weight& weight : weights) {
      AddLowRank(weight, x, y, row);
      row += weight.value().size(0);
    }
    return y;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const at::Tensor x = ctx->get_saved_variables()[0];
    const std::span<const Weight> all = HeldWeights(ctx);
    const auto matrices = static_cast<std::size_t>(ctx->saved_data["matrices"].toInt());
    const at::Tensor& dy = grads[0];
    at::Tensor dx = at::mm(dy, Joined(all.first(matrices)));
    std::int64_t row = 0;
    for (const Weight& weight : all.first(matrices)) {
      const std::int64_t rows = weight.value().size(0);
      AddProduct(weight.grad(), dy.narrow(1, row, rows).t(), x);
      LowRankBackward(weight, x, dy, row, dx);
      row += rows;
    }
    AddBiasGradients(all.subspan(matrices), dy);
    return {dx, at::Tensor(), at::Tensor()};
  }
};

struct InputMajorFunction : Function<InputMajorFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const Weight& weight,
                            const Weight& bias) {
    ctx->save_for_backward({x});
    HoldWeights(ctx, {weight, bias});
    const at::Tensor y = at::addmm(bias.value(), x, weight.value());
    AddLowRank(weight, x, y, 0);
    return y;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const at::Tensor x = ctx->get_saved_variables()[0];
    const std::span<const Weight> held = HeldWeights(ctx);
    AddProduct(held[0].grad(), x.t(), grads[0]);
    AddBiasGradients(held.subspan(1), grads[0]);
    at::Tensor dx = at::mm(grads[0], held[0].value().t());
    LowRankBackward(held[0], x, grads[0], 0, dx);
    return {dx, at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor Linear(const at::Tensor& x_RI, const Stack& weight_OI, const Stack& bias_O) {
  return LinearFunction::apply(x_RI, weight_OI, bias_O);
}

at::Tensor InputMajorLinear(const at::Tensor& x_RI, const Weight& weight_IO, const Weight& bias_O) {
  return InputMajorFunction::apply(x_RI, weight_IO, bias_O);
}

}  // namespace loom::tensor
