#include "tensor/safetensors.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <optional>

#include "base/file.h"
#include "tensor/floats.h"

namespace loom::tensor {
namespace {

Bytes File(std::string_view header, std::size_t buffer_bytes) {
  Bytes out(8 + header.size() + buffer_bytes);
  const std::uint64_t size = header.size();
  std::memcpy(out.data(), &size, 8);
  std::memcpy(out.data() + 8, header.data(), header.size());
  return out;
}

SafetensorsFault FaultOf(ByteView file) {
  SafetensorsFault fault = SafetensorsFault::kNone;
  const auto content = ParseSafetensors(file, &fault);
  EXPECT_EQ(content.ok(), fault == SafetensorsFault::kNone);
  if (!content) {
    EXPECT_TRUE(content.error().message.starts_with(SafetensorsFaultName(fault)))
        << content.error().message;
  }
  return fault;
}

TEST(Safetensors, EveryFaultHasItsOwnName) {
  using F = SafetensorsFault;
  const std::string good = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  EXPECT_EQ(FaultOf(File(good, 8)), F::kNone);
  EXPECT_EQ(FaultOf(File(good + "   ", 8)), F::kNone);
  EXPECT_EQ(FaultOf(File("{}", 0)), F::kNone);

  EXPECT_EQ(FaultOf(AsBytes("1234567")), F::kHeaderTooSmall);
  EXPECT_EQ(FaultOf({}), F::kHeaderTooSmall);
  EXPECT_EQ(FaultOf(File("", 0)), F::kHeaderTooSmall);
  Bytes large = File(good, 8);
  std::uint64_t size = kMaxSafetensorsHeader + 1;
  std::memcpy(large.data(), &size, 8);
  EXPECT_EQ(FaultOf(large), F::kHeaderTooLarge);
  size = std::numeric_limits<std::uint64_t>::max();
  std::memcpy(large.data(), &size, 8);
  EXPECT_EQ(FaultOf(large), F::kHeaderTooLarge);
  size = 1000;
  std::memcpy(large.data(), &size, 8);
  EXPECT_EQ(FaultOf(large), F::kHeaderTruncated);
  EXPECT_EQ(FaultOf(File("{\"\xff\":1}", 0)), F::kInvalidUtf8);
  EXPECT_EQ(FaultOf(File(" {}", 0)), F::kInvalidStart);
  EXPECT_EQ(FaultOf(File("[]", 0)), F::kInvalidStart);
  EXPECT_EQ(FaultOf(File("{]", 0)), F::kInvalidJson);
  EXPECT_EQ(FaultOf(File("{}x", 0)), F::kInvalidJson);
  EXPECT_EQ(FaultOf(File(R"({"a":{"b":{"c":{"d":[1]}}}})", 0)), F::kInvalidJson);
  EXPECT_EQ(FaultOf(File(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                         R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
                         8)),
            F::kDuplicateKey);
  EXPECT_EQ(
      FaultOf(File(R"({"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8)),
      F::kDuplicateKey);
  EXPECT_EQ(FaultOf(File(R"({"__metadata__":{"a":1}})", 0)), F::kMetadataNotString);
  EXPECT_EQ(FaultOf(File(R"({"__metadata__":"a"})", 0)), F::kMetadataNotString);
  EXPECT_EQ(FaultOf(File(R"({"a":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[0,2]}})", 2)),
            F::kUnknownDType);
  EXPECT_EQ(FaultOf(File(R"({"a":{"dtype":"F32","shape":[2]}})", 8)), F::kInvalidTensor);
  EXPECT_EQ(FaultOf(File(R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", 8)),
            F::kInvalidTensor);
  EXPECT_EQ(FaultOf(File(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8)),
            F::kInvalidTensor);
  EXPECT_EQ(FaultOf(File(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8)),
            F::kSizeMismatch);
  EXPECT_EQ(FaultOf(File(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],)"
                         R"("data_offsets":[0,8]}})",
                         8)),
            F::kOverflow);
  EXPECT_EQ(FaultOf(File(R"({"a":{"dtype":"F32","shape":[0,4294967296,4294967296,4294967296],)"
                         R"("data_offsets":[0,0]}})",
                         0)),
            F::kOverflow);
  EXPECT_EQ(FaultOf(File(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8)),
            F::kOffsetOutOfRange);
  EXPECT_EQ(FaultOf(File(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[99,107]}})", 8)),
            F::kOffsetOutOfRange);
  EXPECT_EQ(FaultOf(File(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})", 12)),
            F::kOverlapOrHole);
  EXPECT_EQ(FaultOf(File(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                         R"("b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
                         12)),
            F::kOverlapOrHole);
  EXPECT_EQ(FaultOf(File(good, 7)), F::kBufferIncomplete);
  EXPECT_EQ(FaultOf(File(good, 9)), F::kBufferIncomplete);
}

TEST(Safetensors, WritesWhatItReads) {
  const std::vector<float> a{1.0F, -0.0F, std::numeric_limits<float>::infinity(), 4.5F, 5.0F, 6.0F};
  const std::vector<std::int64_t> b{-1};
  const std::vector<TensorView> tensors{
      {"a", DType::kF32, {2, 3}, AsBytes(std::span(a))},
      {"scalar", DType::kI64, {}, AsBytes(std::span(b))},
      {"empty", DType::kBF16, {0, 7}, {}},
  };
  const std::vector<std::pair<std::string, std::string>> metadata{{"format", "pt"}};
  const std::string path = ::testing::TempDir() + "loom_safetensors_test.safetensors";
  ASSERT_TRUE(WriteSafetensors(path, tensors, metadata).ok());
  EXPECT_FALSE(std::filesystem::exists(path + ".tmp"));
  {
    auto file = SafetensorsFile::Open(path);
    ASSERT_TRUE(file.ok()) << file.error().ToString();
    EXPECT_EQ(file->content().metadata, metadata);
    ASSERT_EQ(file->content().tensors.size(), 3U);
    const TensorView* got = file->Find("a");
    ASSERT_NE(got, nullptr);
    EXPECT_EQ(got->shape, (std::vector<std::uint64_t>{2, 3}));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(got->data.data()) % 64, 0U);
    std::vector<float> back(6);
    ASSERT_TRUE(ToFloat32(*got, back).ok());
    EXPECT_EQ(std::memcmp(back.data(), a.data(), 24), 0);
    EXPECT_EQ(file->Find("scalar")->Numel(), 1U);
    EXPECT_EQ(file->Find("empty")->Numel(), 0U);
    EXPECT_EQ(file->Find("nothing"), nullptr);
  }
  std::filesystem::remove(path);
}

