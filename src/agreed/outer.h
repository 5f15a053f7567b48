// The outer optimizer: one step on the averaged pseudo-gradient delta = (global weights) - (local
// weights), old minus new. Order of operations, each rounded to fp32 (lr = eta, momentum = mu):
//   sgd         w' = w - eta * delta                     b' = b
//   nesterov    b' = mu * b + delta                      w' = w - eta * (delta + mu * b')
//   heavy_ball  b' = mu * b + delta                      w' = w - eta * b'
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "agreed/isa.h"
#include "base/result.h"

namespace loom::agreed {

enum class OuterKind : std::uint8_t { kSgd, kNesterov, kHeavyBall };
std::string_view OuterKindName(OuterKind kind);  ///< "sgd", "nesterov", "heavy_ball"
Result<OuterKind> ParseOuterKind(std::string_view name);

struct OuterConfig {
  OuterKind kind = OuterKind::kNesterov;
  float lr = 1.0F;
  float momentum = 0.5F;
};

/// All spans have one length. w_out may be w and b_out may be b (same range exactly); otherwise
/// they do not overlap any input. Finite inputs may overflow; the caller checks with AllFinite.
void OuterStep(std::span<const float> w, std::span<const float> b, std::span<const float> delta,
               const OuterConfig& config, std::span<float> w_out, std::span<float> b_out,
               Isa isa = BestIsa());

}  // namespace loom::agreed
