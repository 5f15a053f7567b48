#include "data/chars_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <unordered_map>

#include "base/utf8.h"
#include "data/tokenizer_json.h"
#include "text/json_parts.h"

namespace loom::data {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

std::string Utf8(char32_t code) {
  std::string out;
  AppendUtf8(code, out);
  return out;
}

class CharsTokenizer final : public Tokenizer {
 public:
  explicit CharsTokenizer(std::vector<char32_t> characters) : characters_(std::move(characters)) {
    ids_.reserve(characters_.size());
    for (std::size_t i = 0; i < characters_.size(); ++i) {
      ids_.emplace(characters_[i], static_cast<std::int32_t>(i));
    }
  }

  TokenizerKind kind() const override { return TokenizerKind::kChars; }
  std::uint32_t vocab_size() const override {
    return static_cast<std::uint32_t>(characters_.size());
  }

  Result<std::vector<std::int32_t>> Encode(std::string_view text) const override {
    std::vector<std::int32_t> ids;
    ids.reserve(text.size());
    for (std::size_t i = 0; i < text.size();) {
      const Utf8Step step = DecodeUtf8(text, i);
      if (!step.valid) {
        return MakeError(Code::kInvalid, fmt::format("invalid UTF-8 at byte {}", i));
      }
      const auto at = ids_.find(step.code_point);
      if (at == ids_.end()) {
        return MakeError(
            Code::kInvalid,
            fmt::format("the character {} at byte {} is not among the {} of this vocabulary",
                        DescribeCodePoint(step.code_point), i, characters_.size()),
            "a `chars` tokenizer knows only the characters of its corpus; use tokenizer = "
            "\"bytes\" for any text");
      }
      ids.push_back(at->second);
      i += step.size;
    }
    return ids;
  }

  std::string Decode(std::span<const std::int32_t> ids) const override {
    std::string out;
    for (const std::int32_t id : ids) {
      if (id >= 0 && static_cast<std::size_t>(id) < characters_.size()) {
        AppendUtf8(characters_[static_cast<std::size_t>(id)], out);
      } else {
        out += kReplacement;
      }
    }
    return out;
  }

  std::string ToJson() const override {
    json::Object vocab;
    for (std::size_t i = 0; i < characters_.size(); ++i) {
      vocab.emplace_back(Utf8(characters_[i]), i);
    }
    return TokenizerJson(
        json::Object{{"type", "Split"},
                     {"pattern", json::Object{{"Regex", "[\\s\\S]"}}},
                     {"behavior", "Isolated"},
                     {"invert", false}},
        json::Object{{"type", "Fuse"}},
        // The unknown token is not in the vocabulary: an unseen character is an error there too.
        json::Object{{"type", "WordLevel"}, {"vocab", std::move(vocab)}, {"unk_token", "[UNK]"}});
  }

