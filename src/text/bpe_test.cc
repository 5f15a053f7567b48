#include <gtest/gtest.h>

#include <map>
#include <random>

#include "base/json.h"
#include "text/bpe_model.h"
#include "text/bpe_tokenizer.h"
#include "text/bpe_trainer.h"
#include "text/byte_symbols.h"

namespace loom::text {
namespace {

using Ids = std::vector<std::int32_t>;

/// All 256 bytes, then the merges given as the bytes of their two sides.
BpeModel ModelOf(const std::vector<std::pair<std::string, std::string>>& merges,
                 BpeModel::Options options = {}) {
  Vocab vocab;
  for (std::int32_t b = 0; b < 256; ++b) {
    const char byte = static_cast<char>(b);
    vocab.Add({&byte, 1}, b);
  }
  std::vector<std::pair<std::int32_t, std::int32_t>> ranks;
  for (const auto& [left, right] : merges) {
    vocab.Add(left + right, static_cast<std::int32_t>(vocab.size()));
    ranks.emplace_back(vocab.Find(left), vocab.Find(right));
  }
  auto model = BpeModel::Make(std::move(vocab), std::move(ranks), options);
  EXPECT_TRUE(model.ok());
  return std::move(model).value();
}

Ids Encode(const BpeModel& model, std::string_view piece) {
  Ids ids;
  Lost lost;
  model.Encode(piece, ids, lost);
  return ids;
}

/// The definition itself: of all pairs the one of lowest rank, leftmost first.
Ids Slowly(const BpeModel& model, std::string_view piece) {
  std::map<std::pair<std::int32_t, std::int32_t>, std::size_t> rank_of;
  for (std::size_t r = 0; r < model.merges().size(); ++r) rank_of[model.merges()[r]] = r;
  Ids ids;
  for (const char c : piece) ids.push_back(model.vocab().Find({&c, 1}));
  for (;;) {
    std::size_t best = rank_of.size(), at = 0;
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto found = rank_of.find({ids[i], ids[i + 1]});
      if (found != rank_of.end() && found->second < best) {
        best = found->second;
        at = i;
      }
    }
    if (best == rank_of.size()) return ids;
    const std::string bytes = std::string(model.vocab().BytesOf(ids[at])) +
                              std::string(model.vocab().BytesOf(ids[at + 1]));
    ids[at] = model.vocab().Find(bytes);
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

TEST(BpeModel, MergesByRankAndFromTheLeft) {
  const BpeModel model = ModelOf({{"a", "a"}, {"a", "b"}, {"aa", "b"}});
  EXPECT_EQ(Encode(model, "aaa"), (Ids{256, 'a'}));
  EXPECT_EQ(Encode(model, "aab"), (Ids{258}));
  EXPECT_EQ(Encode(model, "ab"), (Ids{257}));
  EXPECT_EQ(Encode(model, "xyz"), (Ids{'x', 'y', 'z'}));
}

TEST(BpeModel, LongAndShortPiecesFollowTheDefinition) {
  const BpeModel model = ModelOf({{"a", "b"},
                                  {"b", "a"},
                                  {"c", "c"},
                                  {"ab", "ab"},
                                  {"a", "c"},
                                  {"cc", "cc"},
                                  {"ba", "cc"},
                                  {"abab", "a"},
                                  {"c", "ba"}});
  std::mt19937 random(7);
  for (int i = 0; i < 400; ++i) {
    std::string piece;
    for (std::size_t n = 1 + random() % 90; n > 0; --n) piece += "abc"[random() % 3];
    ASSERT_EQ(Encode(model, piece), Slowly(model, piece)) << piece;
  }
}

TEST(BpeModel, IgnoreMergesTakesAWholePieceAsItsToken) {
  Vocab vocab;
  for (const char c : {'a', 'b', 'c'}) vocab.Add({&c, 1}, c - 'a');
  vocab.Add("ab", 3);
  vocab.Add("abc", 4);  // no merge makes it from what "ab" leaves
  const std::vector<std::pair<std::int32_t, std::int32_t>> merges{{0, 1}};
  EXPECT_EQ(Encode(*BpeModel::Make(vocab, merges, {}), "abc"), (Ids{3, 2}));
  EXPECT_EQ(Encode(*BpeModel::Make(vocab, merges,
                                   {.ignore_merges = true, .unk = Vocab::kNone, .fuse_unk = false}),
                   "abc"),
            (Ids{4}));
}

TEST(BpeModel, BytesWithoutASymbolAreCountedOrUnknown) {
  Vocab vocab;
  vocab.Add("a", 0);
  vocab.Add("?", 1);
  Ids ids;
  Lost lost;
  BpeModel::Make(vocab, {}, {})->Encode("axxa", ids, lost);
  EXPECT_EQ(ids, (Ids{0, 0}));
  EXPECT_EQ(lost.bytes, 2U);
  EXPECT_EQ(lost.first, 'x');
  EXPECT_EQ(
      Encode(*BpeModel::Make(vocab, {}, {.ignore_merges = false, .unk = 1, .fuse_unk = false}),
             "axxa"),
      (Ids{0, 1, 1, 0}));
  EXPECT_EQ(Encode(*BpeModel::Make(vocab, {}, {.ignore_merges = false, .unk = 1, .fuse_unk = true}),
                   "axxa"),
            (Ids{0, 1, 0}));
}

Result<std::string> Train(const std::string& text, BpeTrainOptions options) {
  return TrainBpe(
      [&](const TakeText& take) -> Status {
        take(text);
        return {};
      },
      options);
}

BpeTrainOptions Small(std::uint32_t vocab, std::uint64_t least = 0) {
  BpeTrainOptions options;
  options.vocab_size = vocab;
  options.min_frequency = least;
  return options;
}

TEST(BpeTrainer, OfEqualPairsTheSmallerIdsComeFirst) {
  // "ab", "cd" and "ef" twice each: the symbols of a, c, e have ascending ids.
  const auto made = Train("ef\ncd\nab\nef\ncd\nab\n", Small(259));
  ASSERT_TRUE(made.ok()) << made.error().ToString();
  const auto root = json::Parse(*made);
  const json::Array& merges = *root->Find("model")->Find("merges")->AsArray();
  ASSERT_EQ(merges.size(), 3U);
  const char* const expected[] = {"a", "c", "e"};
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(*(*merges[i].AsArray())[0].AsString(), expected[i]);
}

TEST(BpeTrainer, StopsAtTheFrequencyAndTellsWhatIsWrong) {
  const auto rare = Train("ab\ncd\n", Small(300, 2));
  ASSERT_TRUE(rare.ok());
  EXPECT_TRUE(json::Parse(*rare)->Find("model")->Find("merges")->AsArray()->empty());
  EXPECT_NE(Train("ab", Small(255)).error().message.find("255"), std::string::npos);
  EXPECT_NE(Train("", Small(300)).error().message.find("no text"), std::string::npos);
  EXPECT_NE(Train("a\xff", Small(300)).error().message.find("byte 1"), std::string::npos);
  BpeTrainOptions twice = Small(300);
  twice.special_tokens = {"<s>", "<s>"};
  EXPECT_NE(Train("ab", twice).error().message.find("<s>"), std::string::npos);
}

TEST(BpeTrainer, SameFileWithAnyNumberOfThreads) {
  std::string text;
  std::mt19937 random(3);
  for (int i = 0; i < 3000; ++i) {
    text += std::string("abcdefgh").substr(random() % 5, 1 + random() % 3);
    if (random() % 4 == 0) text += random() % 2 == 0 ? " " : "\n";
  }
  const auto read = [&](const TakeText& take) -> Status {
    for (std::size_t at = 0; at < text.size(); at += 500) take(text.substr(at, 500));
    return {};
  };
  BpeTrainOptions options = Small(400);
  const auto one = TrainBpe(read, options);
  options.threads = 4;
  const auto four = TrainBpe(read, options);
  ASSERT_TRUE(one.ok() && four.ok());
  EXPECT_EQ(*one, *four);
}

class BpeTokenizerTest : public ::testing::Test {
 protected:
  /// A trained one with its parts replaced.
  static json::Value Parts(std::initializer_list<std::pair<const char*, const char*>> replaced) {
    BpeTrainOptions options = Small(280);
    options.special_tokens = {"<s>", "</s>"};
    json::Value root = *json::Parse(*Train("the cat sat on the mat\nthe hat\n", options));
    for (const auto& [key, value] : replaced) {
      for (auto& [name, member] : std::get<json::Object>(root.data)) {
        if (name == key) member = *json::Parse(value);
      }
    }
    return root;
  }
  static std::unique_ptr<BpeTokenizer> Make(
      std::initializer_list<std::pair<const char*, const char*>> replaced) {
    auto made = BpeTokenizer::FromJson(Parts(replaced));
    EXPECT_TRUE(made.ok()) << made.error().ToString();
    return made.ok() ? std::move(made).value() : nullptr;
  }
};

constexpr const char* kTemplate =
    R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}],
        "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]},
        "</s>": {"id": "</s>", "ids": [1], "tokens": ["</s>"]}}})";

