// SGD on flat spans: three kernels, one a row of sgd.h's formula.
#include "agreed/sgd.h"

#include <cstddef>

#include "agreed/kernel.h"
#include "base/check.h"

namespace loom::agreed {
namespace {

struct SgdScalars {
  float lr, momentum, decay, grad_scale;
};

LOOM_KERNEL_INLINE void PlainSgdBody(float* w, const float* g, float* b, SgdScalars s,
                                     std::size_t n) {
  static_cast<void>(b);
  LOOM_INDEPENDENT
  for (std::size_t i = 0; i < n; ++i) {
    const float d = s.grad_scale * g[i] + s.decay * w[i];
    w[i] = w[i] - s.lr * d;
  }
}

LOOM_KERNEL_INLINE void MomentumSgdBody(float* w, const float* g, float* b, SgdScalars s,
                                        std::size_t n) {
  LOOM_INDEPENDENT
  for (std::size_t i = 0; i < n; ++i) {
    const float d = s.grad_scale * g[i] + s.decay * w[i];
    const float momentum = s.momentum * b[i] + d;
    w[i] = w[i] - s.lr * momentum;
    b[i] = momentum;
  }
}

LOOM_KERNEL_INLINE void NesterovSgdBody(float* w, const float* g, float* b, SgdScalars s,
                                        std::size_t n) {
  LOOM_INDEPENDENT
  for (std::size_t i = 0; i < n; ++i) {
    const float d = s.grad_scale * g[i] + s.decay * w[i];
    const float momentum = s.momentum * b[i] + d;
    const float ahead = d + s.momentum * momentum;
    w[i] = w[i] - s.lr * ahead;
    b[i] = momentum;
  }
}

#define LOOM_SGD_PARAMS (float* w, const float* g, float* b, SgdScalars s, std::size_t n)
#define LOOM_SGD_ARGS (w, g, b, s, n)
LOOM_KERNEL(void, PlainSgd, LOOM_SGD_PARAMS, LOOM_SGD_ARGS)
LOOM_KERNEL(void, MomentumSgd, LOOM_SGD_PARAMS, LOOM_SGD_ARGS)
LOOM_KERNEL(void, NesterovSgd, LOOM_SGD_PARAMS, LOOM_SGD_ARGS)
#undef LOOM_SGD_PARAMS
#undef LOOM_SGD_ARGS

}  // namespace

void SgdStep(std::span<float> w, std::span<const float> g, std::span<float> b,
             const SgdConfig& config, float lr, float grad_scale, Isa isa) {
  const std::size_t n = w.size();
  const bool plain = config.momentum == 0.0F;
  LOOM_CHECK(g.size() == n && b.size() == (plain ? 0 : n), "w {} g {} b {}", n, g.size(), b.size());
  LOOM_CHECK(!plain || !config.nesterov, "Nesterov's momentum of 0");
  const FpControlGuard guard;
  const auto step = plain             ? PlainSgdPick(isa)
                    : config.nesterov ? NesterovSgdPick(isa)
                                      : MomentumSgdPick(isa);
  step(w.data(), g.data(), b.data(), {lr, config.momentum, config.weight_decay, grad_scale}, n);
}

}  // namespace loom::agreed
