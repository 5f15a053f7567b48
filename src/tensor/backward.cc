#include "tensor/backward.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

namespace loom::tensor {
namespace {

/// The kernels run on the calling thread; beyond this many threads ATen's parallel chains of
/// operators overtake them.
constexpr int kMaxKernelThreads = 4;

struct Holder : torch::CustomClassHolder {
  explicit Holder(std::vector<Weight> w) : weights(std::move(w)) {}
  std::vector<Weight> weights;
};

}  // namespace

struct Weight::Tensors {
  at::Tensor value, grad;
  std::vector<LowRank> additions;
};
Weight::Weight(at::Tensor value, at::Tensor grad) : Weight(std::move(value), std::move(grad), {}) {}
Weight::Weight(at::Tensor value, at::Tensor grad, std::vector<LowRank> additions)
    : tensors_(std::make_shared<const Tensors>(
          Tensors{std::move(value), std::move(grad), std::move(additions)})) {}
const at::Tensor& Weight::value() const { return tensors_->value; }
const at::Tensor& Weight::grad() const { return tensors_->grad; }
const std::vector<LowRank>& Weight::additions() const { return tensors_->additions; }

void HoldWeights(torch::autograd::AutogradContext* ctx, std::vector<Weight> weights) {
  ctx->saved_data["weights"] =
      c10::IValue::make_capsule(c10::make_intrusive<Holder>(std::move(weights)));
}

const std::vector<Weight>& HeldWeights(torch::autograd::AutogradContext* ctx) {
  return static_cast<Holder*>(ctx->saved_data["weights"].toCapsule().get())->weights;
}

void AddProduct(const at::Tensor& grad, const at::Tensor& a, const at::Tensor& b) {
  if (!grad.defined()) return;
  at::Tensor into = grad;
  if (a.scalar_type() == at::kFloat) {
    at::addmm_out(into, into, a, b);
  } else {
    into.add_(at::mm(a, b));
  }
}

bool Plain(const at::Tensor& x) {
  return x.device().is_cpu() && x.scalar_type() == at::kFloat &&
         at::get_num_threads() <= kMaxKernelThreads;
}

const float* In(const at::Tensor& x) { return x.const_data_ptr<float>(); }
float* Out(at::Tensor& x) { return x.mutable_data_ptr<float>(); }

}  // namespace loom::tensor
