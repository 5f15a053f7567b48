#include <gtest/gtest.h>

#include "base/json.h"
#include "base/utf8.h"
#include "text/added_tokens.h"
#include "text/byte_symbols.h"
#include "text/pre_tokenizer.h"
#include "text/split_pattern.h"
#include "text/unicode.h"

namespace loom::text {
namespace {

using Pieces = std::vector<std::string>;

Pieces Split(std::string_view json, std::string_view text) {
  auto pre = PreTokenizer::FromJson(*json::Parse(json));
  EXPECT_TRUE(pre.ok()) << pre.error().ToString();
  std::deque<std::string> made;
  std::vector<std::string_view> pieces;
  EXPECT_TRUE(pre->Split(text, made, pieces).ok());
  return {pieces.begin(), pieces.end()};
}

std::string Steps(std::string_view steps) {
  return R"({"type": "Sequence", "pretokenizers": [)" + std::string(steps) +
         R"(, {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]})";
}

TEST(SplitPattern, Gpt2SplitsWordsNumbersAndSpaces) {
  constexpr std::string_view kPlain = R"({"type": "ByteLevel", "add_prefix_space": false})";
  EXPECT_EQ(Split(kPlain, "I'll go  to x1!\n\n y"),
            (Pieces{"I", "'ll", " go", " ", " to", " x", "1", "!", "\n\n", " y"}));
  EXPECT_EQ(Split(kPlain, ""), Pieces{});
  EXPECT_EQ(Split(R"({"type": "ByteLevel", "add_prefix_space": true})", "a b"),
            (Pieces{" a", " b"}));
  EXPECT_EQ(Split(R"({"type": "ByteLevel", "add_prefix_space": true})", " a"), (Pieces{" a"}));
}

TEST(SplitPattern, UnicodeIsOfVersion16WhateverIsInstalled) {
  constexpr std::string_view kLetters =
      R"({"type": "Split", "pattern": {"Regex": "\\p{L}+"}, "behavior": "Isolated"})";
  // U+10D50 is a letter since 16.0, U+180E no space since 6.3, U+0085 is one.
  EXPECT_EQ(Split(Steps(kLetters), "a\xF0\x90\xB5\x90-b"), (Pieces{"a\xF0\x90\xB5\x90", "-", "b"}));
  constexpr std::string_view kSpaces =
      R"({"type": "Split", "pattern": {"Regex": "\\s"}, "behavior": "Isolated"})";
  EXPECT_EQ(Split(Steps(kSpaces), "a\xE1\xA0\x8E\xC2\x85z"),
            (Pieces{"a\xE1\xA0\x8E", "\xC2\x85", "z"}));
}

TEST(SplitPattern, RefusesWhatPcreMeansOtherwise) {
  for (const char* pattern :
       {"\\w+", "\\bx", "[a[b]]", "[a&&b]", "(?m:x)", "(?<n>x)", "a{2}+", "\\h", "\\p{Greek}",
        "\\p{^L}", "[\\S]", "[]a]", "(*UCP)a", "x\\", "[ab"}) {
    const auto made = SplitPattern::Translate(pattern);
    ASSERT_FALSE(made.ok()) << pattern;
    EXPECT_NE(made.error().message.find("at byte"), std::string::npos) << made.error().message;
  }
  EXPECT_FALSE(SplitPattern::Compile("(").ok());
  EXPECT_FALSE(SplitPattern::Compile(std::string(SplitPattern::kMaxPattern + 1, 'a')).ok());
  for (const std::string_view pattern : {kGpt2Pattern, kLlama3Pattern, kQwen2Pattern})
    EXPECT_TRUE(SplitPattern::Compile(pattern).ok());
}

TEST(PreTokenizer, BehavioursOfADelimiter) {
  const auto with = [](std::string_view behavior, bool invert = false) {
    return Split(
        Steps(R"({"type": "Split", "pattern": {"String": "-"}, "behavior": ")" +
              std::string(behavior) + R"(", "invert": )" + (invert ? "true" : "false") + "}"),
        "the-final--count");
  };
  EXPECT_EQ(with("Isolated"), (Pieces{"the", "-", "final", "-", "-", "count"}));
  EXPECT_EQ(with("Removed"), (Pieces{"the", "final", "count"}));
  EXPECT_EQ(with("MergedWithPrevious"), (Pieces{"the-", "final-", "-", "count"}));
  EXPECT_EQ(with("MergedWithNext"), (Pieces{"the", "-final", "-", "-count"}));
  EXPECT_EQ(with("Contiguous"), (Pieces{"the", "-", "final", "--", "count"}));
  EXPECT_EQ(with("Removed", true), (Pieces{"-", "-", "-"}));
}

