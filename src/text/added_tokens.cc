#include "text/added_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "text/json_parts.h"
#include "text/unicode.h"

namespace loom::text {

AddedTokenMatcher::AddedTokenMatcher(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  if (tokens_.empty()) return;
  nodes_.emplace_back();
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    std::uint32_t at = 0;
    if (tokens_[i].content.empty()) continue;
    first_[static_cast<unsigned char>(tokens_[i].content[0])] = true;
    for (const char c : tokens_[i].content) {
      const auto byte = static_cast<unsigned char>(c);
      auto& next = nodes_[at].next;
      auto found = std::lower_bound(next.begin(), next.end(), std::pair(byte, std::uint32_t{0}));
      if (found == next.end() || found->first != byte) {
        const auto made = static_cast<std::uint32_t>(nodes_.size());
        next.insert(found, {byte, made});
        nodes_.emplace_back();
        at = made;
      } else {
        at = found->second;
      }
    }
    if (nodes_[at].token < 0) nodes_[at].token = static_cast<std::int32_t>(i);
  }
}

const AddedTokenMatcher::Node* AddedTokenMatcher::Step(const Node& node, unsigned char byte) const {
  const auto found =
      std::lower_bound(node.next.begin(), node.next.end(), std::pair(byte, std::uint32_t{0}));
  return found == node.next.end() || found->first != byte ? nullptr : &nodes_[found->second];
}

std::size_t AddedTokenMatcher::Longest(std::string_view text, std::size_t at,
                                       std::int32_t& token) const {
  std::size_t end = 0;
  const Node* node = nodes_.data();
  for (std::size_t i = at; i < text.size(); ++i) {
    node = Step(*node, static_cast<unsigned char>(text[i]));
    if (node == nullptr) break;
    if (node->token >= 0) {
      token = node->token;
      end = i + 1;
    }
  }
  return end;
}

void AddedTokenMatcher::Split(std::string_view text, std::vector<TextPart>& parts) const {
  std::size_t done = 0;  // everything before it is in parts
  for (std::size_t at = 0; !nodes_.empty() && at < text.size();) {
    std::int32_t found = -1;
    std::size_t stop = first_[static_cast<unsigned char>(text[at])] ? Longest(text, at, found) : 0;
    if (stop == 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<std::size_t>(found)];
    std::size_t start = at;
    at = stop;
    if (token.single_word &&
        (EndsWithWord(text.substr(0, start)) || StartsWithWord(text.substr(stop)))) {
      continue;
    }
    if (token.lstrip) start = std::max(TrailingWhitespace(text.substr(0, start)), done);
    if (token.rstrip) stop += LeadingWhitespace(text.substr(stop));
    start = std::max(start, done);  // whitespace that the token before took
    if (start > done) parts.push_back({-1, text.substr(done, start - done)});
    parts.push_back({token.id, text.substr(start, stop - start)});
    done = stop;
  }
  if (done < text.size()) parts.push_back({-1, text.substr(done)});
}

Result<std::vector<AddedToken>> ReadAddedTokens(const json::Value* value, std::size_t max_id) {
  std::vector<AddedToken> tokens;
  if (IsNullOrMissing(value)) return tokens;
  if (value->AsArray() == nullptr) return Refuse("added_tokens is not a list");
  std::set<std::int32_t> ids;
  tokens.reserve(value->AsArray()->size());
  for (const json::Value& one : *value->AsArray()) {
    LOOM_RETURN_IF_ERROR(
        CheckKeys(one, "an added token",
                  {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"}));
    AddedToken token;
    token.content = StringOf(one, "content");
    const json::Value* id = one.Find("id");
    if (token.content.empty() || id == nullptr || id->AsUnsigned() == nullptr ||
        *id->AsUnsigned() > max_id) {
      return Refuse(fmt::format("added token '{}' has no content, or no id up to {}",
                                token.content.substr(0, 40), max_id));
    }
    token.id = static_cast<std::int32_t>(*id->AsUnsigned());
    if (!ids.insert(token.id).second) {
      return Refuse(fmt::format("two added tokens have the id {}", token.id));
    }
    LOOM_ASSIGN(token.special, BoolOf(one, "special", false));
    LOOM_ASSIGN(token.single_word, BoolOf(one, "single_word", false));
    LOOM_ASSIGN(token.lstrip, BoolOf(one, "lstrip", false));
    LOOM_ASSIGN(token.rstrip, BoolOf(one, "rstrip", false));
    LOOM_ASSIGN(token.normalized, BoolOf(one, "normalized", !token.special));
    tokens.push_back(std::move(token));
  }
  return tokens;
}

}  // namespace loom::text