TEST(Safetensors, WriterRefusesWhatReadersWould) {
  const std::vector<float> a(4);
  const ByteView data = AsBytes(std::span(a));
  const std::vector<TensorView> twice{{"a", DType::kF32, {4}, data}, {"a", DType::kF32, {4}, data}};
  EXPECT_FALSE(SafetensorsHeader(twice).ok());
  const std::vector<TensorView> reserved{{"__metadata__", DType::kF32, {4}, data}};
  EXPECT_FALSE(SafetensorsHeader(reserved).ok());
  const std::vector<TensorView> wrong{{"a", DType::kF32, {5}, data}};
  EXPECT_FALSE(SafetensorsHeader(wrong).ok());
}

TEST(Safetensors, HalfFormatsBecomeExactFloats) {
  const std::vector<std::uint16_t> f16{0x3C00, 0xC000, 0x0001, 0x8000, 0x7BFF, 0x7C00, 0x0400};
  std::vector<float> out(f16.size());
  ASSERT_TRUE(ToFloat32({"h", DType::kF16, {7}, AsBytes(std::span(f16))}, out).ok());
  EXPECT_EQ(out[0], 1.0F);
  EXPECT_EQ(out[1], -2.0F);
  EXPECT_EQ(out[2], 0x1p-24F);
  EXPECT_TRUE(out[3] == 0.0F && std::signbit(out[3]));
  EXPECT_EQ(out[4], 65504.0F);
  EXPECT_TRUE(std::isinf(out[5]));
  EXPECT_EQ(out[6], 0x1p-14F);
  const std::vector<std::uint16_t> bf16{0x3F80, 0xC040};
  out.resize(2);
  ASSERT_TRUE(ToFloat32({"b", DType::kBF16, {2}, AsBytes(std::span(bf16))}, out).ok());
  EXPECT_EQ(out[0], 1.0F);
  EXPECT_EQ(out[1], -3.0F);
  EXPECT_FALSE(ToFloat32({"i", DType::kI16, {2}, AsBytes(std::span(bf16))}, out).ok());
}

