#include "wire/bytes_io.h"

#include <gtest/gtest.h>

namespace loom::wire {
namespace {

TEST(BytesIo, RoundTrip) {
  Writer w;
  w.Int<std::uint16_t>(0x1234);
  w.Bool(true);
  w.F32(1.5F);
  w.F64(-0.25);
  w.Text("loom");
  w.Count(2);
  w.Raw(AsBytes("ab"));
  Reader r(w.bytes());
  EXPECT_EQ(r.Int<std::uint16_t>(), 0x1234);
  EXPECT_TRUE(r.Bool());
  EXPECT_EQ(r.F32(), 1.5F);
  EXPECT_EQ(r.F64(), -0.25);
  EXPECT_EQ(r.Text(10), "loom");
  EXPECT_EQ(r.Count(10, 1), 2U);
  EXPECT_EQ(AsText(r.Raw(2)), "ab");
  EXPECT_TRUE(r.Finish("test").ok());
}

TEST(BytesIo, RefusesBeforeAllocating) {
  Writer w;
  w.Int<std::uint32_t>(0xffffffff);
  for (int kind = 0; kind < 2; ++kind) {
    Reader r(w.bytes());
    if (kind == 0) {
      EXPECT_TRUE(r.Var(1 << 20).empty());
    } else {
      EXPECT_EQ(r.Count(UINT32_MAX, 1), 0U);
    }
    EXPECT_FALSE(r.ok());
    EXPECT_EQ(r.Int<std::uint64_t>(), 0U);
    EXPECT_EQ(r.Finish("frame").error().code, Code::kCorrupt);
  }
}

TEST(BytesIo, LeftOverBytesAreAnError) {
  Writer w;
  w.Int<std::uint32_t>(1);
  Reader r(w.bytes());
  r.Int<std::uint16_t>();
  EXPECT_FALSE(r.Finish("message").ok());
}

}  // namespace
}  // namespace loom::wire
