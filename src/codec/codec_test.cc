// Every format on every instruction-set path: exact small cases, error, refusals, tails, random
// bytes.
#include "codec/codec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "agreed/combine.h"
#include "agreed/fp_control.h"
#include "agreed/random.h"

namespace loom::codec {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kMax = std::numeric_limits<float>::max();
constexpr float kDenormal = std::numeric_limits<float>::denorm_min();
constexpr std::size_t kSizes[] = {0, 1, 2, 15, 16, 17, 255, 256, 257, 511, 512, 513, 4097, 65536};

std::vector<float> Normal(std::size_t n, std::uint64_t stream = 0) {
  std::vector<float> x(n);
  agreed::FillNormal(x, 17, stream, 1.0F);
  return x;
}

Bytes Encoded(const Codec& codec, std::span<const float> x) {
  Bytes out(codec.EncodedSize(x.size()));
  const Status status = codec.Encode(x, out);
  EXPECT_TRUE(status.ok()) << status.error().ToString();
  return out;
}

std::vector<float> Decoded(const Codec& codec, ByteView bytes, std::size_t n) {
  std::vector<float> out(n);
  const Status status = codec.Decode(bytes, out);
  EXPECT_TRUE(status.ok()) << status.error().ToString();
  return out;
}

double RelativeError(std::span<const float> x, std::span<const float> y) {
  std::vector<float> difference(x.size());
  agreed::Subtract(x, y, difference);
  return std::sqrt(agreed::SumSquares(difference) / agreed::SumSquares(x));
}

struct Case {
  CodecKind kind;
  Isa isa;
};

class EveryCodec : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!agreed::IsaSupported(GetParam().isa)) GTEST_SKIP() << "not on this processor";
    codec_ = MakeCodec(GetParam().kind, GetParam().isa);
  }
  std::unique_ptr<Codec> codec_;
};

TEST_P(EveryCodec, R28PathsGiveTheBytesOfThePlainOne) {
  const auto plain = MakeCodec(GetParam().kind, Isa::kPlain);
  for (const std::size_t n : kSizes) {
    const auto x = Normal(n, n);
    const Bytes bytes = Encoded(*codec_, x);
    EXPECT_EQ(bytes, Encoded(*plain, x)) << n;
    EXPECT_EQ(Decoded(*codec_, bytes, n), Decoded(*plain, bytes, n)) << n;
  }
}

TEST_P(EveryCodec, WorksOnUnalignedBytes) {
  const auto x = Normal(1077);
  const Bytes bytes = Encoded(*codec_, x);
  Bytes shifted(bytes.size() + 1);
  ASSERT_TRUE(codec_->Encode(x, MutableByteView(shifted).subspan(1)).ok());
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), shifted.begin() + 1));
  EXPECT_EQ(Decoded(*codec_, ByteView(shifted).subspan(1), x.size()),
            Decoded(*codec_, bytes, x.size()));
}

TEST_P(EveryCodec, RefusesNonFiniteValuesByIndex) {
  for (const std::size_t at : {0U, 255U, 256U, 4096U, 5000U}) {
    for (const float bad : {kNan, -kNan, kInfinity, -kInfinity}) {
      auto x = Normal(5001);
      x[at] = bad;
      Bytes out(codec_->EncodedSize(x.size()));
      const Status status = codec_->Encode(x, out);
      ASSERT_FALSE(status.ok()) << at << " " << bad;
      EXPECT_EQ(status.error().code, Code::kInvalid);
      EXPECT_NE(status.error().message.find(" " + std::to_string(at) + " "), std::string::npos)
          << status.error().message;
    }
  }
}

TEST_P(EveryCodec, RefusesAWrongNumberOfBytes) {
  for (const std::size_t n : kSizes) {
    std::vector<float> out(n);
    const std::size_t right = codec_->EncodedSize(n);
    for (const std::size_t size : {right + 1, right - 1, std::size_t{0}, 2 * right + 3}) {
      if (size == right || size > 4 * right + 4) continue;
      const Bytes bytes(size);
      const Status status = codec_->Decode(bytes, out);
      ASSERT_FALSE(status.ok()) << n << " " << size;
      EXPECT_EQ(status.error().code, Code::kCorrupt);
    }
  }
}

