// Accuracy of the agreed functions against the long double library, and their special values.
#include "agreed/math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "agreed/random.h"

namespace loom::agreed {
namespace {

// |got - want| in units in the last place of want.
double Ulps(double got, long double want) {
  const double near = static_cast<double>(want);
  const double ulp =
      std::nextafter(std::fabs(near), std::numeric_limits<double>::infinity()) - std::fabs(near);
  return static_cast<double>(std::fabs(static_cast<long double>(got) - want) /
                             static_cast<long double>(ulp));
}

constexpr long double kPi = 3.14159265358979323846264338327950288L;

TEST(Math, LogIsWithinTwoUlps) {
  const Philox philox(1, 0);
  double worst = 0.0;
  for (std::uint64_t i = 0; i < 200000; ++i) {
    const double u = philox.Uniform(i);
    for (const double x : {u, 0.5 + u, 1.0 + u * 1e-3, u * 1e300, u * 1e-310}) {
      if (x == 0.0 || x == 1.0) continue;
      worst = std::max(worst, Ulps(Log(x), std::log(static_cast<long double>(x))));
    }
  }
  EXPECT_LT(worst, 2.0);
  RecordProperty("worst_ulps", std::to_string(worst));
}

TEST(Math, LogOfSpecialValues) {
  EXPECT_EQ(Log(1.0), 0.0);
  EXPECT_EQ(Log(0.0), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(Log(std::numeric_limits<double>::infinity()), std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(Log(-1.0)));
  EXPECT_TRUE(std::isnan(Log(std::numeric_limits<double>::quiet_NaN())));
  EXPECT_NEAR(Log(std::numeric_limits<double>::denorm_min()), -744.4400719213812, 1e-12);
}

TEST(Math, CosPiAndSinPiAreWithinTwoUlps) {
  const Philox philox(2, 0);
  double worst = 0.0;
  for (std::uint64_t i = 0; i < 200000; ++i) {
    const double x = philox.Uniform(i) * 0.25;  // the library's own argument is exact enough here
    const long double angle = kPi * static_cast<long double>(x);
    worst = std::max(worst, Ulps(CosPi(x), std::cos(angle)));
    if (x > 0.0) worst = std::max(worst, Ulps(SinPi(x), std::sin(angle)));
  }
  EXPECT_LT(worst, 2.0);
  RecordProperty("worst_ulps", std::to_string(worst));
}

TEST(Math, CosPiAndSinPiReduceExactly) {
  for (int k = -20; k <= 20; ++k) {
    EXPECT_EQ(CosPi(k), k % 2 == 0 ? 1.0 : -1.0) << k;
    EXPECT_EQ(SinPi(k), 0.0) << k;
    EXPECT_EQ(CosPi(k + 0.5), 0.0) << k;
    EXPECT_EQ(std::fabs(SinPi(k + 0.5)), 1.0) << k;
    for (const double r : {0.1, 0.25, 0.3, 0.7}) {
      const double x = k + r;  // compare with the remainder that x really has
      EXPECT_NEAR(CosPi(x), std::cos(static_cast<double>(kPi) * x), 1e-13) << x;
      EXPECT_NEAR(SinPi(x), std::sin(static_cast<double>(kPi) * x), 1e-13) << x;
    }
  }
}

TEST(Math, PowIntEqualsProducts) {
  EXPECT_EQ(PowInt(0.5, 10), 0x1p-10);
  EXPECT_EQ(PowInt(3.0, 0), 1.0);
  EXPECT_EQ(PowInt(-2.0, 3), -8.0);
  EXPECT_EQ(PowInt(0.0, 0), 1.0);
  EXPECT_EQ(PowInt(0.9, std::uint64_t{1} << 60), 0.0);
  for (const std::uint64_t n : {1U, 7U, 1000U, 12345U}) {
    const double want = std::pow(0.9999, static_cast<double>(n));
    EXPECT_NEAR(PowInt(0.9999, n) / want, 1.0, 1e-12) << n;
  }
}

}  // namespace
}  // namespace loom::agreed
