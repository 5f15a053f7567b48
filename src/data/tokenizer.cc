#include "data/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "base/utf8.h"
#include "data/chars_tokenizer.h"
#include "data/tokenizer_json.h"
#include "text/bpe_tokenizer.h"
#include "text/byte_symbols.h"
#include "text/json_parts.h"

namespace loom::data {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
constexpr std::size_t kMaxJsonValues = std::size_t{1} << 24;

class BytesTokenizer final : public Tokenizer {
 public:
  TokenizerKind kind() const override { return TokenizerKind::kBytes; }
  std::uint32_t vocab_size() const override { return 256; }

  Result<std::vector<std::int32_t>> Encode(std::string_view text) const override {
    std::vector<std::int32_t> ids(text.size());
    std::transform(text.begin(), text.end(), ids.begin(),
                   [](char c) { return static_cast<std::int32_t>(static_cast<unsigned char>(c)); });
    return ids;
  }

  std::string Decode(std::span<const std::int32_t> ids) const override {
    std::string out;
    out.reserve(ids.size());
    for (const std::int32_t id : ids) {
      if (id >= 0 && id < 256) {
        out.push_back(static_cast<char>(id));
      } else {
        out += kReplacement;
      }
    }
    return out;
  }

  std::string ToJson() const override {
    json::Object vocab;
    for (std::uint32_t b = 0; b < 256; ++b) {
      const char byte = static_cast<char>(b);
      vocab.emplace_back(text::ToByteSymbols({&byte, 1}), b);
    }
    return TokenizerJson(json::Object{{"type", "ByteLevel"},
                                      {"add_prefix_space", false},
                                      {"trim_offsets", true},
                                      {"use_regex", false}},
                         json::Object{{"type", "ByteLevel"},
                                      {"add_prefix_space", false},
                                      {"trim_offsets", true},
                                      {"use_regex", false}},
                         json::Object{{"type", "BPE"},
                                      {"dropout", nullptr},
                                      {"unk_token", nullptr},
                                      {"continuing_subword_prefix", nullptr},
                                      {"end_of_word_suffix", nullptr},
                                      {"fuse_unk", false},
                                      {"byte_fallback", false},
                                      {"ignore_merges", false},
                                      {"vocab", std::move(vocab)},
                                      {"merges", json::Array{}}});
  }
};

class BpeTokenizer final : public Tokenizer {
 public:
  BpeTokenizer(std::unique_ptr<text::BpeTokenizer> bpe, std::string json)
      : bpe_(std::move(bpe)), json_(std::move(json)) {}

  TokenizerKind kind() const override { return TokenizerKind::kBpe; }
  std::uint32_t vocab_size() const override { return bpe_->vocab_size(); }
  Result<std::vector<std::int32_t>> Encode(std::string_view text) const override {
    return EncodeAll(text, text::SpecialTokens::kNone);
  }
  Result<std::vector<std::int32_t>> EncodeWhole(std::string_view text) const override {
    return EncodeAll(text, text::SpecialTokens::kAdd);
  }
  std::string Decode(std::span<const std::int32_t> ids) const override { return bpe_->Decode(ids); }
  std::optional<std::int32_t> BeginId() const override { return bpe_->BeginId(); }
  std::optional<std::int32_t> SpecialId(std::string_view token) const override {
    for (const text::AddedToken& added : bpe_->added_tokens()) {
      if (added.special && added.content == token) return added.id;
    }
    return std::nullopt;
  }
  std::string ToJson() const override { return json_; }

 private:
  Result<std::vector<std::int32_t>> EncodeAll(std::string_view text,
                                              text::SpecialTokens special) const {
    text::Lost lost;
    LOOM_ASSIGN(std::vector<std::int32_t> ids, bpe_->Encode(text, special, &lost));
    if (lost.bytes == 0) return ids;
    return MakeError(Code::kInvalid,
                     fmt::format("{} bytes have no token in this vocabulary, the first is 0x{:02x}",
                                 lost.bytes, lost.first),
                     "remove them from the text: the tokenizer would leave them out silently");
  }

  std::unique_ptr<text::BpeTokenizer> bpe_;
  std::string json_;
};

}  // namespace

std::string TokenizerJson(json::Value pre_tokenizer, json::Value decoder, json::Value model) {
  return json::Dump(json::Object{{"version", "1.0"},
                                 {"truncation", nullptr},
                                 {"padding", nullptr},
                                 {"added_tokens", json::Array{}},
                                 {"normalizer", nullptr},
                                 {"pre_tokenizer", std::move(pre_tokenizer)},
                                 {"post_processor", nullptr},
                                 {"decoder", std::move(decoder)},
                                 {"model", std::move(model)}},
                    2) +
         "\n";
}

std::unique_ptr<Tokenizer> Tokenizer::Bytes() { return std::make_unique<BytesTokenizer>(); }

Result<std::unique_ptr<Tokenizer>> Tokenizer::FromJson(ByteView tokenizer_json) {
  auto root =
      json::Parse(AsText(tokenizer_json),
                  {.max_bytes = kMaxJsonBytes, .max_depth = 16, .max_values = kMaxJsonValues});
  if (!root) return std::move(root).error().Context("tokenizer.json");
  const json::Value* model = root->Find("model");
  const std::string type = model == nullptr ? "" : text::StringOf(*model, "type");
  if (type == "WordLevel") return ReadChars(*root);
  if (type != "BPE") {
    return text::Refuse(fmt::format("the model type '{}' is not supported", type.substr(0, 40)));
  }
  LOOM_ASSIGN(auto bpe, text::BpeTokenizer::FromJson(*root));
  if (bpe->IsBytes()) return Bytes();
  return std::unique_ptr<Tokenizer>(
      std::make_unique<BpeTokenizer>(std::move(bpe), std::string(AsText(tokenizer_json))));
}

std::string_view TokenizerKindName(TokenizerKind kind) {
  switch (kind) {
    case TokenizerKind::kBytes:
      return "bytes";
    case TokenizerKind::kChars:
      return "chars";
    case TokenizerKind::kBpe:
      return "bpe";
  }
  return "";
}

}  // namespace loom::data
