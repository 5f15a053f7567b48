// The TOML adapter keeps lines and order, turns parse errors into file:line, and quotes what it
// reads.
#include "base/toml.h"

#include <gtest/gtest.h>

#include "base/nearest.h"

namespace loom {
namespace {

TEST(Toml, KeepsKindsLinesAndOrder) {
  const auto table = ParseToml(
      "# c\nb = 1\na = \"x\"\n[t]\nf = 0.5\nlist = [1, 2]\non = true\nd = 2020-01-01\n", "f");
  ASSERT_TRUE(table.ok()) << table.error().ToString();
  ASSERT_EQ(table->size(), 3u);
  EXPECT_EQ((*table)[0].first, "b");
  EXPECT_EQ((*table)[0].second.line, 2u);
  EXPECT_EQ(std::get<std::int64_t>((*table)[0].second.value), 1);
  EXPECT_EQ(std::get<std::string>((*table)[1].second.value), "x");
  const TomlTable* inner = (*table)[2].second.AsTable();
  ASSERT_NE(inner, nullptr);
  EXPECT_EQ((*table)[2].second.line, 4u);
  ASSERT_EQ(inner->size(), 4u);
  EXPECT_DOUBLE_EQ(std::get<double>((*inner)[0].second.value), 0.5);
  EXPECT_EQ(std::get<TomlArray>((*inner)[1].second.value).size(), 2u);
  EXPECT_EQ((*inner)[3].second.KindName(), "a date or time");
  EXPECT_EQ((*inner)[3].second.line, 8u);
}

TEST(Toml, ErrorsNameFileAndLine) {
  const auto broken = ParseToml("a = 1\nb = \n", "run.toml");
  ASSERT_FALSE(broken.ok());
  EXPECT_NE(broken.error().message.find("run.toml:2"), std::string::npos) << broken.error().message;
  EXPECT_FALSE(ParseToml("a = 1\na = 2\n", "run.toml").ok()) << "a key twice";
  EXPECT_FALSE(ParseToml(std::string(kMaxTomlBytes + 1, '#'), "big").ok());
  EXPECT_FALSE(ParseToml(std::string(5000, '['), "deep").ok());
  std::string key = "a";
  for (int i = 0; i < 50000; ++i) key += ".a";
  for (const std::string& text : {"[" + key + "]\n", key + " = 1\n", "x = {" + key + " = 1}\n"}) {
    const auto deep = ParseToml(text, "deep");
    ASSERT_FALSE(deep.ok());
    EXPECT_EQ(deep.error().code, Code::kLimit);
  }
  EXPECT_TRUE(
      ParseToml("x = \"" + std::string(100, '.') + "\" # " + std::string(100, '.'), "dots"));
}

// Of four quotes the first belongs to the string; what follows is outside again.
TEST(Toml, QuotesBeforeTheClosingOnes) {
  std::string key = "b";
  for (int i = 0; i < 50000; ++i) key += ".b";
  for (const char* text : {"\"\"\"a\"\"\"\"", "'''a''''", "\"\"\"a\"\"\"\"\"", "'''a'''''"}) {
    EXPECT_TRUE(ParseToml(fmt::format("x = {}", text), "quotes")) << text;
    const auto deep = ParseToml(fmt::format("x = {{a = {}, {} = 1}}", text, key), "deep");
    ASSERT_FALSE(deep) << text;
    EXPECT_EQ(deep.error().code, Code::kLimit) << text;
  }
}

TEST(Toml, NonAsciiBelongsIntoQuotes) {
  for (const char* good : {"\xEF\xBB\xBFx = 'é~41'", "x = \"é~41\" # é", "x = \"\"\"\né~41\"\"\"",
                           "x = \"\\u00e9~41\""}) {
    const auto table = ParseToml(good, "good");
    ASSERT_TRUE(table) << good << table.error().ToString();
    EXPECT_EQ(std::get<std::string>((*table)[0].second.value), "é~41") << good;
  }
  const auto key = ParseToml("\"é\" = 1", "key");
  ASSERT_TRUE(key);
  EXPECT_EQ((*key)[0].first, "é");
  for (const char* bad : {"é = 1", "x = é", "x = [-\"é\"]", "t\xEF\xB3\xBF", "x = \"a\" é",
                          "x = 1\n\xC2\xA0y = 2", "x = \"\\u007E41\"", "x = \"\xFF\""}) {
    EXPECT_FALSE(ParseToml(bad, "bad")) << bad;
  }
}

TEST(Toml, QuoteRoundTrips) {
  const std::string nasty = "a\"b\\c\nd\te\x01\x7f é";
  const auto table = ParseToml("k = " + TomlQuote(nasty), "q");
  ASSERT_TRUE(table.ok()) << table.error().ToString();
  EXPECT_EQ(std::get<std::string>((*table)[0].second.value), nasty);
}

TEST(Nearest, FindsTypos) {
  const std::string_view known[] = {"warmup_tokens", "width", "weight_decay", "layers"};
  EXPECT_EQ(Nearest("widht", known), "width");
  EXPECT_EQ(Nearest("warmup_token", known), "warmup_tokens");
  EXPECT_EQ(Nearest("layer", known), "layers");
  EXPECT_EQ(Nearest("zzz", known), "");
  EXPECT_EQ(Nearest("x", {}), "");
}

}  // namespace
}  // namespace loom
