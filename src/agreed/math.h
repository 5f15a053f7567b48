// Elementary functions that give the same bits everywhere: integers and IEEE + - * / sqrt in a
// fixed order, no libm. Accuracy is a few units in the last place of double (measured in
// math_test.cc).
#pragma once

#include <cstdint>

namespace loom::agreed {

/// Natural logarithm. x = 0 gives -infinity, x < 0 and NaN give NaN, +infinity stays.
double Log(double x);
/// cos(pi x) and sin(pi x) for |x| < 2^51; the reduction to one eighth of a turn is exact.
double CosPi(double x);
double SinPi(double x);
/// base^exponent by squaring, low bits first; PowInt(x, 0) = 1.
double PowInt(double base, std::uint64_t exponent);
double Sqrt(double x);
float Sqrt(float x);

}  // namespace loom::agreed
