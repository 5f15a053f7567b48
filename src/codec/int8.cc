// int8: blocks of 256 with one scale each. Rounding to nearest even adds 1.5 * 2^23, after which
// the low byte of the float's pattern is the signed code; this needs no rounding instruction, so
// every instruction set and compiler does the same.
#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "agreed/kernel.h"
#include "base/check.h"
#include "codec/formats.h"

namespace loom::codec {
namespace {

// The largest scale whose 127-fold is finite; the float above it is max / 127 rounded up.
constexpr float kMaxScale = 0x1.020406p+121F;
constexpr float kRound = 0x1.8p23F;
constexpr auto kRoundBits = std::bit_cast<std::int32_t>(kRound);

std::size_t NumBlocks(std::size_t n) { return (n + kInt8Block - 1) / kInt8Block; }

LOOM_KERNEL_INLINE bool EncodeBlock(const float* x, std::byte* scale_out, std::int8_t* codes,
                                    std::size_t n) {
  std::int32_t largest = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const std::int32_t magnitude = std::bit_cast<std::int32_t>(x[i]) & 0x7FFFFFFF;
    largest = magnitude > largest ? magnitude : largest;
  }
  if (largest >= 0x7F800000) return false;
  float scale = std::bit_cast<float>(largest) / 127.0F;
  scale = scale < kMaxScale ? scale : kMaxScale;
  std::memcpy(scale_out, &scale, sizeof scale);
  if (scale == 0.0F) {
    std::memset(codes, 0, n);
    return true;
  }
  LOOM_INDEPENDENT
  for (std::size_t i = 0; i < n; ++i) {
    // |x / scale| stays below 192: a denormal scale is coarse, any other keeps it near 127.
    std::int32_t code = std::bit_cast<std::int32_t>(x[i] / scale + kRound) - kRoundBits;
    code = code < 127 ? code : 127;
    code = code > -127 ? code : -127;
    codes[i] = static_cast<std::int8_t>(code);
  }
  return true;
}

// Index of the first block with a NaN or an infinity, or the number of blocks.
LOOM_KERNEL_INLINE std::size_t Int8EncodeBody(const float* x, std::byte* scales, std::int8_t* codes,
                                              std::size_t n) {
  const std::size_t full = n / kInt8Block;
  for (std::size_t k = 0; k < full; ++k) {
    const std::size_t at = k * kInt8Block;
    if (!EncodeBlock(x + at, scales + 4 * k, codes + at, kInt8Block)) return k;
  }
  const std::size_t at = full * kInt8Block;
  if (at == n) return full;
  return EncodeBlock(x + at, scales + 4 * full, codes + at, n - at) ? full + 1 : full;
}
LOOM_KERNEL(std::size_t, Int8Encode,
            (const float* x, std::byte* scales, std::int8_t* codes, std::size_t n),
            (x, scales, codes, n))

LOOM_KERNEL_INLINE bool DecodeBlock(const std::byte* scale_in, const std::int8_t* codes, float* out,
                                    std::size_t n) {
  std::uint32_t scale_bits = 0;
  std::memcpy(&scale_bits, scale_in, sizeof scale_bits);
  // As unsigned patterns, negative numbers (-0 too), infinities and NaN all lie above kMaxScale.
  if (scale_bits > std::bit_cast<std::uint32_t>(kMaxScale)) return false;
  std::int8_t least = 0;
  std::int8_t any = 0;
  for (std::size_t i = 0; i < n; ++i) {
    least = codes[i] < least ? codes[i] : least;
    any = static_cast<std::int8_t>(any | codes[i]);
  }
  if (least == -128 || (scale_bits == 0 && any != 0)) return false;
  const float scale = std::bit_cast<float>(scale_bits);
  LOOM_INDEPENDENT
  for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<float>(codes[i]) * scale;
  return true;
}

// Index of the first bad block, or the number of blocks.
LOOM_KERNEL_INLINE std::size_t Int8DecodeBody(const std::byte* scales, const std::int8_t* codes,
                                              float* out, std::size_t n) {
  const std::size_t full = n / kInt8Block;
  for (std::size_t k = 0; k < full; ++k) {
    const std::size_t at = k * kInt8Block;
    if (!DecodeBlock(scales + 4 * k, codes + at, out + at, kInt8Block)) return k;
  }
  const std::size_t at = full * kInt8Block;
  if (at == n) return full;
  return DecodeBlock(scales + 4 * full, codes + at, out + at, n - at) ? full + 1 : full;
}
LOOM_KERNEL(std::size_t, Int8Decode,
            (const std::byte* scales, const std::int8_t* codes, float* out, std::size_t n),
            (scales, codes, out, n))

class Int8 final : public Codec {
 public:
  explicit Int8(Isa isa) : encode_(Int8EncodePick(isa)), decode_(Int8DecodePick(isa)) {}
  CodecKind kind() const override { return CodecKind::kInt8; }
  std::size_t EncodedSize(std::size_t n) const override { return 4 * NumBlocks(n) + n; }

  Status Encode(std::span<const float> x, MutableByteView out) const override {
    LOOM_CHECK(out.size() == EncodedSize(x.size()), "out {} for {} values", out.size(), x.size());
    const agreed::FpControlGuard guard;
    const std::size_t blocks = NumBlocks(x.size());
    auto* codes = reinterpret_cast<std::int8_t*>(out.data() + 4 * blocks);
    const std::size_t good = encode_(x.data(), out.data(), codes, x.size());
    if (good == blocks) return {};
    const auto from = x.begin() + static_cast<std::ptrdiff_t>(good * kInt8Block);
    const auto bad = std::find_if(from, x.end(), [](float v) {
      return (std::bit_cast<std::uint32_t>(v) & 0x7FFFFFFF) >= 0x7F800000;
    });
    return BadValue(kind(), static_cast<std::size_t>(bad - x.begin()), *bad);
  }

  Status Decode(ByteView bytes, std::span<float> out) const override {
    LOOM_RETURN_IF_ERROR(CheckSize(kind(), bytes.size(), EncodedSize(out.size())));
    const agreed::FpControlGuard guard;
    const std::size_t blocks = NumBlocks(out.size());
    const auto* codes = reinterpret_cast<const std::int8_t*>(bytes.data() + 4 * blocks);
    const std::size_t good = decode_(bytes.data(), codes, out.data(), out.size());
    if (good == blocks) return {};
    float scale = 0.0F;
    std::memcpy(&scale, bytes.data() + 4 * good, sizeof scale);
    return MakeError(
        Code::kCorrupt,
        fmt::format("int8 decode: block {} of {} has scale {} or a code that the encoder "
                    "never writes",
                    good, blocks, scale));
  }

 private:
  Int8EncodeFunction encode_;
  Int8DecodeFunction decode_;
};

}  // namespace

std::unique_ptr<Codec> MakeInt8(Isa isa) { return std::make_unique<Int8>(isa); }

}  // namespace loom::codec
