// The outer step against the exact fixtures of the literature, and AdamW against a double
// reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "agreed/adamw.h"
#include "agreed/combine.h"
#include "agreed/fixed_point.h"
#include "agreed/outer.h"
#include "agreed/random.h"
#include "agreed/step.h"

namespace loom::agreed {
namespace {

std::vector<float> Normal(std::size_t n, std::uint64_t stream) {
  std::vector<float> x(n);
  FillNormal(x, 5, stream, 1.0F);
  return x;
}

// H = 6 inner SGD steps with rate 1 on gradient 2, from weight 1; three rounds.
std::vector<float> OneFragment(const OuterConfig& config) {
  float w = 1.0F;
  float b = 0.0F;
  std::vector<float> after;
  for (int round = 0; round < 3; ++round) {
    float local = w;
    for (int step = 0; step < 6; ++step) local -= 2.0F;
    float delta = 0.0F;
    Subtract({&w, 1}, {&local, 1}, {&delta, 1});
    OuterStep({&w, 1}, {&b, 1}, {&delta, 1}, config, {&w, 1}, {&b, 1});
    after.push_back(w);
  }
  return after;
}

TEST(OuterStep, OneFragmentFixtureComesOutExactly) {
  EXPECT_EQ(OneFragment({OuterKind::kSgd, 2.0F, 0.0F}), (std::vector{-23.0F, -47.0F, -71.0F}));
  EXPECT_EQ(OneFragment({OuterKind::kNesterov, 0.5F, 0.5F}), (std::vector{-8.0F, -18.5F, -29.75F}));
  EXPECT_EQ(OneFragment({OuterKind::kHeavyBall, 0.5F, 0.5F}), (std::vector{-5.0F, -14.0F, -24.5F}));
}

TEST(OuterStep, OneWorkerWithRateOneFollowsTheInnerOptimizer) {
  const auto theta = Normal(10007, 0);
  std::vector<float> local(theta);
  AddScaled(local, Normal(10007, 1), 1e-3F);
  std::vector<float> delta(theta.size());
  Subtract(theta, local, delta);
  for (const auto kind : {OuterKind::kSgd, OuterKind::kNesterov, OuterKind::kHeavyBall}) {
    std::vector<float> w(theta);
    std::vector<float> b(theta.size());
    OuterStep(w, b, delta, {kind, 1.0F, 0.0F}, w, b);
    for (std::size_t i = 0; i < w.size(); ++i) {
      const double largest = std::max(std::fabs(theta[i]), std::fabs(local[i]));
      ASSERT_NEAR(w[i], local[i], largest * 0x1p-23) << i;
    }
  }
}

TEST(OuterStep, InPlaceEqualsApart) {
  const auto w = Normal(1001, 2);
  const auto b = Normal(1001, 3);
  const auto delta = Normal(1001, 4);
  for (const auto kind : {OuterKind::kSgd, OuterKind::kNesterov, OuterKind::kHeavyBall}) {
    std::vector<float> w_apart(1001);
    std::vector<float> b_apart(1001);
    OuterStep(w, b, delta, {kind, 0.7F, 0.9F}, w_apart, b_apart);
    std::vector<float> w_in(w);
    std::vector<float> b_in(b);
    OuterStep(w_in, b_in, delta, {kind, 0.7F, 0.9F}, w_in, b_in);
    EXPECT_EQ(w_in, w_apart);
    EXPECT_EQ(b_in, b_apart);
  }
}

// What a round lets in is below 2^kMaxExponent: a thousand such steps leave every rule's state
// finite.
TEST(StepRules, TheLargestMeanThatARoundTakesOverflowsNothing) {
  std::vector<std::unique_ptr<StepRule>> rules;
  for (const auto kind : {OuterKind::kSgd, OuterKind::kNesterov, OuterKind::kHeavyBall})
    rules.push_back(MakeOuterRule({kind, 1.0F, 0.99F}));
  for (const InnerKind kind : {InnerKind::kAdamW, InnerKind::kSgd}) {
    OptimizerConfig config;
    config.inner.kind = kind;
    config.inner.clip_norm = 0;
    rules.push_back(MakeOptimizerRule(config));
  }
  const std::vector<float> mean(64, std::nextafter(std::ldexp(1.0F, kMaxExponent), 0.0F));
  for (const auto& rule : rules) {
    std::vector<std::vector<float>> planes(1 + rule->num_slots(), std::vector<float>(mean.size()));
    std::vector<std::span<float>> state(planes.begin(), planes.end());
    for (std::uint64_t step = 1; step <= 1000; ++step)
      rule->Step(state, mean, rule->Scalars({step, step}, 0), true);
    for (const auto& plane : planes) EXPECT_TRUE(AllFinite(plane));
  }
}

TEST(OuterStep, NamesRoundTrip) {
  for (const auto kind : {OuterKind::kSgd, OuterKind::kNesterov, OuterKind::kHeavyBall}) {
    EXPECT_EQ(ParseOuterKind(OuterKindName(kind)).value(), kind);
  }
  EXPECT_EQ(ParseOuterKind("adam").error().code, Code::kInvalid);
}

TEST(AdamW, FollowsTheFormulaInDouble) {
  constexpr std::size_t kCount = 1003;
  const AdamWConfig config{0.9F, 0.95F, 1e-8F, 0.1F};
  std::vector<float> w = Normal(kCount, 5);
  std::vector<float> m(kCount);
  std::vector<float> v(kCount);
  std::vector<double> w_ref(w.begin(), w.end());
  std::vector<double> m_ref(kCount);
  std::vector<double> v_ref(kCount);
  for (std::uint64_t step = 1; step <= 20; ++step) {
    const auto g = Normal(kCount, 5 + step);
    AdamWStep(w, g, m, v, config, 1e-2F, step, 0.5F, true);
    for (std::size_t i = 0; i < kCount; ++i) {
      const double gradient = 0.5 * double{g[i]};
      m_ref[i] = 0.9 * m_ref[i] + 0.1 * gradient;
      v_ref[i] = 0.95 * v_ref[i] + 0.05 * gradient * gradient;
      const double m_hat = m_ref[i] / (1.0 - std::pow(0.9, static_cast<double>(step)));
      const double v_hat = v_ref[i] / (1.0 - std::pow(0.95, static_cast<double>(step)));
      w_ref[i] = w_ref[i] * (1.0 - 1e-2 * 0.1) - 1e-2 * m_hat / (std::sqrt(v_hat) + 1e-8);
    }
  }
  for (std::size_t i = 0; i < kCount; ++i) ASSERT_NEAR(w[i], w_ref[i], 5e-6) << i;
}

TEST(AdamW, FirstStepIsTheSignAndDecayIsApart) {
  std::vector<float> w{1.0F, 1.0F, 1.0F};
  const std::vector<float> g{3.0F, -0.001F, 0.0F};
  std::vector<float> m(3);
  std::vector<float> v(3);
  AdamWStep(w, g, m, v, {}, 0.125F, 1, 1.0F, false);
  EXPECT_NEAR(w[0], 0.875F, 1e-6);
  EXPECT_NEAR(w[1], 1.125F, 2e-6);
  EXPECT_EQ(w[2], 1.0F);
  std::vector<float> decayed{1.0F};
  std::vector<float> zero{0.0F};
  std::vector<float> m1(1);
  std::vector<float> v1(1);
  AdamWStep(decayed, zero, m1, v1, {0.9F, 0.95F, 1e-8F, 0.5F}, 0.125F, 1, 1.0F, true);
  EXPECT_EQ(decayed[0], 0.9375F);
}

TEST(AdamW, GradScaleIsAScaledGradient) {
  const auto g = Normal(333, 40);
  std::vector<float> half(g);
  for (float& x : half) x *= 0.5F;
  std::vector<float> w1 = Normal(333, 41);
  std::vector<float> w2(w1);
  std::vector<float> m1(333), v1(333), m2(333), v2(333);
  AdamWStep(w1, g, m1, v1, {}, 1e-3F, 1, 0.5F, true);
  AdamWStep(w2, half, m2, v2, {}, 1e-3F, 1, 1.0F, true);
  EXPECT_EQ(w1, w2);
  EXPECT_EQ(m1, m2);
  EXPECT_EQ(v1, v2);
}

}  // namespace
}  // namespace loom::agreed