TEST_F(BpeTokenizerTest, TemplateAndSpecialTokensInTheText) {
  const auto tokenizer = Make({{"post_processor", kTemplate}});
  ASSERT_NE(tokenizer, nullptr);
  const Ids alone = *tokenizer->Encode("the<s>", SpecialTokens::kNone);
  EXPECT_EQ(alone.back(), 0) << "a special token in the text counts";
  const Ids whole = *tokenizer->Encode("the", SpecialTokens::kAdd);
  EXPECT_EQ(whole.front(), 0);
  EXPECT_EQ(whole.back(), 1);
  EXPECT_EQ(tokenizer->Decode(whole), "<s>the</s>");
  EXPECT_EQ(tokenizer->Decode(whole, ShowSpecial::kNo), "the");
  EXPECT_EQ(tokenizer->Decode(Ids{-1, 99999}), "");
  EXPECT_FALSE(tokenizer->IsBytes());
  EXPECT_TRUE(tokenizer->lossless());
  std::string all;
  for (int c = 1; c < 128; ++c) all += static_cast<char>(c);
  EXPECT_EQ(tokenizer->Decode(*tokenizer->Encode(all, SpecialTokens::kNone)), all);
  EXPECT_NE(tokenizer->Encode("ab\xc3").error().message.find("byte 2"), std::string::npos);
}

