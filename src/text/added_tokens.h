// Tokens that are found in a text before anything else cuts it: special ones and words that a user
// added, with the flags that say where they count.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace loom::text {

struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  bool special = false;      ///< left out when text is decoded for people
  bool single_word = false;  ///< only where no word character touches it
  bool lstrip = false;       ///< takes the whitespace before it
  bool rstrip = false;       ///< takes the whitespace behind it
  bool normalized = false;   ///< is looked for, by its normal form, in normalized text
};

/// A part of a text: an added token, or (id < 0) text to encode.
struct TextPart {
  std::int32_t id = -1;
  std::string_view text;
};

/// Finds tokens of a set in a text: of all that begin at a place the longest, left to right.
/// Immutable and safe to share between threads.
class AddedTokenMatcher {
 public:
  explicit AddedTokenMatcher(std::vector<AddedToken> tokens);
  AddedTokenMatcher() = default;

  bool empty() const { return nodes_.empty(); }
  /// Appends the parts of the text, none of them empty, that together cover it. Requires valid
  /// UTF-8.
  void Split(std::string_view text, std::vector<TextPart>& parts) const;

 private:
  struct Node {
    std::vector<std::pair<unsigned char, std::uint32_t>> next;  ///< ascending
    std::int32_t token = -1;
  };
  const Node* Step(const Node& node, unsigned char byte) const;
  /// The longest token that begins here; its end, or 0.
  std::size_t Longest(std::string_view text, std::size_t at, std::int32_t& token) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;  ///< a trie; empty without tokens
  bool first_[256] = {};     ///< bytes that a token begins with
};

/// From the value of `added_tokens`. Errors name the token.
Result<std::vector<AddedToken>> ReadAddedTokens(const json::Value* value, std::size_t max_id);

}  // namespace loom::text
