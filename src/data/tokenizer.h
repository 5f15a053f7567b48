// Text to token ids and back. Three kinds: `bytes` (one id per byte, 256 ids, any input), `chars`
// (one id per character of the training corpus, in code point order, as in nanoGPT), and `bpe`, the
// byte-level BPE of a published tokenizer.json (src/text). The first two are written as a
// tokenizer.json that gives the same ids in Hugging Face's library: bytes as byte-level BPE without
// merges, chars as WordLevel over single characters.
//
// There is no unknown token: a character that `chars` has not seen, or a byte that a `bpe` cannot
// spell, is an error that names it, in Loom and (as a missing [UNK]) for `chars` in Hugging Face's
// library.
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

namespace loom::data {

enum class TokenizerKind : std::uint8_t { kBytes, kChars, kBpe };

/// Immutable and safe to share between threads.
class Tokenizer {
 public:
  static constexpr std::size_t kMaxJsonBytes = 64 << 20;
  static constexpr std::size_t kMaxVocab = 0x110000;

  virtual ~Tokenizer() = default;

  static std::unique_ptr<Tokenizer> Bytes();
  /// A vocabulary of the distinct characters of the texts. Errors: no text, invalid UTF-8.
  static Result<std::unique_ptr<Tokenizer>> TrainChars(std::span<const std::string_view> texts);
  /// The same from a set of code points, ascending and distinct.
  static Result<std::unique_ptr<Tokenizer>> FromCharacters(std::span<const char32_t> characters);
  /// Reads a tokenizer.json: what ToJson wrote (by Loom, or saved again by Hugging Face's library),
  /// or a byte-level BPE. Refuses every part that would change ids and that Loom does not
  /// implement, by name.
  static Result<std::unique_ptr<Tokenizer>> FromJson(ByteView tokenizer_json);

  virtual TokenizerKind kind() const = 0;
  virtual std::uint32_t vocab_size() const = 0;
  /// The ids of the text alone.
  virtual Result<std::vector<std::int32_t>> Encode(std::string_view text) const = 0;
  /// With what the tokenizer puts around a whole text, such as a begin-of-text token.
  virtual Result<std::vector<std::int32_t>> EncodeWhole(std::string_view text) const {
    return Encode(text);
  }
  /// The bytes of the ids; not always valid UTF-8 for `bytes` (see ReplaceInvalidUtf8 in
  /// base/utf8.h for showing them). Ids outside the vocabulary give U+FFFD.
  virtual std::string Decode(std::span<const std::int32_t> ids) const = 0;
  /// The id of the token that a text begins with, where there is one.
  virtual std::optional<std::int32_t> BeginId() const { return std::nullopt; }
  /// The id of a special token by its spelling; none where it is none.
  virtual std::optional<std::int32_t> SpecialId(std::string_view) const { return std::nullopt; }
  /// tokenizer.json; the same bytes for the same tokenizer. Of a `bpe` the text that was read.
  virtual std::string ToJson() const = 0;
};

std::string_view TokenizerKindName(TokenizerKind kind);

}  // namespace loom::data