TEST_F(BpeTokenizerTest, RefusesByNameWhatItDoesNotDo) {
  const std::pair<std::pair<const char*, const char*>, const char*> cases[] = {
      {{"normalizer", R"({"type": "Lowercase"})"}, "Lowercase"},
      {{"normalizer", R"({"type": "Sequence", "normalizers": [{"type": "NFD"}]})"}, "NFD"},
      {{"pre_tokenizer", "null"}, "pre_tokenizer"},
      {{"pre_tokenizer", R"({"type": "Metaspace"})"}, "Metaspace"},
      {{"pre_tokenizer", R"({"type": "Digits", "individual_digits": true})"}, "ByteLevel"},
      {{"pre_tokenizer", R"({"type": "ByteLevel", "strip_accents": true})"}, "strip_accents"},
      {{"pre_tokenizer",
        R"({"type": "Split", "pattern": {"Regex": "\\w+"}, "behavior": "Isolated"})"},
       "\\w"},
      {{"pre_tokenizer", R"({"type": "Split", "pattern": {"Regex": "a"}, "behavior": "Kept"})"},
       "Kept"},
      {{"decoder", "null"}, "decoder"},
      {{"decoder", R"({"type": "WordPiece"})"}, "WordPiece"},
      {{"post_processor", R"({"type": "BertProcessing"})"}, "BertProcessing"},
      {{"post_processor", R"({"type": "TemplateProcessing", "single": []})"}, "leaves out"},
      {{"truncation", R"({"max_length": 5})"}, "truncation"},
      {{"padding", R"({"length": 5})"}, "padding"},
      {{"added_tokens", R"([{"id": 0, "content": "other"}])"}, "other"},
      {{"added_tokens", R"([{"id": 0, "content": "<s>", "glue": true}])"}, "glue"},
      {{"model", R"({"type": "BPE", "byte_fallback": true, "vocab": {"a": 0}, "merges": []})"},
       "byte_fallback"},
      {{"model", R"({"type": "BPE", "end_of_word_suffix": "</w>", "vocab": {"a": 0},
                     "merges": []})"},
       "end_of_word_suffix"},
      {{"model", R"({"type": "BPE", "vocab": {"a": 0, "b": 0}, "merges": []})"}, "'b'"},
      {{"model", R"({"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]})"}, "'b'"},
      {{"model", R"({"type": "BPE", "vocab": {"a": 0}, "merges": ["a a a"]})"}, "merge 0"},
      {{"model", R"({"type": "BPE", "vocab": {"a": 0}, "merges": ["a a"]})"}, "merge 0"},
  };
  for (const auto& [part, named] : cases) {
    const auto made = BpeTokenizer::FromJson(Parts({part}));
    ASSERT_FALSE(made.ok()) << part.first << ": " << part.second;
    EXPECT_NE(made.error().message.find(named), std::string::npos) << made.error().message;
  }
}

}  // namespace
}  // namespace loom::text
