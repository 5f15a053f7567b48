// Weighted sums, differences, finite check and norm.
#include "agreed/combine.h"

#include <algorithm>
#include <bit>

#include "agreed/kernel.h"
#include "base/check.h"

namespace loom::agreed {
namespace {

constexpr std::size_t kLanes = 16;

LOOM_KERNEL_INLINE void AddScaledBody(float* acc, const float* x, float weight, std::size_t n) {
  LOOM_INDEPENDENT
  for (std::size_t i = 0; i < n; ++i) acc[i] = acc[i] + weight * x[i];
}
LOOM_KERNEL(void, AddScaled, (float* acc, const float* x, float weight, std::size_t n),
            (acc, x, weight, n))

LOOM_KERNEL_INLINE void AddWideBody(double* acc, const float* x, double weight, std::size_t n) {
  LOOM_INDEPENDENT
  for (std::size_t i = 0; i < n; ++i) acc[i] = acc[i] + weight * static_cast<double>(x[i]);
}
LOOM_KERNEL(void, AddWide, (double* acc, const float* x, double weight, std::size_t n),
            (acc, x, weight, n))

LOOM_KERNEL_INLINE void RoundBody(const double* x, float* out, std::size_t n) {
  LOOM_INDEPENDENT
  for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<float>(x[i]);
}
LOOM_KERNEL(void, Round, (const double* x, float* out, std::size_t n), (x, out, n))

LOOM_KERNEL_INLINE void SubtractBody(const float* a, const float* b, float* out, std::size_t n) {
  LOOM_INDEPENDENT
  for (std::size_t i = 0; i < n; ++i) out[i] = a[i] - b[i];
}
LOOM_KERNEL(void, Subtract, (const float* a, const float* b, float* out, std::size_t n),
            (a, b, out, n))

LOOM_KERNEL_INLINE void AddBody(const float* a, const float* b, float* out, std::size_t n) {
  LOOM_INDEPENDENT
  for (std::size_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
}
LOOM_KERNEL(void, Add, (const float* a, const float* b, float* out, std::size_t n), (a, b, out, n))

// The largest |x| as bits; NaN and infinity are the values from 0x7F800000 on.
LOOM_KERNEL_INLINE std::int32_t MaxBitsBody(const float* x, std::size_t n) {
  std::int32_t largest = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const std::int32_t magnitude = std::bit_cast<std::int32_t>(x[i]) & 0x7FFFFFFF;
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest;
}
LOOM_KERNEL(std::int32_t, MaxBits, (const float* x, std::size_t n), (x, n))

LOOM_KERNEL_INLINE double BlockSumSquaresBody(const float* x, std::size_t n) {
  double lanes[kLanes] = {};
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (std::size_t j = 0; j < kLanes; ++j) {
      const double value = x[i + j];
      lanes[j] += value * value;
    }
  }
  for (std::size_t j = 0; i + j < n; ++j) {
    const double value = x[i + j];
    lanes[j] += value * value;
  }
  double sum = 0.0;
  for (std::size_t j = 0; j < kLanes; ++j) sum += lanes[j];
  return sum;
}
LOOM_KERNEL(double, BlockSumSquares, (const float* x, std::size_t n), (x, n))

}  // namespace

void AddScaled(std::span<float> acc, std::span<const float> x, float weight, Isa isa) {
  LOOM_CHECK(acc.size() == x.size(), "acc {} x {}", acc.size(), x.size());
  const FpControlGuard guard;
  AddScaledPick(isa)(acc.data(), x.data(), weight, x.size());
}

void AddScaled(std::span<double> acc, std::span<const float> x, float weight, Isa isa) {
  LOOM_CHECK(acc.size() == x.size(), "acc {} x {}", acc.size(), x.size());
  const FpControlGuard guard;
  AddWidePick(isa)(acc.data(), x.data(), weight, x.size());
}

void Round(std::span<const double> x, std::span<float> out, Isa isa) {
  LOOM_CHECK(x.size() == out.size(), "x {} out {}", x.size(), out.size());
  const FpControlGuard guard;
  RoundPick(isa)(x.data(), out.data(), x.size());
}

void Subtract(std::span<const float> a, std::span<const float> b, std::span<float> out, Isa isa) {
  LOOM_CHECK(a.size() == b.size() && a.size() == out.size(), "a {} b {} out {}", a.size(), b.size(),
             out.size());
  const FpControlGuard guard;
  SubtractPick(isa)(a.data(), b.data(), out.data(), a.size());
}

void Add(std::span<const float> a, std::span<const float> b, std::span<float> out, Isa isa) {
  LOOM_CHECK(a.size() == b.size() && a.size() == out.size(), "a {} b {} out {}", a.size(), b.size(),
             out.size());
  const FpControlGuard guard;
  AddPick(isa)(a.data(), b.data(), out.data(), a.size());
}

bool AllFinite(std::span<const float> x, Isa isa) {
  const auto max_bits = MaxBitsPick(isa);
  for (std::size_t i = 0; i < x.size(); i += kSumBlock) {
    const std::size_t n = std::min(kSumBlock, x.size() - i);
    if (max_bits(x.data() + i, n) >= 0x7F800000) return false;
  }
  return true;
}

double SumSquares(std::span<const float> x, Isa isa) {
  const FpControlGuard guard;
  const auto block_sum = BlockSumSquaresPick(isa);
  double sum = 0.0;
  for (std::size_t i = 0; i < x.size(); i += kSumBlock) {
    sum += block_sum(x.data() + i, std::min(kSumBlock, x.size() - i));
  }
  return sum;
}

std::vector<float> TokenWeights(std::span<const std::uint64_t> tokens) {
  constexpr std::uint64_t kMaxTotal = std::uint64_t{1} << 53;
  const FpControlGuard guard;
  std::uint64_t total = 0;
  for (const std::uint64_t count : tokens) {
    LOOM_CHECK(count < kMaxTotal - total, "the sum of tokens passes 2^53 at {}", count);
    total += count;
  }
  std::vector<float> weights(tokens.size(), 0.0F);
  if (total == 0) return weights;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    weights[i] = static_cast<float>(static_cast<double>(tokens[i]) / static_cast<double>(total));
  }
  return weights;
}

}  // namespace loom::agreed