TEST(Floats, EveryNumberOf16BitsSurvivesTheWayThroughFp32) {
  for (std::uint32_t bits = 0; bits <= 0xFFFFU; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    if (std::isnan(HalfToFloat(half))) {
      EXPECT_TRUE(std::isnan(HalfToFloat(FloatToHalf(HalfToFloat(half))))) << bits;
    } else {
      EXPECT_EQ(FloatToHalf(HalfToFloat(half)), half) << bits;
    }
    if (std::isnan(Bf16ToFloat(half))) {
      EXPECT_TRUE(std::isnan(Bf16ToFloat(FloatToBf16(Bf16ToFloat(half))))) << bits;
    } else {
      EXPECT_EQ(FloatToBf16(Bf16ToFloat(half)), half) << bits;
    }
  }
}

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(Floats, NarrowingRoundsToTheNearestAndTiesToEven) {
  // Between every two neighbours of fp16: below, at and above the middle.
  for (std::uint16_t low = 0; low < 0x7BFFU; ++low) {
    const auto high = static_cast<std::uint16_t>(low + 1);
    const float middle = (HalfToFloat(low) + HalfToFloat(high)) / 2;
    EXPECT_EQ(FloatToHalf(middle), low % 2 == 0 ? low : high);
    EXPECT_EQ(FloatToHalf(std::nextafter(middle, 0.0F)), low);
    EXPECT_EQ(FloatToHalf(-std::nextafter(middle, kInfinity)), high | 0x8000U);
  }
  EXPECT_EQ(FloatToHalf(65519.996F), 0x7BFFU);
  EXPECT_EQ(FloatToHalf(65520.0F), 0x7C00U) << "infinite";
  for (std::uint16_t low = 0; low < 0x7F7FU; ++low) {
    const auto high = static_cast<std::uint16_t>(low + 1);
    const float middle = std::bit_cast<float>((std::uint32_t{low} << 16) | 0x8000U);
    EXPECT_EQ(FloatToBf16(middle), low % 2 == 0 ? low : high);
    EXPECT_EQ(FloatToBf16(std::nextafter(middle, 0.0F)), low);
    EXPECT_EQ(FloatToBf16(-std::nextafter(middle, kInfinity)), high | 0x8000U);
  }
  EXPECT_EQ(FloatToBf16(std::numeric_limits<float>::max()), 0x7F80U) << "infinite";
}

TEST(Safetensors, WeightsAreWrittenInTheFormatAskedFor) {
  const std::string path = ::testing::TempDir() + "loom_weights.safetensors";
  std::vector<float> values(600'001);  // more than two pieces
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = std::sin(static_cast<float>(i)) * 3.0F;
  const std::vector<TensorView> tensors = {
      {"a", DType::kF32, {values.size()}, std::as_bytes(std::span(values))},
      {"none", DType::kF32, {0, 4}, {}}};
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    SCOPED_TRACE(DTypeName(dtype));
    ASSERT_TRUE(WriteWeights(path, tensors, dtype).ok());
    const auto file = SafetensorsFile::Open(path);
    ASSERT_TRUE(file.ok()) << file.error().ToString();
    const TensorView* a = file->Find("a");
    ASSERT_NE(a, nullptr);
    EXPECT_EQ(a->dtype, dtype);
    std::vector<float> read(values.size());
    ASSERT_TRUE(ToFloat32(*a, read).ok());
    for (std::size_t i = 0; i < values.size(); ++i) {
      float want = values[i];
      if (dtype == DType::kBF16) want = Bf16ToFloat(FloatToBf16(want));
      if (dtype == DType::kF16) want = HalfToFloat(FloatToHalf(want));
      ASSERT_EQ(read[i], want) << i;
    }
    // Once more, as it is: the same file.
    ASSERT_TRUE(WriteWeights(path + "2", file->content().tensors, std::nullopt).ok());
    EXPECT_EQ(ReadFile(path, 1 << 24).value(), ReadFile(path + "2", 1 << 24).value());
  }
  const auto error = [&](float bad, DType dtype) {
    values[300'000] = bad;
    const Status written = WriteWeights(path + "3", tensors, dtype);
    EXPECT_FALSE(std::filesystem::exists(path + "3")) << "nothing is left behind";
    EXPECT_FALSE(std::filesystem::exists(path + "3.tmp"));
    return written.ok() ? "ok" : written.error().message;
  };
  EXPECT_EQ(error(70000.0F, DType::kF16),
            "tensor 'a' is 70000 at element 300000, too large for F16");
  EXPECT_EQ(error(std::numeric_limits<float>::infinity(), DType::kF32),
            "tensor 'a' has a value that is not finite at element 300000");
}

}  // namespace
}  // namespace loom::tensor