TEST_P(EveryCodec, RandomBytesDecodeToFiniteValuesOrAnError) {
  const agreed::Philox philox(99, 0);
  std::size_t accepted = 0;
  for (std::uint64_t trial = 0; trial < 2000; ++trial) {
    const std::size_t n = philox.Below(trial << 32, 600);
    Bytes bytes(codec_->EncodedSize(n));
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<std::byte>(philox.At((trial << 32) + 1 + i)[0]);
    }
    std::vector<float> out(n);
    if (codec_->Decode(bytes, out).ok()) {
      ++accepted;
      ASSERT_TRUE(agreed::AllFinite(out)) << "trial " << trial;
    }
  }
  EXPECT_GT(accepted, 0U);
}

TEST_P(EveryCodec, FlippedBitsDecodeToFiniteValuesOrAnError) {
  const auto x = Normal(300);
  const Bytes bytes = Encoded(*codec_, x);
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    Bytes flipped(bytes);
    flipped[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    std::vector<float> out(x.size());
    if (codec_->Decode(flipped, out).ok()) {
      ASSERT_TRUE(agreed::AllFinite(out)) << "bit " << bit;
    }
  }
}

TEST_P(EveryCodec, DecodedValuesEncodeToTheSameCodes) {
  for (const std::size_t n : kSizes) {
    const Bytes first = Encoded(*codec_, Normal(n, 100 + n));
    const auto values = Decoded(*codec_, first, n);
    const Bytes second = Encoded(*codec_, values);
    if (codec_->kind() != CodecKind::kInt8) {
      EXPECT_EQ(second, first) << n;
      continue;
    }
    // (127 * s) / 127 may be a neighbour of s; the codes stay.
    const std::size_t codes = first.size() - n;
    EXPECT_TRUE(std::equal(first.begin() + static_cast<std::ptrdiff_t>(codes), first.end(),
                           second.begin() + static_cast<std::ptrdiff_t>(codes)));
    for (std::size_t at = 0; at < codes; at += 4) {
      std::int32_t a = 0;
      std::int32_t b = 0;
      std::memcpy(&a, first.data() + at, 4);
      std::memcpy(&b, second.data() + at, 4);
      EXPECT_LE(std::abs(a - b), 1) << "scale of block " << at / 4;
    }
  }
}

TEST_P(EveryCodec, FlushToZeroOfTheCallerChangesNothing) {
  auto x = Normal(1000);
  for (float& v : x) v *= 1e-40F;
  const Bytes want = Encoded(*codec_, x);
  const auto values = Decoded(*codec_, want, x.size());
  const std::uint64_t word = agreed::FpControlWord();
  agreed::SetFpControlWord(word | 0x8040);
  const Bytes got = Encoded(*codec_, x);
  const auto again = Decoded(*codec_, want, x.size());
  agreed::SetFpControlWord(word);
  EXPECT_EQ(got, want);
  ASSERT_EQ(std::memcmp(again.data(), values.data(), 4 * values.size()), 0);
}

std::string CaseName(const testing::TestParamInfo<Case>& info) {
  return std::string(CodecName(info.param.kind)) + "_" +
         std::string(agreed::IsaName(info.param.isa));
}

INSTANTIATE_TEST_SUITE_P(
    All, EveryCodec,
    testing::Values(Case{CodecKind::kFp32, Isa::kPlain}, Case{CodecKind::kFp32, Isa::kAvx2},
                    Case{CodecKind::kFp32, Isa::kAvx512}, Case{CodecKind::kBf16, Isa::kPlain},
                    Case{CodecKind::kBf16, Isa::kAvx2}, Case{CodecKind::kBf16, Isa::kAvx512},
                    Case{CodecKind::kInt8, Isa::kPlain}, Case{CodecKind::kInt8, Isa::kAvx2},
                    Case{CodecKind::kInt8, Isa::kAvx512}),
    CaseName);

