// Fixed point on spans. A product with a power of two is exact in double, whose 53 bits hold every
// fp32; rounding to an integer is adding and taking away 1.5 * 2^52, and from 2^51 on a double that
// came from an fp32 is an integer already.
#include "agreed/fixed_point.h"

#include <bit>

#include "agreed/kernel.h"
#include "base/check.h"

namespace loom::agreed {
namespace {

/// 2^exponent for |exponent| <= 1022.
double PowerOfTwo(int exponent) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(1023 + exponent) << 52U);
}

LOOM_KERNEL_INLINE void AddFloatsBody(std::int64_t* acc, const float* x, double scale,
                                      std::size_t n) {
  constexpr double kRounder = 0x1.8p52;
  constexpr double kInteger = 0x1p51;
  LOOM_INDEPENDENT
  for (std::size_t i = 0; i < n; ++i) {
    const double scaled = static_cast<double>(x[i]) * scale;
    const double rounded = (scaled + kRounder) - kRounder;
    const bool small = scaled < kInteger && scaled > -kInteger;
    acc[i] += static_cast<std::int64_t>(small ? rounded : scaled);
  }
}
LOOM_KERNEL(void, AddFloats, (std::int64_t* acc, const float* x, double scale, std::size_t n),
            (acc, x, scale, n))

LOOM_KERNEL_INLINE void AddIntegersBody(std::int64_t* acc, const std::int64_t* x, std::size_t n) {
  LOOM_INDEPENDENT
  for (std::size_t i = 0; i < n; ++i) acc[i] += x[i];
}
LOOM_KERNEL(void, AddIntegers, (std::int64_t* acc, const std::int64_t* x, std::size_t n),
            (acc, x, n))

LOOM_KERNEL_INLINE void RoundFixedBody(const std::int64_t* acc, double scale, float* out,
                                       std::size_t n) {
  LOOM_INDEPENDENT
  for (std::size_t i = 0; i < n; ++i) {
    const auto rounded = static_cast<float>(acc[i]);
    out[i] = static_cast<float>(static_cast<double>(rounded) * scale);
  }
}
LOOM_KERNEL(void, RoundFixed, (const std::int64_t* acc, double scale, float* out, std::size_t n),
            (acc, scale, out, n))

LOOM_KERNEL_INLINE std::uint32_t LargestBitsBody(const float* x, std::size_t n) {
  std::uint32_t largest = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(x[i]) & 0x7FFFFFFFU;
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest;
}
LOOM_KERNEL(std::uint32_t, LargestBits, (const float* x, std::size_t n), (x, n))

LOOM_KERNEL_INLINE std::uint64_t LargestIntegerBody(const std::int64_t* x, std::size_t n) {
  std::uint64_t largest = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const auto bits = static_cast<std::uint64_t>(x[i]);
    const std::uint64_t magnitude = x[i] < 0 ? 0 - bits : bits;
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest;
}
LOOM_KERNEL(std::uint64_t, LargestInteger, (const std::int64_t* x, std::size_t n), (x, n))

}  // namespace

Exponent ExponentOf(std::span<const float> x, Isa isa) {
  constexpr std::uint32_t kTooLarge = (126U + kMaxExponent + 1) << 23U;  // 2^kMaxExponent
  const std::uint32_t bits = LargestBitsPick(isa)(x.data(), x.size());
  if (bits >= kTooLarge) return kNotFinite;
  if (bits == 0) return kNoExponent;
  const std::uint32_t biased = bits >> 23U;
  if (biased > 0) return static_cast<Exponent>(static_cast<int>(biased) - 126);
  return static_cast<Exponent>(static_cast<int>(std::bit_width(bits)) - 149);
}

int ShiftFor(Exponent exponent, std::uint64_t addends) {
  LOOM_CHECK(addends > 0 && exponent != kNotFinite, "{} addends below 2^{}", addends, exponent);
  return 62 - static_cast<int>(std::bit_width(addends - 1)) - exponent;
}

void AddFixed(std::span<std::int64_t> acc, std::span<const float> x, int shift, Isa isa) {
  LOOM_CHECK(acc.size() == x.size(), "acc {} x {}", acc.size(), x.size());
  const FpControlGuard guard;
  AddFloatsPick(isa)(acc.data(), x.data(), PowerOfTwo(shift), x.size());
}

void AddFixed(std::span<std::int64_t> acc, std::span<const std::int64_t> part, Isa isa) {
  LOOM_CHECK(acc.size() == part.size(), "acc {} part {}", acc.size(), part.size());
  AddIntegersPick(isa)(acc.data(), part.data(), part.size());
}

void RoundFixed(std::span<const std::int64_t> acc, int shift, std::span<float> out, Isa isa) {
  LOOM_CHECK(acc.size() == out.size(), "acc {} out {}", acc.size(), out.size());
  const FpControlGuard guard;
  RoundFixedPick(isa)(acc.data(), PowerOfTwo(-shift), out.data(), acc.size());
}

std::uint64_t LargestMagnitude(std::span<const std::int64_t> x, Isa isa) {
  return LargestIntegerPick(isa)(x.data(), x.size());
}

}  // namespace loom::agreed
