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

struct LinearFunction : Function<LinearFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const Stack& weights,
                            const Stack& biases) {
    ctx->save_for_backward({x});
    ctx->saved_data["matrices"] = static_cast<std::int64_t>(weights.size());
    std::vector<Weight> all = weights;
    all.insert(all.end(), biases.begin(), biases.end());
    HoldWeights(ctx, std::move(all));
    const at::Tensor weight_IO = Joined(weights).t();
    return biases.empty() ? at::mm(x, weight_IO) : at::addmm(Joined(biases), x, weight_IO);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const at::Tensor x = ctx->get_saved_variables()[0];
    const std::span<const Weight> all = HeldWeights(ctx);
    const auto matrices = static_cast<std::size_t>(ctx->saved_data["matrices"].toInt());
    const at::Tensor& dy = grads[0];
    std::int64_t row = 0;
    for (const Weight& weight : all.first(matrices)) {
      const std::int64_t rows = weight.value().size(0);
      AddProduct(weight.grad(), dy.narrow(1, row, rows).t(), x);
      row += rows;
    }
    AddBiasGradients(all.subspan(matrices), dy);
    return {at::mm(dy, Joined(all.first(matrices))), at::Tensor(), at::Tensor()};
  }
};

struct InputMajorFunction : Function<InputMajorFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const Weight& weight,
                            const Weight& bias) {
    ctx->save_for_backward({x});
    HoldWeights(ctx, {weight, bias});
    return at::addmm(bias.value(), x, weight.value());
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const at::Tensor x = ctx->get_saved_variables()[0];
    const std::span<const Weight> held = HeldWeights(ctx);
    AddProduct(held[0].grad(), x.t(), grads[0]);
    AddBiasGradients(held.subspan(1), grads[0]);
    return {at::mm(grads[0], held[0].value().t()), at::Tensor(), at::Tensor()};
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
