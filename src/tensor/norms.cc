// RMSNorm and LayerNorm with their gradients; see ops.h.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <tuple>

#include "tensor/backward.h"
#include "tensor/kernels.h"

namespace loom::tensor {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

struct RmsNormFunction : Function<RmsNormFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const Weight& weight,
                            double eps) {
    HoldWeights(ctx, {weight});
    at::Tensor y, scale;
    if (Plain(x)) {
      y = at::empty_like(x);
      scale = at::empty({x.size(0)}, x.options());
      kernels::RmsNorm(In(x), In(weight.value()), static_cast<float>(eps), Count(x.size(0)),
                       Count(x.size(1)), Out(y), Out(scale));
    } else {
      const at::Tensor x32 = x.to(at::kFloat);
      scale = x32.square().mean(1, true).add_(eps).rsqrt_();
      y = (x32 * scale).to(x.scalar_type()) * weight.value();
    }
    ctx->save_for_backward({x, scale});
    return y;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor& scale = saved[1];
    const Weight& weight = HeldWeights(ctx)[0];
    at::Tensor dw = weight.grad();
    at::Tensor dx;
    if (Plain(x)) {
      const at::Tensor dy = grads[0].contiguous();
      dx = at::empty_like(x);
      kernels::RmsNormBackward(In(dy), In(x), In(weight.value()), In(scale), Count(x.size(0)),
                               Count(x.size(1)), Out(dx), dw.defined() ? Out(dw) : nullptr);
    } else {
      const at::Tensor dy = grads[0].to(at::kFloat);
      const at::Tensor normed = x.to(at::kFloat) * scale;
      const at::Tensor dnormed = dy * weight.value().to(at::kFloat);
      dx = ((dnormed - normed * (dnormed * normed).mean(1, true)) * scale).to(x.scalar_type());
      if (dw.defined()) dw.add_((dy * normed).sum(0));
    }
    return {dx, at::Tensor(), at::Tensor()};
  }
};

struct LayerNormFunction : Function<LayerNormFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const Weight& weight,
                            const Weight& bias, double eps) {
    HoldWeights(ctx, {weight, bias});
    const auto [y, mean, scale] =
        at::native_layer_norm(x, {x.size(1)}, weight.value(), bias.value(), eps);
    ctx->save_for_backward({x, mean, scale});
    return y;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor& x = saved[0];
    const Weight& weight = HeldWeights(ctx)[0];
    const Weight& bias = HeldWeights(ctx)[1];
    const bool weight_wanted = weight.grad().defined();
    const bool bias_wanted = bias.grad().defined();
    const auto [dx, dw, db] = at::native_layer_norm_backward(
        grads[0].contiguous(), x, {x.size(1)}, saved[1], saved[2], weight.value(), bias.value(),
        {true, weight_wanted, bias_wanted});
    if (weight_wanted) weight.grad().add_(dw);
    if (bias_wanted) bias.grad().add_(db);
    return {dx, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor RmsNorm(const at::Tensor& x_RW, const Weight& weight_W, double eps) {
  return RmsNormFunction::apply(x_RW.contiguous(), weight_W, eps);
}

at::Tensor LayerNorm(const at::Tensor& x_RW, const Weight& weight_W, const Weight& bias_W,
                     double eps) {
  return LayerNormFunction::apply(x_RW.contiguous(), weight_W, bias_W, eps);
}

}  // namespace loom::tensor
