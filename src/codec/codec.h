// Codecs turn a run of floats (a tile) into bytes and back, with the same bits on every machine
// (rule R28). Formats, all little-endian, n values:
//   fp32  n floats                                                                     4n bytes
//   bf16  n brain floats, round to nearest even                                        2n bytes
//   int8  ceil(n/256) fp32 scales, then n signed codes; block k covers values 256k.. (methods 3.4a)
//         scale = max|x| / 127, code = round-to-nearest-even(x / scale) kept to [-127, 127],
//         decoded = code * scale. A block whose scale is 0 has codes 0.       n + 4 ceil(n/256)
//         bytes
// A value's sign of zero survives fp32 and bf16, not int8. Decoding ends with finite values or an
// error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "agreed/isa.h"
#include "base/bytes.h"
#include "base/result.h"

namespace loom::codec {

using agreed::BestIsa;
using agreed::Isa;

enum class CodecKind : std::uint8_t {
  kFp32 = 0,
  kBf16 = 1,
  kInt8 = 2
};  ///< values stand in the spec
std::string_view CodecName(CodecKind kind);  ///< "fp32", "bf16", "int8"
Result<CodecKind> ParseCodec(std::string_view name);

inline constexpr std::size_t kInt8Block = 256;

/// Immutable, thread-safe.
class Codec {
 public:
  virtual ~Codec() = default;
  virtual CodecKind kind() const = 0;
  std::string_view name() const { return CodecName(kind()); }
  virtual std::size_t EncodedSize(std::size_t n) const = 0;
  /// out has EncodedSize(x.size()) bytes. kInvalid, naming the first bad index, when a value is
  /// NaN, infinite, or (bf16) would round to infinity; out is then unspecified.
  virtual Status Encode(std::span<const float> x, MutableByteView out) const = 0;
  /// bytes come from peers: kCorrupt when their count is not EncodedSize(out.size()), a value is
  /// not finite, a scale is negative, not finite or too large to decode finitely, a code is -128,
  /// or a block of scale 0 has another code than 0; out is then unspecified.
  virtual Status Decode(ByteView bytes, std::span<float> out) const = 0;
};

/// isa must be one that this processor supports (agreed::ParseIsa checks what a user wrote).
std::unique_ptr<Codec> MakeCodec(CodecKind kind, Isa isa = BestIsa());

}  // namespace loom::codec
