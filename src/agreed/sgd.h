// Stochastic gradient descent, plain, with momentum or with Nesterov's, in PyTorch's form: weight
// decay is added to the gradient, dampening is 0. Order of operations per element, each rounded to
// fp32:
//   d  = grad_scale * g + weight_decay * w
//   b  = momentum * b + d
//   w  = w - lr * d                     plain (momentum is 0; b is not used)
//   w  = w - lr * b                     momentum
//   w  = w - lr * (d + momentum * b)    nesterov
#pragma once

#include <span>

#include "agreed/isa.h"

namespace loom::agreed {

struct SgdConfig {
  float momentum = 0.0F;
  bool nesterov = false;  ///< needs momentum above 0
  float weight_decay = 0.0F;
};

/// One step in place. Spans have one length and do not overlap; b, which starts at zero, is empty
/// when momentum is 0. grad_scale is the clip factor (1 = none). Finite gradients are the caller's
/// duty.
void SgdStep(std::span<float> w, std::span<const float> g, std::span<float> b,
             const SgdConfig& config, float lr, float grad_scale, Isa isa = BestIsa());

}  // namespace loom::agreed