TEST(Codec, SizesAndNames) {
  EXPECT_EQ(MakeCodec(CodecKind::kFp32)->EncodedSize(257), 1028U);
  EXPECT_EQ(MakeCodec(CodecKind::kBf16)->EncodedSize(257), 514U);
  EXPECT_EQ(MakeCodec(CodecKind::kInt8)->EncodedSize(257), 265U);
  EXPECT_EQ(MakeCodec(CodecKind::kInt8)->EncodedSize(256), 260U);
  EXPECT_EQ(MakeCodec(CodecKind::kInt8)->EncodedSize(0), 0U);
  for (const auto kind : {CodecKind::kFp32, CodecKind::kBf16, CodecKind::kInt8}) {
    EXPECT_EQ(ParseCodec(CodecName(kind)).value(), kind);
    EXPECT_EQ(MakeCodec(kind)->name(), CodecName(kind));
  }
  EXPECT_EQ(ParseCodec("int4").error().code, Code::kInvalid);
}

TEST(Fp32, KeepsEveryBit) {
  const std::vector<float> x{0.0F, -0.0F, kDenormal, -kMax, 1.5F};
  const auto codec = MakeCodec(CodecKind::kFp32);
  const auto y = Decoded(*codec, Encoded(*codec, x), x.size());
  EXPECT_EQ(std::memcmp(x.data(), y.data(), 4 * x.size()), 0);
}

TEST(Bf16, RoundsToNearestEven) {
  const auto codec = MakeCodec(CodecKind::kBf16);
  const std::vector<std::uint32_t> in{0x3F800000, 0x3F808000, 0x3F818000, 0x3F808001,
                                      0x3F807FFF, 0x80000000, 0x00000001, 0x7F7F7FFF,
                                      0x007FFFFF, 0xFF7F7FFF, 0x00008000, 0x00018000};
  const std::vector<std::uint16_t> want{0x3F80, 0x3F80, 0x3F82, 0x3F81, 0x3F80, 0x8000,
                                        0x0000, 0x7F7F, 0x0080, 0xFF7F, 0x0000, 0x0002};
  std::vector<float> x(in.size());
  std::memcpy(x.data(), in.data(), 4 * in.size());
  const Bytes bytes = Encoded(*codec, x);
  std::vector<std::uint16_t> got(in.size());
  std::memcpy(got.data(), bytes.data(), bytes.size());
  EXPECT_EQ(got, want);
  x = {std::bit_cast<float>(0x7F7F8000U)};  // would round to infinity
  Bytes out(2);
  EXPECT_EQ(codec->Encode(x, out).error().code, Code::kInvalid);
}

TEST(Int8, LayoutScaleAndRounding) {
  const auto codec = MakeCodec(CodecKind::kInt8);
  std::vector<float> x(260);
  x[0] = 254.0F;  // scale 2
  x[1] = 3.0F;    // 1.5 rounds to 2
  x[2] = 5.0F;    // 2.5 rounds to 2
  x[3] = -7.0F;   // -3.5 rounds to -4
  x[4] = -254.0F;
  x[256] = -127.0F;  // second block, scale 1
  const Bytes bytes = Encoded(*codec, x);
  ASSERT_EQ(bytes.size(), 268U);
  float scales[2];
  std::memcpy(scales, bytes.data(), sizeof scales);
  EXPECT_EQ(scales[0], 2.0F);
  EXPECT_EQ(scales[1], 1.0F);
  const auto code = [&](std::size_t i) { return static_cast<std::int8_t>(bytes[8 + i]); };
  EXPECT_EQ(code(0), 127);
  EXPECT_EQ(code(1), 2);
  EXPECT_EQ(code(2), 2);
  EXPECT_EQ(code(3), -4);
  EXPECT_EQ(code(4), -127);
  EXPECT_EQ(code(256), -127);
  EXPECT_EQ(code(257), 0);
  EXPECT_EQ(Decoded(*codec, bytes, 260)[3], -8.0F);
}

