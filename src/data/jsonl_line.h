// One line of a jsonl corpus: which shape it has, and the text that it makes. Shapes are told by
// their keys; keys of no meaning here are allowed and ignored.
//
//   {"text": "..."}                                  a loss on all of it
//   {"prompt": "...", "completion": "..."}           a loss on the completion
//   {"messages": [{"role": "...", "content": "..."}]}  a loss on the assistant's turns
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/result.h"
#include "data/chat.h"
#include "data/corpus.h"
#include "data/marked_text.h"

namespace loom::data {

enum class Shape : std::uint8_t { kText, kCompletion, kMessages };
/// "text", "prompt and completion", "messages".
std::string_view ShapeName(Shape shape);

struct LineRules {
  /// For messages; without one they are an error that says how to name it.
  std::optional<ChatTemplate> chat;
  bool loss_on_all = false;  ///< also on prompts and on what others than the assistant say
};

struct JsonlLine {
  Shape shape = Shape::kText;
  MarkedText marked;  ///< not empty
};

inline constexpr std::size_t kMaxTurns = 16384;

/// What is wrong with the line becomes the error's message, and its kind `fault`.
Result<JsonlLine> ParseJsonlLine(std::string_view line, const LineRules& rules, Fault& fault);

}  // namespace loom::data
