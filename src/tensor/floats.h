// The three number formats of weights in files, to fp32 and back; plain C++. Widening is exact,
// narrowing rounds to the nearest, ties to even, and so leaves every number of the format as it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/bytes.h"
#include "tensor/safetensors.h"

namespace loom::tensor {

float HalfToFloat(std::uint16_t half);
std::uint16_t FloatToHalf(float value);  ///< infinite where the number is beyond fp16
float Bf16ToFloat(std::uint16_t bits);
std::uint16_t FloatToBf16(float value);  ///< infinite where rounding leads beyond the largest one

/// F32, BF16 or F16: what weights may be.
bool IsWeightType(DType dtype);

/// Elements [first, first + out.size()) of a tensor of weights as fp32.
void ReadFloats(const TensorView& tensor, std::size_t first, std::span<float> out);
/// The same numbers in another of the formats; out has DTypeSize(dtype) bytes for each. Returns the
/// index of the first finite number that the format cannot hold.
std::optional<std::size_t> PackFloats(std::span<const float> values, DType dtype,
                                      MutableByteView out);

}  // namespace loom::tensor
