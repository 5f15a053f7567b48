#include "data/tokenizer.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace loom::data {
namespace {

std::unique_ptr<Tokenizer> Chars(std::string_view text) {
  const std::vector<std::string_view> texts{text};
  auto made = Tokenizer::TrainChars(texts);
  EXPECT_TRUE(made.ok());
  return std::move(made).value();
}

TEST(Tokenizer, BytesAreTheirOwnIds) {
  const auto t = Tokenizer::Bytes();
  const std::string text = "a\xC3\xA9\xFF\n";
  const auto ids = t->Encode(text);
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(*ids, (std::vector<std::int32_t>{97, 0xC3, 0xA9, 0xFF, 10}));
  EXPECT_EQ(t->Decode(*ids), text);
  EXPECT_EQ(t->vocab_size(), 256U);
  EXPECT_EQ(t->Decode(std::vector<std::int32_t>{256, -1}), "\uFFFD\uFFFD");
}

TEST(Tokenizer, CharsAreInCodePointOrder) {
  const auto t = Chars("hello\n wörld 漢😀");
  const auto ids = t->Encode("\n dehlorwö漢😀");
  ASSERT_TRUE(ids.ok()) << ids.error().ToString();
  std::vector<std::int32_t> ascending(t->vocab_size());
  for (std::size_t i = 0; i < ascending.size(); ++i) ascending[i] = static_cast<std::int32_t>(i);
  EXPECT_EQ(*ids, ascending);
  EXPECT_EQ(t->Decode(*ids), "\n dehlorwö漢😀");
}

TEST(Tokenizer, UnknownCharacterIsNamedWithItsOffset) {
  const auto t = Chars("abé");
  const auto ids = t->Encode("aéß");
  ASSERT_FALSE(ids.ok());
  EXPECT_NE(ids.error().message.find("'ß' (U+00DF) at byte 3"), std::string::npos)
      << ids.error().message;
  EXPECT_FALSE(ids.error().hint.empty());
  EXPECT_NE(t->Encode("a\xC3").error().message.find("invalid UTF-8 at byte 1"), std::string::npos);
}

TEST(Tokenizer, EmptyCorpusHasNoVocabulary) {
  EXPECT_FALSE(Tokenizer::TrainChars({}).ok());
  const std::vector<std::string_view> bad{"ok", "\xFF"};
  EXPECT_FALSE(Tokenizer::TrainChars(bad).ok());
}

TEST(Tokenizer, JsonRoundTrip) {
  for (const auto* text : {"", "quote\" back\\slash \x01 \u2029 é 😀 \u00AD"}) {
    const auto t = *text == '\0' ? Tokenizer::Bytes() : Chars(text);
    auto back = Tokenizer::FromJson(AsBytes(t->ToJson()));
    ASSERT_TRUE(back.ok()) << back.error().ToString();
    EXPECT_EQ((*back)->kind(), t->kind());
    EXPECT_EQ((*back)->ToJson(), t->ToJson());
    EXPECT_EQ(*(*back)->Encode(text), *t->Encode(text));
  }
}

TEST(Tokenizer, AcceptsTheTrivialTemplateThatHuggingFaceAdds) {
  std::string text = Tokenizer::Bytes()->ToJson();
  const std::string from = "\"post_processor\": null";
  text.replace(text.find(from), from.size(),
               R"("post_processor": {"type":"TemplateProcessing",)"
               R"("single":[{"Sequence":{"id":"A","type_id":0}}],"pair":[],"special_tokens":{}})");
  EXPECT_TRUE(Tokenizer::FromJson(AsBytes(text)).ok());
}

TEST(Tokenizer, RefusesByNameWhatWouldChangeIds) {
  struct Case {
    const char *from, *to, *named;
  };
  const auto expect = [](const std::string& json, const Case& c) {
    std::string text = json;
    ASSERT_NE(text.find(c.from), std::string::npos) << c.from;
    text.replace(text.find(c.from), std::string_view(c.from).size(), c.to);
    const auto t = Tokenizer::FromJson(AsBytes(text));
    ASSERT_FALSE(t.ok()) << c.to;
    EXPECT_NE(t.error().message.find(c.named), std::string::npos) << t.error().message;
  };
  const std::string bytes = Tokenizer::Bytes()->ToJson();
  const std::string chars = Chars("ab")->ToJson();
  for (const Case& c :
       {Case{"\"normalizer\": null", R"("normalizer": {"type": "NFKC"})", "NFKC"},
        Case{"\"added_tokens\": []", "\"added_tokens\": [{}]", "added token"},
        Case{"\"merges\": []", "\"merges\": [\"a b\"]", "merge 0"},
        Case{"\"merges\": []", "\"merges\": [\"a bb\"]", "'bb'"},
        Case{"\"dropout\": null", "\"dropout\": 0.5", "dropout"},
        Case{"\"!\": 33", "\"!\": 34", "twice"}, Case{"\"BPE\"", "\"Unigram\"", "Unigram"}}) {
    expect(bytes, c);
  }
  for (const Case& c :
       {Case{"[\\\\s\\\\S]", ".", "Split"}, Case{"\"Fuse\"", "\"Metaspace\"", "Fuse"},
        Case{"\"b\": 1", "\"b\": 2", "ids of the vocab"},
        Case{"\"b\": 1", "\"a\": 1", "duplicate key"}}) {
    expect(chars, c);
  }
  EXPECT_FALSE(Tokenizer::FromJson(AsBytes("[]")).ok());
  EXPECT_FALSE(Tokenizer::FromJson(AsBytes("{}")).ok());
  EXPECT_FALSE(Tokenizer::FromJson(AsBytes("")).ok());
}

}  // namespace
}  // namespace loom::data
