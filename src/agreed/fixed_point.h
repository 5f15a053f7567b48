// Sums that do not depend on order or grouping (rule R25): every fp32 value becomes an integer
// multiple of 2^-shift, rounded once to nearest even, and integers are added. One shift serves a
// tensor. Whether a sum can overflow is decided by each addend alone: with K addends a step every
// |x| * 2^shift stays below 2^62 / K, so no partial sum overflows in any grouping.
#pragma once

#include <cstdint>
#include <span>

#include "agreed/isa.h"

namespace loom::agreed {

/// A magnitude: all |x| < 2^exponent. Runs of zeros have kNoExponent.
using Exponent = std::int16_t;
inline constexpr Exponent kNoExponent = -150;  ///< below 2^-149, the smallest fp32
/// What is shared in a round stays below 2^60: its square is an fp32, so that no step rule turns a
/// finite gradient into an infinite state.
inline constexpr Exponent kMaxExponent = 60;
inline constexpr Exponent kNotFinite = INT16_MAX;

/// The smallest exponent that bounds the run; kNotFinite when that is above kMaxExponent, or the
/// run holds a NaN or an infinity.
Exponent ExponentOf(std::span<const float> x, Isa isa = BestIsa());

/// The largest shift with which `addends` values below 2^exponent fit: 62 - ceil(log2 addends) -
/// exponent. addends is not 0.
int ShiftFor(Exponent exponent, std::uint64_t addends);

/// acc += x * 2^shift, rounded to nearest even. Requires: ShiftFor(ExponentOf(x), addends) >=
/// shift, at most `addends` additions, and equal lengths without overlap.
void AddFixed(std::span<std::int64_t> acc, std::span<const float> x, int shift,
              Isa isa = BestIsa());
/// acc += part, under the same bound.
void AddFixed(std::span<std::int64_t> acc, std::span<const std::int64_t> part, Isa isa = BestIsa());
/// out = acc * 2^-shift, rounded to fp32 (to nearest even; once more only where the result is
/// subnormal).
void RoundFixed(std::span<const std::int64_t> acc, int shift, std::span<float> out,
                Isa isa = BestIsa());
/// The largest |x|, so that a peer's partial sum can be held to its bound. INT64_MIN counts as
/// 2^63.
std::uint64_t LargestMagnitude(std::span<const std::int64_t> x, Isa isa = BestIsa());

}  // namespace loom::agreed
