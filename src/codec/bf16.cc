// bf16: the high half of the fp32 pattern, rounded to nearest even by integer arithmetic.
#include <fmt/core.h>

#include <algorithm>
#include <bit>

#include "agreed/kernel.h"
#include "base/check.h"
#include "codec/formats.h"

namespace loom::codec {
namespace {

// From this |x| on the rounded value is infinity; NaN and infinity lie above it too.
constexpr std::uint32_t kFirstRefused = 0x7F7F8000;
constexpr std::size_t kChunk = 4096;  // finite check and conversion share the first-level cache

using Code16 [[gnu::aligned(1), gnu::may_alias]] = std::uint16_t;

LOOM_KERNEL_INLINE bool Bf16EncodeBody(const float* x, Code16* out, std::size_t n) {
  std::int32_t largest = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const std::int32_t magnitude = std::bit_cast<std::int32_t>(x[i]) & 0x7FFFFFFF;
    largest = magnitude > largest ? magnitude : largest;
  }
  if (static_cast<std::uint32_t>(largest) >= kFirstRefused) return false;
  LOOM_INDEPENDENT
  for (std::size_t i = 0; i < n; ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(x[i]);
    out[i] = static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
  }
  return true;
}
LOOM_KERNEL(bool, Bf16Encode, (const float* x, Code16* out, std::size_t n), (x, out, n))

LOOM_KERNEL_INLINE bool Bf16DecodeBody(const Code16* codes, float* out, std::size_t n) {
  std::uint16_t largest = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const auto magnitude = static_cast<std::uint16_t>(codes[i] & 0x7FFFU);
    largest = magnitude > largest ? magnitude : largest;
  }
  if (largest >= 0x7F80) return false;
  LOOM_INDEPENDENT
  for (std::size_t i = 0; i < n; ++i) {
    out[i] = std::bit_cast<float>(static_cast<std::uint32_t>(codes[i]) << 16);
  }
  return true;
}
LOOM_KERNEL(bool, Bf16Decode, (const Code16* codes, float* out, std::size_t n), (codes, out, n))

class Bf16 final : public Codec {
 public:
  explicit Bf16(Isa isa) : encode_(Bf16EncodePick(isa)), decode_(Bf16DecodePick(isa)) {}
  CodecKind kind() const override { return CodecKind::kBf16; }
  std::size_t EncodedSize(std::size_t n) const override { return 2 * n; }

  Status Encode(std::span<const float> x, MutableByteView out) const override {
    LOOM_CHECK(out.size() == EncodedSize(x.size()), "out {} for {} values", out.size(), x.size());
    auto* codes = reinterpret_cast<Code16*>(out.data());
    for (std::size_t i = 0; i < x.size(); i += kChunk) {
      const std::size_t n = std::min(kChunk, x.size() - i);
      if (encode_(x.data() + i, codes + i, n)) continue;
      const auto bad = std::find_if(
          x.begin() + static_cast<std::ptrdiff_t>(i), x.end(),
          [](float v) { return (std::bit_cast<std::uint32_t>(v) & 0x7FFFFFFF) >= kFirstRefused; });
      return BadValue(kind(), static_cast<std::size_t>(bad - x.begin()), *bad);
    }
    return {};
  }

  Status Decode(ByteView bytes, std::span<float> out) const override {
    LOOM_RETURN_IF_ERROR(CheckSize(kind(), bytes.size(), EncodedSize(out.size())));
    const auto* codes = reinterpret_cast<const Code16*>(bytes.data());
    for (std::size_t i = 0; i < out.size(); i += kChunk) {
      const std::size_t n = std::min(kChunk, out.size() - i);
      if (decode_(codes + i, out.data() + i, n)) continue;
      return MakeError(Code::kCorrupt,
                       fmt::format("bf16 decode: a value from {} on is not finite", i));
    }
    return {};
  }

 private:
  Bf16EncodeFunction encode_;
  Bf16DecodeFunction decode_;
};

}  // namespace

std::unique_ptr<Codec> MakeBf16(Isa isa) { return std::make_unique<Bf16>(isa); }

}  // namespace loom::codec
