// Sums, norms and weights; identities between numbers of workers.
#include "agreed/combine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "agreed/random.h"

namespace loom::agreed {
namespace {

TEST(AddScaled, R28RoundsProductAndSumApart) {
  // With a fused multiply-add the result would be 2^-24, not 0.
  const float x = 1.0F + 0x1p-12F;
  std::vector<float> acc(100, -(1.0F + 0x1p-11F));
  const std::vector<float> xs(100, x);
  for (const Isa isa : {Isa::kPlain, Isa::kAvx2, Isa::kAvx512}) {
    if (!IsaSupported(isa)) continue;
    std::vector<float> out(acc);
    AddScaled(out, xs, x, isa);
    for (const float v : out) ASSERT_EQ(v, 0.0F) << IsaName(isa);
  }
}

TEST(AddScaled, IdenticalWorkersEqualOne) {
  std::vector<float> delta(7777);
  FillNormal(delta, 3, 0, 1e-3F);
  for (const std::size_t workers : {1U, 2U, 3U, 4U, 5U, 7U, 8U, 16U, 64U}) {
    const auto weights = TokenWeights(std::vector<std::uint64_t>(workers, 1234));
    std::vector<double> wide(delta.size());
    std::vector<float> narrow(delta.size());
    for (const float weight : weights) {
      AddScaled(wide, delta, weight);
      AddScaled(narrow, delta, weight);
    }
    std::vector<float> mean(delta.size());
    Round(wide, mean);
    if ((workers & (workers - 1)) == 0) {
      EXPECT_EQ(mean, delta) << workers;
    }
    if (workers == 1 || workers == 2 || workers == 4) {
      EXPECT_EQ(narrow, delta) << workers;
    }
    for (std::size_t i = 0; i < mean.size(); ++i) {
      ASSERT_NEAR(mean[i], delta[i], std::fabs(delta[i]) * 0x1p-22) << workers;  // 2 ulp
      ASSERT_NEAR(narrow[i], delta[i], std::fabs(delta[i]) * 1e-5) << workers;
    }
  }
}

TEST(AllFinite, FindsOneBadValueAnywhere) {
  std::vector<float> x(kSumBlock * 2 + 77, 1.0F);
  x[5] = std::numeric_limits<float>::max();
  x[6] = -std::numeric_limits<float>::denorm_min();
  EXPECT_TRUE(AllFinite(x));
  EXPECT_TRUE(AllFinite({}));
  for (const std::size_t at : {std::size_t{0}, kSumBlock - 1, kSumBlock, x.size() - 1}) {
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::quiet_NaN(),
          std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()}) {
      for (const Isa isa : {Isa::kPlain, Isa::kAvx2, Isa::kAvx512}) {
        if (!IsaSupported(isa)) continue;
        auto y = x;
        y[at] = bad;
        EXPECT_FALSE(AllFinite(y, isa)) << at << " " << bad << " " << IsaName(isa);
      }
    }
  }
}

TEST(SumSquares, IsExactOnIntegersAndTheStatedOrderOnOthers) {
  std::vector<float> x(10001, 3.0F);
  EXPECT_EQ(SumSquares(x), 90009.0);
  EXPECT_EQ(SumSquares({}), 0.0);
  FillNormal(x, 8, 0, 1.0F);
  double want = 0.0;
  for (std::size_t block = 0; block < x.size(); block += kSumBlock) {
    double lanes[16] = {};
    for (std::size_t i = block; i < std::min(x.size(), block + kSumBlock); ++i) {
      lanes[(i - block) % 16] += double{x[i]} * double{x[i]};
    }
    double sum = 0.0;
    for (const double lane : lanes) sum += lane;
    want += sum;
  }
  for (const Isa isa : {Isa::kPlain, Isa::kAvx2, Isa::kAvx512}) {
    if (IsaSupported(isa)) {
      EXPECT_EQ(SumSquares(x, isa), want) << IsaName(isa);
    }
  }
  x[0] = 1e38F;
  EXPECT_NEAR(SumSquares(x) / 1e76, 1.0, 1e-6);
}

TEST(TokenWeights, AreSharesRoundedToFloat) {
  const std::vector<std::uint64_t> tokens{1, 2, 0};
  EXPECT_EQ(TokenWeights(tokens),
            (std::vector{static_cast<float>(1.0 / 3.0), static_cast<float>(2.0 / 3.0), 0.0F}));
  EXPECT_EQ(TokenWeights(std::vector<std::uint64_t>{0, 0}), (std::vector{0.0F, 0.0F}));
  EXPECT_TRUE(TokenWeights({}).empty());
  EXPECT_EQ(TokenWeights(std::vector<std::uint64_t>{99}), (std::vector{1.0F}));
}

TEST(Isa, NamesRoundTripAndUnknownOnesAreRefused) {
  for (const Isa isa : {Isa::kPlain, Isa::kAvx2, Isa::kAvx512}) {
    const auto parsed = ParseIsa(IsaName(isa));
    EXPECT_EQ(parsed.ok(), IsaSupported(isa));
    if (parsed.ok()) {
      EXPECT_EQ(*parsed, isa);
    }
  }
  EXPECT_EQ(ParseIsa("auto").value(), BestIsa());
  EXPECT_EQ(ParseIsa("sse9").error().code, Code::kInvalid);
}

}  // namespace
}  // namespace loom::agreed