TEST(Int8, ErrorOnGaussianAndCubedGaussianIsThePublishedOne) {
  auto x = Normal(1 << 20);
  const auto codec = MakeCodec(CodecKind::kInt8);
  EXPECT_NEAR(RelativeError(x, Decoded(*codec, Encoded(*codec, x), x.size())), .0070, .00005);
  for (float& v : x) v = v * v * v;
  EXPECT_NEAR(RelativeError(x, Decoded(*codec, Encoded(*codec, x), x.size())), .0164, .0002);
}

TEST(Int8, EveryErrorIsAtMostHalfAStep) {
  for (const float size : {1e-30F, 1.0F, 1e30F}) {
    auto x = Normal(4096);
    for (float& v : x) v *= size;
    const auto codec = MakeCodec(CodecKind::kInt8);
    const Bytes bytes = Encoded(*codec, x);
    const auto y = Decoded(*codec, bytes, x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      float scale = 0.0F;
      std::memcpy(&scale, bytes.data() + 4 * (i / kInt8Block), 4);
      ASSERT_LE(std::fabs(double{x[i]} - double{y[i]}), double{scale} * 0.50002) << i;
    }
  }
}

TEST(Int8, ZeroTinyAndHugeBlocks) {
  const auto codec = MakeCodec(CodecKind::kInt8);
  const std::vector<float> zeros(300, -0.0F);
  for (const std::byte b : Encoded(*codec, zeros)) ASSERT_EQ(b, std::byte{0});
  // Below 64 times the least denormal the scale rounds to 0 and the block is lost to the residual.
  const std::vector<float> tiny{kDenormal, 63 * kDenormal, -5 * kDenormal};
  EXPECT_EQ(Decoded(*codec, Encoded(*codec, tiny), 3), (std::vector<float>(3)));
  // Just above, the coarse scale would ask for a code above 127.
  const std::vector<float> coarse{190 * kDenormal, -190 * kDenormal, kDenormal};
  EXPECT_EQ(Decoded(*codec, Encoded(*codec, coarse), 3),
            (std::vector{127 * kDenormal, -127 * kDenormal, kDenormal}));
  const std::vector<float> huge{kMax, -kMax, 1.0F};
  const auto back = Decoded(*codec, Encoded(*codec, huge), 3);
  EXPECT_NEAR(back[0] / kMax, 1.0F, 1e-6F);
  EXPECT_EQ(back[1], -back[0]);
}

TEST(Int8, DecodeRefusesWhatTheEncoderNeverWrites) {
  const auto codec = MakeCodec(CodecKind::kInt8);
  const auto decode = [&](float scale, int code) {
    Bytes bytes(codec->EncodedSize(300));
    std::memcpy(bytes.data() + 4, &scale, 4);
    bytes[8 + 270] = static_cast<std::byte>(code);
    std::vector<float> out(300);
    return codec->Decode(bytes, out);
  };
  EXPECT_TRUE(decode(1.0F, 127).ok());
  EXPECT_TRUE(decode(0.0F, 0).ok());
  EXPECT_TRUE(decode(kDenormal, -127).ok());
  for (const float scale :
       {-1.0F, -0.0F, kNan, -kNan, kInfinity, -kInfinity, kMax, kMax / 127.0F}) {
    const Status status = decode(scale, 1);
    ASSERT_FALSE(status.ok()) << scale;
    EXPECT_EQ(status.error().code, Code::kCorrupt);
    EXPECT_NE(status.error().message.find("block 1"), std::string::npos);
  }
  EXPECT_FALSE(decode(1.0F, -128).ok());
  EXPECT_FALSE(decode(0.0F, 1).ok());
}

}  // namespace
}  // namespace loom::codec
