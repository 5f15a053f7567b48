// AdamW on flat spans.
#include "agreed/adamw.h"

#include <cmath>

#include "agreed/kernel.h"
#include "agreed/math.h"
#include "base/check.h"

namespace loom::agreed {
namespace {

/// The step's scalars, each made in double and rounded once.
struct Scalars {
  float beta1, rest1, beta2, rest2, shrink, step_size, root, eps, grad_scale;
};

LOOM_KERNEL_INLINE void AdamWBody(float* w, const float* g, float* m, float* v, Scalars s,
                                  std::size_t n) {
  LOOM_INDEPENDENT
  for (std::size_t i = 0; i < n; ++i) {
    const float gradient = s.grad_scale * g[i];
    const float first = s.beta1 * m[i] + s.rest1 * gradient;
    const float second = s.beta2 * v[i] + (s.rest2 * gradient) * gradient;
    const float divisor = std::sqrt(second) / s.root + s.eps;
    w[i] = w[i] * s.shrink - s.step_size * (first / divisor);
    m[i] = first;
    v[i] = second;
  }
}

LOOM_KERNEL(void, AdamW, (float* w, const float* g, float* m, float* v, Scalars s, std::size_t n),
            (w, g, m, v, s, n))

[[gnu::noinline]] Scalars MakeScalars(const AdamWConfig& config, float lr, std::uint64_t step,
                                      float grad_scale, bool decay) {
  const double beta1 = config.beta1;
  const double beta2 = config.beta2;
  const double rate = lr;
  return {
      .beta1 = config.beta1,
      .rest1 = static_cast<float>(1.0 - beta1),
      .beta2 = config.beta2,
      .rest2 = static_cast<float>(1.0 - beta2),
      .shrink = decay ? static_cast<float>(1.0 - rate * double{config.weight_decay}) : 1.0F,
      .step_size = static_cast<float>(rate / (1.0 - PowInt(beta1, step))),
      .root = static_cast<float>(Sqrt(1.0 - PowInt(beta2, step))),
      .eps = config.eps,
      .grad_scale = grad_scale,
  };
}

}  // namespace

void AdamWStep(std::span<float> w, std::span<const float> g, std::span<float> m, std::span<float> v,
               const AdamWConfig& config, float lr, std::uint64_t step, float grad_scale,
               bool decay, Isa isa) {
  const std::size_t n = w.size();
  LOOM_CHECK(g.size() == n && m.size() == n && v.size() == n, "w {} g {} m {} v {}", n, g.size(),
             m.size(), v.size());
  LOOM_CHECK(step >= 1, "AdamW counts steps from 1");
  const FpControlGuard guard;
  const Scalars scalars = MakeScalars(config, lr, step, grad_scale, decay);
  AdamWPick(isa)(w.data(), g.data(), m.data(), v.data(), scalars, n);
}

}  // namespace loom::agreed
