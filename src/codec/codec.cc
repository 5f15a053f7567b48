// Names, errors common to all formats, and the fp32 format, which is a checked copy.
#include "codec/codec.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "agreed/combine.h"
#include "base/check.h"
#include "codec/formats.h"

namespace loom::codec {

static_assert(std::endian::native == std::endian::little,
              "formats are little-endian, as memory is");

namespace {

class Fp32 final : public Codec {
 public:
  explicit Fp32(Isa isa) : isa_(isa) {}
  CodecKind kind() const override { return CodecKind::kFp32; }
  std::size_t EncodedSize(std::size_t n) const override { return 4 * n; }

  Status Encode(std::span<const float> x, MutableByteView out) const override {
    LOOM_CHECK(out.size() == EncodedSize(x.size()), "out {} for {} values", out.size(), x.size());
    if (!agreed::AllFinite(x, isa_)) {
      const auto bad =
          std::find_if_not(x.begin(), x.end(), [](float v) { return std::isfinite(v); });
      return BadValue(kind(), static_cast<std::size_t>(bad - x.begin()), *bad);
    }
    if (!x.empty()) std::memcpy(out.data(), x.data(), out.size());
    return {};
  }

  Status Decode(ByteView bytes, std::span<float> out) const override {
    LOOM_RETURN_IF_ERROR(CheckSize(kind(), bytes.size(), EncodedSize(out.size())));
    if (!out.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
    if (!agreed::AllFinite(out, isa_)) {
      return MakeError(Code::kCorrupt, "fp32 decode: a value is not finite");
    }
    return {};
  }

 private:
  Isa isa_;
};

}  // namespace

std::string_view CodecName(CodecKind kind) {
  switch (kind) {
    case CodecKind::kFp32:
      return "fp32";
    case CodecKind::kBf16:
      return "bf16";
    case CodecKind::kInt8:
      return "int8";
  }
  return "unknown";
}

Result<CodecKind> ParseCodec(std::string_view name) {
  for (const auto kind : {CodecKind::kFp32, CodecKind::kBf16, CodecKind::kInt8}) {
    if (name == CodecName(kind)) return kind;
  }
  return MakeError(Code::kInvalid,
                   fmt::format("codec '{}' is not one of fp32, bf16, int8", name.substr(0, 40)));
}

Error BadValue(CodecKind kind, std::size_t index, float value) {
  return MakeError(Code::kInvalid,
                   fmt::format("{} encode: value {} is {}, which the format refuses",
                               CodecName(kind), index, value));
}

Status CheckSize(CodecKind kind, std::size_t got, std::size_t want) {
  if (got == want) return {};
  return MakeError(Code::kCorrupt,
                   fmt::format("{} decode: {} bytes, expected {}", CodecName(kind), got, want));
}

std::unique_ptr<Codec> MakeFp32(Isa isa) { return std::make_unique<Fp32>(isa); }

std::unique_ptr<Codec> MakeCodec(CodecKind kind, Isa isa) {
  LOOM_CHECK(agreed::IsaSupported(isa), "this processor has no {}", agreed::IsaName(isa));
  switch (kind) {
    case CodecKind::kFp32:
      return MakeFp32(isa);
    case CodecKind::kBf16:
      return MakeBf16(isa);
    case CodecKind::kInt8:
      return MakeInt8(isa);
  }
  LOOM_CHECK(false, "codec {}", static_cast<int>(kind));
  return nullptr;
}

}  // namespace loom::codec
