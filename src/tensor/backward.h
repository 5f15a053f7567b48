// What the backward passes of ops.h share: weights that a node of the graph keeps, products added
// into gradients, and the way to the plain kernels. Internal to tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tensor/ops.h"

namespace torch::autograd {
struct AutogradContext;
}

namespace loom::tensor {

/// Weights for a Function's backward; their gradients change in place, which save_for_backward
/// would refuse.
void HoldWeights(torch::autograd::AutogradContext* ctx, std::vector<Weight> weights);
const std::vector<Weight>& HeldWeights(torch::autograd::AutogradContext* ctx);

/// grad += a b, in fp32; nothing when grad is undefined.
void AddProduct(const at::Tensor& grad, const at::Tensor& a, const at::Tensor& b);

/// fp32 on the CPU with few threads: the plain kernels apply.
bool Plain(const at::Tensor& x);
const float* In(const at::Tensor& x);
float* Out(at::Tensor& x);
inline std::size_t Count(std::int64_t n) { return static_cast<std::size_t>(n); }

}  // namespace loom::tensor
