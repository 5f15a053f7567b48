// The sums of a round: weighted accumulation in canonical order, finite check, norm, token weights.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "agreed/isa.h"

namespace loom::agreed {

/// acc += weight * x; product and sum are rounded separately. Lengths are equal, no overlap.
void AddScaled(std::span<float> acc, std::span<const float> x, float weight, Isa isa = BestIsa());

/// The same in double, where the product is exact; Round then rounds once. With it, 2^k equal
/// contributions of equal weight give that contribution bit for bit; in fp32 only up to k = 2.
void AddScaled(std::span<double> acc, std::span<const float> x, float weight, Isa isa = BestIsa());
/// out = fp32 of x, to nearest even; overflow becomes infinity.
void Round(std::span<const double> x, std::span<float> out, Isa isa = BestIsa());

/// out = a - b. out may be a or b (same range exactly). The pseudo-gradient is Subtract(theta,
/// local).
void Subtract(std::span<const float> a, std::span<const float> b, std::span<float> out,
              Isa isa = BestIsa());

/// out = a + b, under the same rules.
void Add(std::span<const float> a, std::span<const float> b, std::span<float> out,
         Isa isa = BestIsa());

/// No NaN and no infinity.
bool AllFinite(std::span<const float> x, Isa isa = BestIsa());

/// Sum of x^2 in double, in one fixed order: element i of a block of kSumBlock goes to lane i mod
/// 16; lanes are added in index order, then blocks in index order. For the norm of a whole state
/// sum the tiles one by one and add their results in tile order, so that who owns a tile changes no
/// bit.
inline constexpr std::size_t kSumBlock = 4096;
double SumSquares(std::span<const float> x, Isa isa = BestIsa());

/// w_i = tokens_i / total, divided in double and rounded to fp32; all zero when the total is 0.
/// The total must stay below 2^53.
std::vector<float> TokenWeights(std::span<const std::uint64_t> tokens);

}  // namespace loom::agreed
