// Values of each schedule at its corners, monotony, and refusal of impossible ones.
#include "agreed/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace loom::agreed {
namespace {

ScheduleConfig Config(ScheduleKind kind) { return {kind, 1.0F, 0.1F, 100, 1100, 400}; }

TEST(Schedule, WarmUpIsLinearForEveryKind) {
  for (const auto kind : {ScheduleKind::kConstant, ScheduleKind::kCosine, ScheduleKind::kWsd,
                          ScheduleKind::kLinear}) {
    EXPECT_EQ(LearningRate(Config(kind), 0), 0.0F);
    EXPECT_EQ(LearningRate(Config(kind), 25), 0.25F);
    EXPECT_EQ(LearningRate(Config(kind), 100), 1.0F);
    auto without = Config(kind);
    without.warmup_tokens = 0;
    EXPECT_EQ(LearningRate(without, 0), 1.0F);
  }
}

TEST(Schedule, EndsAtFinalAndStaysThere) {
  for (const auto kind : {ScheduleKind::kCosine, ScheduleKind::kWsd, ScheduleKind::kLinear}) {
    EXPECT_EQ(LearningRate(Config(kind), 1100), 0.1F);
    EXPECT_EQ(LearningRate(Config(kind), std::numeric_limits<std::uint64_t>::max()), 0.1F);
    float last = 1.0F;
    for (std::uint64_t t = 100; t <= 1100; ++t) {
      const float rate = LearningRate(Config(kind), t);
      ASSERT_LE(rate, last) << ScheduleKindName(kind) << " " << t;
      ASSERT_GE(rate, 0.1F);
      last = rate;
    }
  }
  EXPECT_EQ(LearningRate(Config(ScheduleKind::kConstant), 5000), 1.0F);
}

TEST(Schedule, MiddleOfTheWay) {
  EXPECT_FLOAT_EQ(LearningRate(Config(ScheduleKind::kCosine), 600), 0.55F);
  EXPECT_FLOAT_EQ(LearningRate(Config(ScheduleKind::kLinear), 600), 0.55F);
  EXPECT_EQ(LearningRate(Config(ScheduleKind::kWsd), 699), 1.0F);
  EXPECT_FLOAT_EQ(LearningRate(Config(ScheduleKind::kWsd), 800), 0.55F);  // 1 - sqrt(1/4)
  auto linear = Config(ScheduleKind::kWsd);
  linear.decay_shape = DecayShape::kLinear;
  EXPECT_FLOAT_EQ(LearningRate(linear, 800), 0.775F);
  for (std::uint64_t t = 100; t < 1100; t += 7) {
    const double x = static_cast<double>(t - 100) / 1000.0;
    const double want = 0.1 + 0.9 * 0.5 * (1.0 + std::cos(3.14159265358979323846 * x));
    EXPECT_NEAR(LearningRate(Config(ScheduleKind::kCosine), t), want, 1e-7) << t;
  }
}

TEST(Schedule, RefusesWhatDoesNotFit) {
  auto config = Config(ScheduleKind::kWsd);
  EXPECT_TRUE(Validate(config).ok());
  config.decay_tokens = 1001;
  EXPECT_NE(Validate(config).error().message.find("1001"), std::string::npos);
  config = Config(ScheduleKind::kCosine);
  config.warmup_tokens = 1101;
  EXPECT_EQ(Validate(config).error().code, Code::kInvalid);
  config = Config(ScheduleKind::kCosine);
  config.peak = -1.0F;
  EXPECT_FALSE(Validate(config).ok());
  config.peak = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(Validate(config).ok());
  config = Config(ScheduleKind::kCosine);
  config.final = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(Validate(config).ok());
}

TEST(Schedule, NamesRoundTrip) {
  for (const auto kind : {ScheduleKind::kConstant, ScheduleKind::kCosine, ScheduleKind::kWsd,
                          ScheduleKind::kLinear}) {
    EXPECT_EQ(ParseScheduleKind(ScheduleKindName(kind)).value(), kind);
  }
  EXPECT_FALSE(ParseScheduleKind("cosin").ok());
  EXPECT_EQ(ParseDecayShape("sqrt").value(), DecayShape::kSqrt);
  EXPECT_EQ(ParseDecayShape("linear").value(), DecayShape::kLinear);
  EXPECT_FALSE(ParseDecayShape("").ok());
}

}  // namespace
}  // namespace loom::agreed
