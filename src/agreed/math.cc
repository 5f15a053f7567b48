// Series in double. The logarithm uses log(m) = 2 atanh((m-1)/(m+1)) on m in [sqrt(1/2), sqrt(2));
// sine and cosine use their Taylor series on an eighth of a turn. All coefficients are quotients of
// small integers, which the compiler rounds correctly.
#include "agreed/math.h"

#include <bit>
#include <cmath>
#include <initializer_list>
#include <limits>

namespace loom::agreed {
namespace {

constexpr double kPi = 3.14159265358979323846;
// log(2) in two parts; the high part has 33 bits, so k * kLn2High is exact.
constexpr double kLn2High = 0x1.62e42feep-1;
constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
constexpr double kSqrt2 = 1.41421356237309504880;

// sin(pi r) and cos(pi r), |r| <= 1/4.
double SinSeries(double r) {
  const double z = kPi * r;
  const double t = z * z;
  double p = -1.0 / 1307674368000.0;  // 15!
  p = p * t + 1.0 / 6227020800.0;     // 13!
  p = p * t - 1.0 / 39916800.0;       // 11!
  p = p * t + 1.0 / 362880.0;         // 9!
  p = p * t - 1.0 / 5040.0;           // 7!
  p = p * t + 1.0 / 120.0;            // 5!
  p = p * t - 1.0 / 6.0;              // 3!
  return z + z * (t * p);
}

double CosSeries(double r) {
  const double z = kPi * r;
  const double t = z * z;
  double p = 1.0 / 20922789888000.0;  // 16!
  p = p * t - 1.0 / 87178291200.0;    // 14!
  p = p * t + 1.0 / 479001600.0;      // 12!
  p = p * t - 1.0 / 3628800.0;        // 10!
  p = p * t + 1.0 / 40320.0;          // 8!
  p = p * t - 1.0 / 720.0;            // 6!
  p = p * t + 1.0 / 24.0;             // 4!
  return 1.0 - (0.5 * t - (t * t) * p);
}

// x = quarter / 2 + rest with |rest| <= 1/4, exact for |x| < 2^51; quarter counts modulo 4.
double Reduce(double x, unsigned& quarter) {
  constexpr double kRound = 0x1.8p52;  // adding and subtracting it rounds to an integer
  const double doubled = x + x;
  const double nearest = (doubled + kRound) - kRound;
  quarter = static_cast<unsigned>(static_cast<std::int64_t>(nearest) & 3);
  return x - 0.5 * nearest;
}

}  // namespace

double Log(double x) {
  if (!(x > 0.0)) {
    return x == 0.0 ? -std::numeric_limits<double>::infinity()
                    : std::numeric_limits<double>::quiet_NaN();
  }
  if (x > std::numeric_limits<double>::max()) return x;
  int k = 0;
  if (x < std::numeric_limits<double>::min()) {
    x *= 0x1p54;
    k = -54;
  }
  const auto bits = std::bit_cast<std::uint64_t>(x);
  k += static_cast<int>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0x000FFFFFFFFFFFFFULL) | 0x3FF0000000000000ULL);
  if (m > kSqrt2) {
    m *= 0.5;
    k += 1;
  }
  // atanh(s) = s + s^3 (1/3 + s^2/5 + ...), |s| <= 0.1716; the first term left out is below 2^-60.
  const double f = m - 1.0;
  const double s = f / (2.0 + f);
  const double t = s * s;
  double p = 1.0 / 23.0;
  for (const double c : {1.0 / 21.0, 1.0 / 19.0, 1.0 / 17.0, 1.0 / 15.0, 1.0 / 13.0, 1.0 / 11.0,
                         1.0 / 9.0, 1.0 / 7.0, 1.0 / 5.0, 1.0 / 3.0}) {
    p = p * t + c;
  }
  // 2 s = f - s f, exactly as a real number: f carries the leading bits without rounding.
  const double kd = k;
  const double tail = 2.0 * s * (t * p);
  return kd * kLn2High + (f - (s * f - (tail + kd * kLn2Low)));
}

double CosPi(double x) {
  unsigned quarter = 0;
  const double r = Reduce(x, quarter);
  switch (quarter) {
    case 0:
      return CosSeries(r);
    case 1:
      return -SinSeries(r);
    case 2:
      return -CosSeries(r);
    default:
      return SinSeries(r);
  }
}

double SinPi(double x) {
  unsigned quarter = 0;
  const double r = Reduce(x, quarter);
  switch (quarter) {
    case 0:
      return SinSeries(r);
    case 1:
      return CosSeries(r);
    case 2:
      return -SinSeries(r);
    default:
      return -CosSeries(r);
  }
}

double PowInt(double base, std::uint64_t exponent) {
  double out = 1.0;
  while (exponent != 0) {
    if ((exponent & 1) != 0) out *= base;
    base *= base;
    exponent >>= 1;
  }
  return out;
}

// std::sqrt is the processor's correctly rounded instruction, not a library approximation.
double Sqrt(double x) { return std::sqrt(x); }
float Sqrt(float x) { return std::sqrt(x); }

}  // namespace loom::agreed