 private:
  std::vector<char32_t> characters_;  // by id, ascending
  std::unordered_map<char32_t, std::int32_t> ids_;
};

std::string TypeOf(const json::Value* value) {
  return value == nullptr ? std::string() : text::StringOf(*value, "type");
}

bool IsFalse(const json::Value* value) {
  return value != nullptr && value->AsBool() != nullptr && !*value->AsBool();
}

/// A template of the input alone, which Hugging Face's library adds when it saves a tokenizer.
bool AddsNothing(const json::Value& post_processor) {
  if (TypeOf(&post_processor) != "TemplateProcessing") return false;
  const json::Value* special = post_processor.Find("special_tokens");
  const json::Value* single = post_processor.Find("single");
  return special != nullptr && special->AsObject() != nullptr && special->AsObject()->empty() &&
         single != nullptr && single->AsArray() != nullptr && single->AsArray()->size() == 1 &&
         (*single->AsArray())[0].Find("Sequence") != nullptr;
}

/// Parts that a `chars` leaves empty and that would change ids if they were not.
Status CheckEmptyParts(const json::Value& root) {
  if (root.AsObject() == nullptr) return text::Refuse("not an object");
  for (const std::string_view key : {"truncation", "padding", "normalizer"}) {
    if (!text::IsNullOrMissing(root.Find(key))) {
      return text::Refuse(
          fmt::format("'{}' must be null, it is of type '{}'", key, TypeOf(root.Find(key))));
    }
  }
  const json::Value* added = root.Find("added_tokens");
  if (!text::IsNullOrMissing(added) &&
      (added->AsArray() == nullptr || !added->AsArray()->empty())) {
    return text::Refuse("added_tokens are not supported");
  }
  const json::Value* post = root.Find("post_processor");
  if (!text::IsNullOrMissing(post) && !AddsNothing(*post)) {
    return text::Refuse(fmt::format("post_processor '{}' is not supported", TypeOf(post)));
  }
  return {};
}

/// Single characters by id. The ids of the vocabulary must be 0 .. n-1.
Result<std::vector<char32_t>> ReadVocab(const json::Value& model) {
  const json::Value* vocab = model.Find("vocab");
  if (vocab == nullptr || vocab->AsObject() == nullptr || vocab->AsObject()->empty()) {
    return text::Refuse("the model has no vocab");
  }
  const std::size_t size = vocab->AsObject()->size();
  constexpr char32_t kUnset = 0xFFFFFFFF;
  std::vector<char32_t> characters(size, kUnset);
  for (const auto& [token, value] : *vocab->AsObject()) {
    const std::uint64_t* id = value.AsUnsigned();
    if (id == nullptr || *id >= size || characters[*id] != kUnset) {
      return text::Refuse(
          fmt::format("the ids of the vocab are not 0 to {}, each once (at token '{}')", size - 1,
                      token.substr(0, 40)));
    }
    const Utf8Step step = token.empty() ? Utf8Step{} : DecodeUtf8(token, 0);
    if (!step.valid || step.size != token.size()) {
      return text::Refuse(fmt::format("token '{}' is not a single character", token.substr(0, 40)));
    }
    characters[*id] = step.code_point;
  }
  return characters;
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> ReadChars(const json::Value& root) {
  LOOM_RETURN_IF_ERROR(CheckEmptyParts(root));
  const json::Value& model = *root.Find("model");
  const json::Value* pre = root.Find("pre_tokenizer");
  const json::Value* pattern = pre == nullptr ? nullptr : pre->Find("pattern");
  const json::Value* regex = pattern == nullptr ? nullptr : pattern->Find("Regex");
  const json::Value* behavior = pre == nullptr ? nullptr : pre->Find("behavior");
  if (TypeOf(pre) != "Split" || regex == nullptr || regex->AsString() == nullptr ||
      *regex->AsString() != "[\\s\\S]" || behavior == nullptr || behavior->AsString() == nullptr ||
      *behavior->AsString() != "Isolated" || !IsFalse(pre->Find("invert"))) {
    return text::Refuse(
        "WordLevel is supported with the pre_tokenizer Split [\\s\\S] Isolated alone");
  }
  if (TypeOf(root.Find("decoder")) != "Fuse")
    return text::Refuse("WordLevel needs the decoder Fuse");
  LOOM_ASSIGN(const auto characters, ReadVocab(model));
  return Tokenizer::FromCharacters(characters);
}

Result<std::unique_ptr<Tokenizer>> Tokenizer::TrainChars(std::span<const std::string_view> texts) {
  std::set<char32_t> characters;
  for (const std::string_view text : texts) {
    for (std::size_t i = 0; i < text.size();) {
      const Utf8Step step = DecodeUtf8(text, i);
      if (!step.valid) {
        return MakeError(Code::kInvalid, fmt::format("invalid UTF-8 at byte {}", i));
      }
      characters.insert(step.code_point);
      i += step.size;
    }
  }
  return FromCharacters(std::vector<char32_t>(characters.begin(), characters.end()));
}

Result<std::unique_ptr<Tokenizer>> Tokenizer::FromCharacters(std::span<const char32_t> characters) {
  if (characters.empty()) return MakeError(Code::kInvalid, "a vocabulary without characters");
  if (characters.size() > kMaxVocab) {
    return MakeError(Code::kLimit, fmt::format("a vocabulary of {} characters", characters.size()));
  }
  for (std::size_t i = 1; i < characters.size(); ++i) {
    if (characters[i - 1] >= characters[i]) {
      return MakeError(Code::kInvalid, fmt::format("the characters of the vocabulary do not ascend "
                                                   "at id {}",
                                                   i));
    }
  }
  return std::unique_ptr<Tokenizer>(
      std::make_unique<CharsTokenizer>(std::vector(characters.begin(), characters.end())));
}

}  // namespace loom::data
