#include "tensor/floats.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"

namespace loom::tensor {
namespace {

template <class Convert>
std::optional<std::size_t> Pack16(std::span<const float> values, MutableByteView out,
                                  std::uint16_t infinity, const Convert& convert) {
  std::optional<std::size_t> lost;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint16_t bits = convert(values[i]);
    std::memcpy(out.data() + 2 * i, &bits, sizeof bits);
    const bool beyond = (bits & 0x7FFFU) == infinity && std::isfinite(values[i]);
    if (beyond && !lost) lost = i;
  }
  return lost;
}

}  // namespace

float HalfToFloat(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000U) << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1FU;
  const std::uint32_t mantissa = half & 0x3FFU;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000U | (mantissa << 13));
  if (exponent != 0)
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float tiny = static_cast<float>(mantissa) * 0x1p-24F;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(tiny));
}

std::uint16_t FloatToHalf(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  std::uint32_t half = 0;
  if (magnitude > 0x7F800000U) {
    half = 0x7E00U | ((magnitude >> 13) & 0x3FFU);  // not a number
  } else if (magnitude >= 0x477FF000U) {            // 65520 and above round beyond 65504
    half = 0x7C00U;
  } else if (magnitude < 0x38800000U) {  // below 2^-14: multiples of 2^-24
    constexpr float kRound = 0x1p23F;    // a float of this size holds whole numbers only
    half =
        static_cast<std::uint32_t>((std::bit_cast<float>(magnitude) * 0x1p24F + kRound) - kRound);
  } else {
    magnitude += 0xFFFU + ((magnitude >> 13) & 1U);
    half = (magnitude - (112U << 23)) >> 13;
  }
  return static_cast<std::uint16_t>(sign | half);
}

float Bf16ToFloat(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

std::uint16_t FloatToBf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U)  // not a number, and shall stay one
    return static_cast<std::uint16_t>((bits >> 16) | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

bool IsWeightType(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

void ReadFloats(const TensorView& tensor, std::size_t first, std::span<float> out) {
  LOOM_CHECK(IsWeightType(tensor.dtype) && first + out.size() <= tensor.Numel(), "{} of {}",
             first + out.size(), tensor.Numel());
  const std::size_t size = DTypeSize(tensor.dtype);
  if (out.empty()) return;
  const std::byte* from = tensor.data.data() + first * size;
  if (tensor.dtype == DType::kF32) {
    std::memcpy(out.data(), from, out.size_bytes());
    return;
  }
  const auto convert = tensor.dtype == DType::kF16 ? HalfToFloat : Bf16ToFloat;
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::uint16_t raw = 0;
    std::memcpy(&raw, from + size * i, sizeof raw);
    out[i] = convert(raw);
  }
}

std::optional<std::size_t> PackFloats(std::span<const float> values, DType dtype,
                                      MutableByteView out) {
  LOOM_CHECK(IsWeightType(dtype) && out.size() == values.size() * DTypeSize(dtype),
             "{} values into {} bytes", values.size(), out.size());
  if (dtype == DType::kF16) return Pack16(values, out, 0x7C00U, FloatToHalf);
  if (dtype == DType::kBF16) return Pack16(values, out, 0x7F80U, FloatToBf16);
  if (!values.empty()) std::memcpy(out.data(), values.data(), values.size_bytes());
  return std::nullopt;
}

}  // namespace loom::tensor
