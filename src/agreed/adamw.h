// AdamW, the one of Loom: the CPU inner optimizer and the agreed optimizer of methods that step
// after the reduce. PyTorch's formula; order of operations per element, each rounded to fp32:
//   g' = grad_scale * g
//   m  = beta1 * m + (1 - beta1) * g'
//   v  = beta2 * v + ((1 - beta2) * g') * g'
//   w  = (w * shrink) - step_size * (m / (sqrt(v) / root + eps))
// with scalars made in double and rounded once: shrink = 1 - lr * weight_decay (1 without decay),
// step_size = lr / (1 - beta1^step), root = sqrt(1 - beta2^step), powers by squaring.
#pragma once

#include <cstdint>
#include <span>

#include "agreed/isa.h"

namespace loom::agreed {

struct AdamWConfig {
  float beta1 = 0.9F;
  float beta2 = 0.95F;
  float eps = 1e-8F;
  float weight_decay = 0.1F;
};

/// One step in place. Spans have one length and do not overlap. step counts from 1. grad_scale is
/// the clip factor (1 = none). decay is false for vectors (norms, biases). Finite gradients are the
/// caller's duty: check before, skip the step for all if not.
void AdamWStep(std::span<float> w, std::span<const float> g, std::span<float> m, std::span<float> v,
               const AdamWConfig& config, float lr, std::uint64_t step, float grad_scale,
               bool decay, Isa isa = BestIsa());

}  // namespace loom::agreed
