#include "base/json.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/file.h"
#include "base/utf8.h"

namespace loom::json {
namespace {

Fault FaultOf(std::string_view text, const Limits& limits = {}) {
  Fault fault = Fault::kNone;
  const bool ok = Parse(text, limits, &fault).ok();
  EXPECT_EQ(ok, fault == Fault::kNone) << text.substr(0, 100);
  return fault;
}

TEST(Json, RoundTripKeepsOrderAndIntegers) {
  const std::string text =
      R"({"z": [1, -2, 18446744073709551615, 0.5, 1e-06, true, null], "a": {"k": "q\"\\\n\u0001é"}})";
  auto value = Parse(text);
  ASSERT_TRUE(value.ok()) << value.error().ToString();
  EXPECT_EQ(Dump(*value), text);
  EXPECT_EQ(*(*value->Find("z")->AsArray())[2].AsUnsigned(), UINT64_MAX);
  EXPECT_EQ(value->Find("b"), nullptr);
  EXPECT_EQ(Dump(Value(1.0)), "1.0");
  EXPECT_EQ(Dump(Value(Object{{"a", Array{}}, {"b", 2}}), 2), "{\n  \"a\": [],\n  \"b\": 2\n}");
}

TEST(Json, RefusesByReason) {
  EXPECT_EQ(FaultOf("{\"a\":1,\"a\":2}"), Fault::kDuplicateKey);
  EXPECT_EQ(FaultOf("{\"a\":{\"a\":2},\"b\":{\"a\":1}}"), Fault::kNone);
  EXPECT_EQ(FaultOf("{\"\\u0061\":1,\"a\":2}"), Fault::kDuplicateKey);
  EXPECT_EQ(FaultOf("[[[1]]]", {.max_depth = 2}), Fault::kTooDeep);
  EXPECT_EQ(FaultOf("[1,2,3]", {.max_values = 3}), Fault::kTooMany);
  EXPECT_EQ(FaultOf("[1,2,3]", {.max_bytes = 6}), Fault::kTooLarge);
  EXPECT_EQ(FaultOf("\"\xC3\""), Fault::kInvalidUtf8);
  for (const auto* bad : {"", "{", "[1,]", "1 2", "nul", "NaN", "'a'", "{\"a\":1}//c", "1e999",
                          "\xEF\xBB\xBF{}", "\"\\ud800\""}) {
    EXPECT_EQ(FaultOf(bad), Fault::kSyntax) << bad;
  }
  EXPECT_EQ(FaultOf(std::string(100000, '[')), Fault::kTooDeep);
}

TEST(Json, DumpRepairsText) {
  EXPECT_EQ(Dump(Value("a\xFF")), "\"a\xEF\xBF\xBD\"");
  EXPECT_EQ(Dump(Value(std::numeric_limits<double>::infinity())), "null");
}

TEST(Utf8, FindsTheFirstInvalidByte) {
  EXPECT_EQ(FindInvalidUtf8("aé漢😀"), std::string_view::npos);
  EXPECT_EQ(FindInvalidUtf8("a\x80"), 1U);
  EXPECT_EQ(FindInvalidUtf8("\xC0\xAF"), 0U);          // overlong
  EXPECT_EQ(FindInvalidUtf8("ab\xED\xA0\x80"), 2U);    // surrogate
  EXPECT_EQ(FindInvalidUtf8("\xF4\x90\x80\x80"), 0U);  // past U+10FFFF
  EXPECT_EQ(FindInvalidUtf8("ok\xE6\xBC"), 2U);        // cut short
  EXPECT_EQ(CountCodePoints("aé漢😀"), 4U);
}

TEST(Utf8, ReplacesMaximalSubparts) {
  // The example of the Unicode standard, section 3.9.
  EXPECT_EQ(ReplaceInvalidUtf8("\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64"),
            "a\uFFFD\uFFFD\uFFFDb\uFFFDc\uFFFD\uFFFDd");
  EXPECT_EQ(DescribeCodePoint(U'é'), "'é' (U+00E9)");
  EXPECT_EQ(DescribeCodePoint(U'\n'), "U+000A");
  for (const char32_t c : {U'a', U'é', U'漢', U'😀'}) {
    std::string text;
    AppendUtf8(c, text);
    const Utf8Step step = DecodeUtf8(text, 0);
    EXPECT_TRUE(step.valid && step.size == text.size() && step.code_point == c);
  }
}

TEST(File, AtomicWriteAndMap) {
  const std::string path = ::testing::TempDir() + "loom_file_test";
  ASSERT_TRUE(WriteFileAtomic(path, AsBytes("hello")).ok());
  ASSERT_TRUE(WriteFileAtomic(path, AsBytes("world!")).ok());
  auto map = MappedFile::Open(path);
  ASSERT_TRUE(map.ok());
  EXPECT_EQ(AsText(map->bytes()), "world!");
  EXPECT_EQ(*ReadFile(path, 6), "world!");
  EXPECT_EQ(ReadFile(path, 5).error().code, Code::kLimit);
  EXPECT_EQ(MappedFile::Open(path + ".no").error().code, Code::kNotFound);
  EXPECT_EQ(MappedFile::Open(::testing::TempDir()).error().code, Code::kInvalid);
  EXPECT_FALSE(WriteFileAtomic("/nonexistent-folder/x", AsBytes("a")).ok());
  ::remove(path.c_str());
}

}  // namespace
}  // namespace loom::json
