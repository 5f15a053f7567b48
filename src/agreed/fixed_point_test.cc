// Fixed-point sums: exact bounds, rounding, and independence of order and grouping.
#include "agreed/fixed_point.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "agreed/random.h"

namespace loom::agreed {
namespace {

std::vector<float> Normal(std::size_t n, std::uint64_t stream, float sigma) {
  std::vector<float> x(n);
  FillNormal(x, 7, stream, sigma);
  return x;
}

TEST(FixedPoint, ExponentsBoundTheirRuns) {
  EXPECT_EQ(ExponentOf(std::vector<float>{0.0F, -0.0F}), kNoExponent);
  EXPECT_EQ(ExponentOf(std::vector<float>{0.5F, -0.25F}), 0);
  EXPECT_EQ(ExponentOf(std::vector<float>{-1.0F}), 1);
  EXPECT_EQ(ExponentOf(std::vector<float>{std::nextafter(1.0F, 0.0F)}), 0);
  EXPECT_EQ(ExponentOf(std::vector<float>{std::nextafter(0x1p60F, 0.0F)}), kMaxExponent);
  EXPECT_EQ(ExponentOf(std::vector<float>{1.0F, -0x1p60F}), kNotFinite);
  EXPECT_EQ(ExponentOf(std::vector<float>{std::numeric_limits<float>::max()}), kNotFinite);
  EXPECT_EQ(ExponentOf(std::vector<float>{std::numeric_limits<float>::denorm_min()}), -148);
  EXPECT_EQ(ExponentOf(std::vector<float>{std::numeric_limits<float>::min()}), -125);
  EXPECT_EQ(ExponentOf(std::vector<float>{1.0F, NAN}), kNotFinite);
  EXPECT_EQ(ExponentOf(std::vector<float>{-INFINITY}), kNotFinite);
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    const auto x = Normal(33, seed, std::ldexp(1.0F, static_cast<int>(seed) - 100));
    float largest = 0;
    for (const float v : x) largest = std::max(largest, std::fabs(v));
    int exponent = 0;
    std::frexp(largest, &exponent);
    EXPECT_EQ(ExponentOf(x), exponent);
  }
}

TEST(FixedPoint, RoundsToNearestEvenOnceAndKeepsLargeIntegers) {
  const std::vector<float> x{0.5F, 1.5F, 2.5F, -0.5F, -1.5F, 0.75F, 0x1p30F, -0x1.fffffep60F};
  std::vector<std::int64_t> acc(x.size());
  AddFixed(acc, x, 0);
  const std::vector<std::int64_t> want{0,
                                       2,
                                       2,
                                       0,
                                       -2,
                                       1,
                                       std::int64_t{1} << 30,
                                       -((std::int64_t{1} << 61) - (std::int64_t{1} << 37))};
  EXPECT_EQ(acc, want);
}

TEST(FixedPoint, SumsDoNotDependOnOrderGroupingOrInstructionSet) {
  constexpr std::size_t kUnits = 12;
  constexpr std::size_t kValues = 1003;
  std::vector<std::vector<float>> units;
  Exponent exponent = kNoExponent;
  for (std::size_t u = 0; u < kUnits; ++u) {
    units.push_back(Normal(kValues, u, u % 3 == 0 ? 1e-6F : 3.0F));
    exponent = std::max(exponent, ExponentOf(units.back()));
  }
  const int shift = ShiftFor(exponent, kUnits);
  std::vector<float> first;
  const Philox random(3, 0);
  for (std::uint64_t trial = 0; trial < 20; ++trial) {
    std::vector<std::size_t> order(kUnits);
    for (std::size_t i = 0; i < kUnits; ++i) order[i] = i;
    for (std::size_t i = kUnits - 1; i > 0; --i)
      std::swap(order[i], order[random.Below(trial * kUnits + i, i + 1)]);
    const std::size_t cut = trial % kUnits;
    std::vector<std::int64_t> a(kValues), b(kValues);
    const Isa isa = trial % 2 == 0 ? Isa::kPlain : BestIsa();
    for (std::size_t i = 0; i < kUnits; ++i) AddFixed(i < cut ? a : b, units[order[i]], shift, isa);
    AddFixed(a, b, isa);
    EXPECT_LE(LargestMagnitude(a), std::uint64_t{1} << 62);
    std::vector<float> out(kValues);
    RoundFixed(a, shift, out, isa);
    if (first.empty()) first = out;
    EXPECT_EQ(out, first);
  }
  for (std::size_t i = 0; i < kValues; ++i) {
    double sum = 0;
    for (const auto& unit : units) sum += static_cast<double>(unit[i]);
    EXPECT_NEAR(first[i], sum, std::fabs(sum) * 1e-6 + 1e-12);
  }
}

TEST(FixedPoint, NoGroupingOfTheLargestAddendsOverflows) {
  for (const std::uint64_t addends : {1U, 2U, 3U, 64U, 1000U}) {
    const std::vector<float> x{std::nextafter(1.0F, 0.0F), -std::nextafter(1.0F, 0.0F)};
    const int shift = ShiftFor(ExponentOf(x), addends);
    std::vector<std::int64_t> acc(2);
    for (std::uint64_t i = 0; i < addends; ++i) AddFixed(acc, x, shift);
    EXPECT_GT(acc[0], 0);
    EXPECT_LT(acc[1], 0);
    EXPECT_LE(LargestMagnitude(acc), std::uint64_t{1} << 62);
    std::vector<float> out(2);
    RoundFixed(acc, shift, out);
    EXPECT_NEAR(out[0], static_cast<double>(addends), static_cast<double>(addends) * 1e-6);
  }
}

TEST(FixedPoint, TheExtremesOfTheFormatSurvive) {
  for (const float x :
       {std::numeric_limits<float>::denorm_min(), 0x1p-140F, 1.0F, std::nextafter(0x1p60F, 0.0F)}) {
    const std::vector<float> run{x};
    const int shift = ShiftFor(ExponentOf(run), 1);
    std::vector<std::int64_t> acc(1);
    AddFixed(acc, run, shift);
    std::vector<float> out(1);
    RoundFixed(acc, shift, out);
    EXPECT_EQ(out[0], x);
  }
  EXPECT_EQ(LargestMagnitude(std::vector<std::int64_t>{INT64_MIN, 5}), std::uint64_t{1} << 63);
}

}  // namespace
}  // namespace loom::agreed
