// A byte-level BPE tokenizer as a tokenizer.json describes it: added tokens, normalizer,
// pre-tokenizer, merges, post-processor and decoder, with the ids of Hugging Face's library.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "text/added_tokens.h"
#include "text/bpe_model.h"
#include "text/pre_tokenizer.h"

namespace loom::text {

enum class SpecialTokens : std::uint8_t {
  kAdd,   ///< also what the post-processor puts before and behind a text
  kNone,  ///< of the text alone; special tokens written in it count all the same
};
enum class ShowSpecial : std::uint8_t { kYes, kNo };

/// Immutable and safe to share between threads.
class BpeTokenizer {
 public:
  /// The parsed tokenizer.json. Refuses every part that would change ids and is not implemented, by
  /// name.
  static Result<std::unique_ptr<BpeTokenizer>> FromJson(const json::Value& root);

  /// Error: invalid UTF-8, with its byte. Bytes that the vocabulary cannot spell are left out, as
  /// in Hugging Face's library, and counted in `lost` when it is given.
  Result<std::vector<std::int32_t>> Encode(std::string_view text,
                                           SpecialTokens special = SpecialTokens::kAdd,
                                           Lost* lost = nullptr) const;
  /// The bytes of the ids, not always valid UTF-8; ids without a token give nothing.
  std::string Decode(std::span<const std::int32_t> ids, ShowSpecial show = ShowSpecial::kYes) const;

  /// One more than the largest id.
  std::uint32_t vocab_size() const { return vocab_size_; }
  /// kNone of Vocab when there is no token spelled so.
  std::int32_t IdOf(std::string_view token) const;
  /// What the post-processor puts first, else a special token of the usual spellings.
  std::optional<std::int32_t> BeginId() const;
  const BpeModel& model() const { return model_; }
  const std::vector<AddedToken>& added_tokens() const { return added_; }
  /// Whether every text comes back from its ids: no normalizer, and a symbol for every byte.
  bool lossless() const;
  /// Whether it only gives byte b the id b.
  bool IsBytes() const;

 private:
  BpeTokenizer(BpeModel model, PreTokenizer pre);
  Status ReadNormalizer(const json::Value* value);
  Status ReadPostProcessor(const json::Value* value);
  Status ReadTemplate(const json::Value& value);
  Status AddTokens(std::vector<AddedToken> tokens);
  Status EncodePart(std::string_view text, std::vector<std::int32_t>& ids, Lost& lost) const;

  BpeModel model_;
  PreTokenizer pre_;
  bool nfc_ = false;
  std::vector<AddedToken> added_;
  std::vector<std::int32_t> added_by_id_;  ///< index into added_, or -1
  AddedTokenMatcher raw_;                  ///< looks in the text as it is
  AddedTokenMatcher normalized_;
  std::vector<std::int32_t> before_;  ///< ids of the post-processor's template
  std::vector<std::int32_t> behind_;
  std::uint32_t vocab_size_ = 0;
};

}  // namespace loom::text
