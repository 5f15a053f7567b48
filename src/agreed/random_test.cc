// Published known answers of Philox4x32-10 and the distribution of the normals.
#include "agreed/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

namespace loom::agreed {
namespace {

using Words = std::array<std::uint32_t, 4>;

TEST(Philox, KnownAnswersOfRandom123) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr std::uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(Philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, CounterStreamAndSeedFillAllWords) {
  const std::uint64_t seed = 0x299f31d0a4093822;
  const std::uint64_t stream = 0x0370734413198a2e;
  EXPECT_EQ(Philox(seed, stream).At(0x85a308d3243f6a88),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
  EXPECT_EQ(Philox(seed, stream).U64(0x85a308d3243f6a88), 0x94fdccebd16cfe09);
}

TEST(Philox, BelowStaysBelowAndReachesAll) {
  const Philox philox(3, 0);
  std::set<std::uint64_t> seen;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const std::uint64_t x = philox.Below(i, 7);
    ASSERT_LT(x, 7U);
    seen.insert(x);
    const double u = philox.Uniform(i);
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
  }
  EXPECT_EQ(seen.size(), 7U);
}

TEST(FillNormal, MomentsAndTails) {
  constexpr std::size_t kCount = 1 << 20;
  std::vector<float> x(kCount);
  FillNormal(x, 42, 0, 1.0F);
  double sums[5] = {};
  std::size_t beyond[6] = {};
  for (const double v : x) {
    for (int k = 1; k <= 4; ++k) sums[k] += std::pow(v, k);
    for (int s = 1; s <= 5; ++s) beyond[s] += std::fabs(v) > s ? 1 : 0;
  }
  const double n = kCount;
  EXPECT_NEAR(sums[1] / n, 0.0, 5.0 / std::sqrt(n));
  EXPECT_NEAR(sums[2] / n, 1.0, 5.0 * std::sqrt(2.0 / n));
  EXPECT_NEAR(sums[3] / n, 0.0, 5.0 * std::sqrt(15.0 / n));
  EXPECT_NEAR(sums[4] / n, 3.0, 5.0 * std::sqrt(96.0 / n));
  for (int s = 1; s <= 5; ++s) {
    const double p = std::erfc(s / std::sqrt(2.0));
    EXPECT_NEAR(static_cast<double>(beyond[s]), n * p, 5.0 * std::sqrt(n * p) + 1.0) << s;
  }
}

TEST(FillNormal, PrefixSeedStreamAndScale) {
  std::vector<float> whole(1003);
  FillNormal(whole, 1, 2, 1.0F);
  for (const std::size_t n : {0U, 1U, 2U, 3U, 5U, 1000U}) {
    std::vector<float> part(n);
    FillNormal(part, 1, 2, 1.0F);
    EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin())) << n;
  }
  std::vector<float> other(1003);
  FillNormal(other, 1, 3, 1.0F);
  EXPECT_NE(other, whole);
  FillNormal(other, 2, 2, 1.0F);
  EXPECT_NE(other, whole);
  FillNormal(other, 1, 2, 0.5F);
  for (std::size_t i = 0; i < whole.size(); ++i) ASSERT_EQ(other[i], 0.5F * whole[i]);
}

TEST(FillNormal, StreamsAreUncorrelated) {
  constexpr std::size_t kCount = 1 << 16;
  std::vector<float> a(kCount);
  std::vector<float> b(kCount);
  FillNormal(a, 9, 0, 1.0F);
  FillNormal(b, 9, 1, 1.0F);
  double across = 0.0;
  double along = 0.0;
  for (std::size_t i = 0; i + 1 < kCount; ++i) {
    across += double{a[i]} * double{b[i]};
    along += double{a[i]} * double{a[i + 1]};
  }
  const double limit = 5.0 * std::sqrt(static_cast<double>(kCount));
  EXPECT_LT(std::fabs(across), limit);
  EXPECT_LT(std::fabs(along), limit);
}

}  // namespace
}  // namespace loom::agreed
