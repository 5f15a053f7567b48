// The three outer steps, elementwise.
#include "agreed/outer.h"

#include <fmt/core.h>

#include <array>

#include "agreed/kernel.h"
#include "base/check.h"

namespace loom::agreed {
namespace {

LOOM_KERNEL_INLINE void SgdBody(const float* w, const float* b, const float* d, float eta, float mu,
                                float* w_out, float* b_out, std::size_t n) {
  static_cast<void>(mu);
  LOOM_INDEPENDENT
  for (std::size_t i = 0; i < n; ++i) {
    w_out[i] = w[i] - eta * d[i];
    b_out[i] = b[i];
  }
}

LOOM_KERNEL_INLINE void NesterovBody(const float* w, const float* b, const float* d, float eta,
                                     float mu, float* w_out, float* b_out, std::size_t n) {
  LOOM_INDEPENDENT
  for (std::size_t i = 0; i < n; ++i) {
    const float momentum = mu * b[i] + d[i];
    const float ahead = d[i] + mu * momentum;
    w_out[i] = w[i] - eta * ahead;
    b_out[i] = momentum;
  }
}

LOOM_KERNEL_INLINE void HeavyBallBody(const float* w, const float* b, const float* d, float eta,
                                      float mu, float* w_out, float* b_out, std::size_t n) {
  LOOM_INDEPENDENT
  for (std::size_t i = 0; i < n; ++i) {
    const float momentum = mu * b[i] + d[i];
    w_out[i] = w[i] - eta * momentum;
    b_out[i] = momentum;
  }
}

#define LOOM_OUTER_PARAMS                                                             \
  (const float* w, const float* b, const float* d, float eta, float mu, float* w_out, \
   float* b_out, std::size_t n)
#define LOOM_OUTER_ARGS (w, b, d, eta, mu, w_out, b_out, n)
LOOM_KERNEL(void, Sgd, LOOM_OUTER_PARAMS, LOOM_OUTER_ARGS)
LOOM_KERNEL(void, Nesterov, LOOM_OUTER_PARAMS, LOOM_OUTER_ARGS)
LOOM_KERNEL(void, HeavyBall, LOOM_OUTER_PARAMS, LOOM_OUTER_ARGS)
#undef LOOM_OUTER_PARAMS
#undef LOOM_OUTER_ARGS

SgdFunction Pick(OuterKind kind, Isa isa) {
  switch (kind) {
    case OuterKind::kSgd:
      return SgdPick(isa);
    case OuterKind::kNesterov:
      return NesterovPick(isa);
    case OuterKind::kHeavyBall:
      return HeavyBallPick(isa);
  }
  return NesterovPick(isa);
}

}  // namespace

std::string_view OuterKindName(OuterKind kind) {
  switch (kind) {
    case OuterKind::kSgd:
      return "sgd";
    case OuterKind::kNesterov:
      return "nesterov";
    case OuterKind::kHeavyBall:
      return "heavy_ball";
  }
  return "unknown";
}

Result<OuterKind> ParseOuterKind(std::string_view name) {
  for (const auto kind : {OuterKind::kSgd, OuterKind::kNesterov, OuterKind::kHeavyBall}) {
    if (name == OuterKindName(kind)) return kind;
  }
  return MakeError(Code::kInvalid, fmt::format("outer '{}' is not one of sgd, nesterov, heavy_ball",
                                               name.substr(0, 40)));
}

void OuterStep(std::span<const float> w, std::span<const float> b, std::span<const float> delta,
               const OuterConfig& config, std::span<float> w_out, std::span<float> b_out, Isa isa) {
  const std::size_t n = w.size();
  LOOM_CHECK(b.size() == n && delta.size() == n && w_out.size() == n && b_out.size() == n,
             "w {} b {} delta {} w_out {} b_out {}", n, b.size(), delta.size(), w_out.size(),
             b_out.size());
  const FpControlGuard guard;
  Pick(config.kind, isa)(w.data(), b.data(), delta.data(), config.lr, config.momentum, w_out.data(),
                         b_out.data(), n);
}

}  // namespace loom::agreed
