// Rule R21 in numbers: nothing is lost over time, and excluded work can be carried or restored.
#include "codec/error_feedback.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "agreed/combine.h"
#include "agreed/random.h"

namespace loom::codec {
namespace {

constexpr std::size_t kCount = 1077;

std::vector<float> Delta(std::uint64_t round) {
  std::vector<float> x(kCount);
  agreed::FillNormal(x, 23, round, 1e-3F);
  return x;
}

TEST(ErrorFeedback, R21ResidualIsWhatTheCodecLeftOut) {
  for (const auto kind : {CodecKind::kFp32, CodecKind::kBf16, CodecKind::kInt8}) {
    const auto codec = MakeCodec(kind);
    const auto x = Delta(0);
    const auto residual = Delta(1);
    Bytes bytes(codec->EncodedSize(kCount));
    std::vector<float> next(kCount);
    ASSERT_TRUE(EncodeWithFeedback(*codec, x, residual, bytes, next).ok());
    std::vector<float> sum(kCount), decoded(kCount), want(kCount);
    agreed::Add(x, residual, sum);
    ASSERT_TRUE(codec->Decode(bytes, decoded).ok());
    agreed::Subtract(sum, decoded, want);
    EXPECT_EQ(next, want) << CodecName(kind);
    Bytes plain(codec->EncodedSize(kCount));
    ASSERT_TRUE(codec->Encode(sum, plain).ok());
    EXPECT_EQ(bytes, plain);
  }
}

TEST(ErrorFeedback, LosslessCodecLeavesNothing) {
  const auto codec = MakeCodec(CodecKind::kFp32);
  Bytes bytes(codec->EncodedSize(kCount));
  std::vector<float> next(kCount, 1.0F);
  ASSERT_TRUE(EncodeWithFeedback(*codec, Delta(0), {}, bytes, next).ok());
  EXPECT_EQ(next, std::vector<float>(kCount));
}

TEST(ErrorFeedback, InPlaceEqualsApartAndEmptyMeansZero) {
  const auto codec = MakeCodec(CodecKind::kInt8);
  const auto x = Delta(0);
  const auto residual = Delta(1);
  Bytes bytes(codec->EncodedSize(kCount));
  std::vector<float> apart(kCount);
  ASSERT_TRUE(EncodeWithFeedback(*codec, x, residual, bytes, apart).ok());
  auto over_residual = residual;
  ASSERT_TRUE(EncodeWithFeedback(*codec, x, over_residual, bytes, over_residual).ok());
  EXPECT_EQ(over_residual, apart);
  auto over_x = x;
  ASSERT_TRUE(EncodeWithFeedback(*codec, over_x, residual, bytes, over_x).ok());
  EXPECT_EQ(over_x, apart);
  std::vector<float> with_zeros(kCount), with_empty(kCount);
  ASSERT_TRUE(EncodeWithFeedback(*codec, x, std::vector<float>(kCount), bytes, with_zeros).ok());
  ASSERT_TRUE(EncodeWithFeedback(*codec, x, {}, bytes, with_empty).ok());
  EXPECT_EQ(with_empty, with_zeros);
}

TEST(ErrorFeedback, R21SentSumFollowsTheTrueSum) {
  const auto codec = MakeCodec(CodecKind::kInt8);
  std::vector<double> truth(kCount), sent(kCount), without(kCount);
  std::vector<float> residual(kCount), decoded(kCount);
  Bytes bytes(codec->EncodedSize(kCount));
  for (std::uint64_t round = 0; round < 200; ++round) {
    const auto x = Delta(round);
    agreed::AddScaled(truth, x, 1.0F);
    ASSERT_TRUE(codec->Encode(x, bytes).ok());
    ASSERT_TRUE(codec->Decode(bytes, decoded).ok());
    agreed::AddScaled(without, decoded, 1.0F);
    ASSERT_TRUE(EncodeWithFeedback(*codec, x, residual, bytes, residual).ok());
    ASSERT_TRUE(codec->Decode(bytes, decoded).ok());
    agreed::AddScaled(sent, decoded, 1.0F);
  }
  double with_error = 0.0;
  double without_error = 0.0;
  for (std::size_t i = 0; i < kCount; ++i) {
    ASSERT_NEAR(sent[i] + double{residual[i]}, truth[i], 1e-6) << i;
    with_error += std::pow(sent[i] - truth[i], 2);
    without_error += std::pow(without[i] - truth[i], 2);
  }
  EXPECT_LT(10.0 * with_error, without_error);
}

TEST(ErrorFeedback, R21CarriedWorkComesWithTheNextRound) {
  const auto codec = MakeCodec(CodecKind::kFp32);
  auto residual = Delta(5);
  const auto before = residual;
  const auto excluded = Delta(6);
  CarryBack(excluded, residual);
  std::vector<float> want(kCount);
  agreed::Add(before, excluded, want);
  EXPECT_EQ(residual, want);
  Bytes bytes(codec->EncodedSize(kCount));
  std::vector<float> next(kCount);
  ASSERT_TRUE(EncodeWithFeedback(*codec, std::vector<float>(kCount), residual, bytes, next).ok());
  std::vector<float> arrived(kCount);
  ASSERT_TRUE(codec->Decode(bytes, arrived).ok());
  EXPECT_EQ(arrived, want);
}

TEST(ErrorFeedback, RefusesASumThatIsNotFinite) {
  const auto codec = MakeCodec(CodecKind::kInt8);
  const std::vector<float> x(10, std::numeric_limits<float>::max());
  Bytes bytes(codec->EncodedSize(10));
  std::vector<float> next(10);
  EXPECT_EQ(EncodeWithFeedback(*codec, x, x, bytes, next).error().code, Code::kInvalid);
}

}  // namespace
}  // namespace loom::codec
