#include "wire/frame.h"

#include <gtest/gtest.h>

namespace loom::wire {
namespace {

TEST(Frame, RoundTrip) {
  const auto bytes = EncodeFrameHeader(0x1234, 0x8001, 0x0102030405060708, 1000);
  EXPECT_EQ(Hex(bytes), "f8030000341201800807060504030201");
  const auto header = DecodeFrameHeader(bytes, FrameCaps{1000, {}});
  ASSERT_TRUE(header.ok());
  EXPECT_EQ(*header, (FrameHeader{1016, 0x1234, 0x8001, 0x0102030405060708}));
  EXPECT_EQ(header->payload_size(), 1000U);
}

TEST(Frame, LengthsAreRefusedBeforeAllocation) {
  for (const std::uint32_t length : {0U, 1U, 15U, 0xffffffffU, 0x80000000U, 1017U}) {
    auto bytes = EncodeFrameHeader(20, 0, 0, 0);
    for (std::size_t i = 0; i < 4; ++i) bytes[i] = static_cast<std::byte>(length >> (8 * i));
    const auto header = DecodeFrameHeader(bytes, FrameCaps{1000, {}});
    ASSERT_FALSE(header.ok()) << length;
    EXPECT_NE(header.error().message.find("20"), std::string::npos);
    EXPECT_EQ(header.error().code, length < 16 ? Code::kCorrupt : Code::kLimit);
  }
}

TEST(Frame, CapsAreByType) {
  const FrameCaps caps{10, {{30, 100}, {31, 0}}};
  EXPECT_TRUE(DecodeFrameHeader(EncodeFrameHeader(30, 0, 0, 100), caps).ok());
  EXPECT_FALSE(DecodeFrameHeader(EncodeFrameHeader(29, 0, 0, 100), caps).ok());
  EXPECT_FALSE(DecodeFrameHeader(EncodeFrameHeader(31, 0, 0, 1), caps).ok());
}

TEST(Frame, AShortHeaderIsAnError) {
  const auto bytes = EncodeFrameHeader(20, 0, 0, 0);
  EXPECT_FALSE(DecodeFrameHeader(ByteView(bytes).first(15), FrameCaps{}).ok());
}

}  // namespace
}  // namespace loom::wire
