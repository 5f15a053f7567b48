// A text that knows which parts a loss is taken on: what a jsonl line of turns or of prompt and
// completion becomes.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace loom::data {

/// Consecutive bytes of a text with one fate.
struct Span {
  std::size_t size = 0;
  bool loss = true;     ///< its tokens are targets
  bool markup = false;  ///< written by a chat template, not by the author of the text

  bool operator==(const Span&) const = default;
};

struct MarkedText {
  std::string text;
  std::vector<Span> spans;  ///< cover the text, none empty

  void Add(std::string_view part, bool loss, bool markup) {
    if (part.empty()) return;
    text += part;
    if (!spans.empty() && spans.back().loss == loss && spans.back().markup == markup) {
      spans.back().size += part.size();
    } else {
      spans.push_back({part.size(), loss, markup});
    }
  }
};

/// Calls each(offset, size, loss) for the parts of a text of `size` bytes that have one fate, until
/// one fails; no spans: a loss on all. A tokenizer encodes each such part by itself, so that what
/// is trained on has the tokens that it has when a model writes it behind what was given.
template <class Each>
Status ForFates(std::span<const Span> spans, std::size_t size, const Each& each) {
  if (spans.empty()) return each(std::size_t{0}, size, true);
  std::size_t at = 0;
  for (std::size_t i = 0; i < spans.size();) {
    const bool loss = spans[i].loss;
    std::size_t n = 0;
    for (; i < spans.size() && spans[i].loss == loss; ++i) n += spans[i].size;
    LOOM_RETURN_IF_ERROR(each(at, n, loss));
    at += n;
  }
  return {};
}

}  // namespace loom::data