TEST(PreTokenizer, DigitsAloneOrTogether) {
  EXPECT_EQ(Split(Steps(R"({"type": "Digits", "individual_digits": true})"), "a12b"),
            (Pieces{"a", "1", "2", "b"}));
  EXPECT_EQ(Split(Steps(R"({"type": "Digits", "individual_digits": false})"), "a12b"),
            (Pieces{"a", "12", "b"}));
  EXPECT_TRUE(IsNumeric(0x2167));   // VIII, category Nl
  EXPECT_TRUE(IsNumeric(0x11DE0));  // since Unicode 17
  EXPECT_FALSE(IsNumeric('x'));
}

TEST(Unicode, NfcIsOfVersion9) {
  EXPECT_EQ(*Nfc("e\xCC\x81"), "\xC3\xA9");
  EXPECT_EQ(*Nfc("plain"), "plain");
  EXPECT_EQ(*Nfc("q\xCC\x87\xCC\xA3"), "q\xCC\xA3\xCC\x87") << "marks in their order";
  // U+0EBA got its combining class after version 9: nothing moves across it.
  EXPECT_EQ(*Nfc("a\xCC\x87\xE0\xBA\xBA\xCC\xA3"), "\xC8\xA7\xE0\xBA\xBA\xCC\xA3");
}

AddedToken Token(std::int32_t id, const std::string& content) {
  AddedToken token;
  token.id = id;
  token.content = content;
  return token;
}

std::vector<std::pair<std::int32_t, std::string>> Parts(const std::vector<AddedToken>& tokens,
                                                        std::string_view text) {
  std::vector<TextPart> parts;
  AddedTokenMatcher(tokens).Split(text, parts);
  std::vector<std::pair<std::int32_t, std::string>> out;
  for (const TextPart& part : parts) out.emplace_back(part.id, part.text);
  return out;
}

TEST(AddedTokens, TheLongestFromTheLeftAndItsFlags) {
  using P = std::vector<std::pair<std::int32_t, std::string>>;
  EXPECT_EQ(Parts({Token(1, "<a>"), Token(2, "<a><b>")}, "x<a><b><a>"),
            (P{{-1, "x"}, {2, "<a><b>"}, {1, "<a>"}}));
  EXPECT_EQ(Parts({}, "x"), (P{{-1, "x"}}));
  EXPECT_EQ(Parts({Token(1, "<a>")}, ""), P{});
  AddedToken strip = Token(1, "<m>");
  strip.lstrip = strip.rstrip = true;
  EXPECT_EQ(Parts({strip}, "a  <m> \n<m>b"),
            (P{{-1, "a"}, {1, "  <m> \n"}, {1, "<m>"}, {-1, "b"}}));
  AddedToken word = Token(1, "cat");
  word.single_word = true;
  EXPECT_EQ(Parts({word}, "cat concat cat!"),
            (P{{1, "cat"}, {-1, " concat "}, {1, "cat"}, {-1, "!"}}));
}

TEST(ByteSymbols, AreOnePerByteAndComeBack) {
  std::string all;
  for (int b = 0; b < 256; ++b) all += static_cast<char>(b);
  const std::string symbols = ToByteSymbols(all);
  EXPECT_EQ(CountCodePoints(symbols), 256U);
  EXPECT_EQ(FromByteSymbols(symbols), all);
  EXPECT_EQ(ToByteSymbols(" "), "\xC4\xA0");
  EXPECT_EQ(FromByteSymbols("a b"), std::nullopt);
}

}  // namespace
}  // namespace loom::text
