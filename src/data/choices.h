// Multiple-choice questions, one a line of jsonl: {"query": "...", "choices": ["...", ...],
// "answer": INDEX}. A model answers with the choice that it gives the highest likelihood behind the
// query (Gao et al., lm-evaluation-harness); other keys are allowed and ignored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "data/tokenizer.h"

namespace loom::data {

struct Question {
  std::string query;                 ///< not empty
  std::vector<std::string> choices;  ///< 2 .. kMaxChoices, none empty
  std::size_t answer = 0;
};
inline constexpr std::size_t kMaxChoices = 64;

Result<Question> ParseQuestion(std::string_view line);

/// A query with one of its choices as tokens: targets are those from `first` on.
struct Continuation {
  std::vector<std::int32_t> ids;
  std::size_t first = 0;  ///< at least 1, below ids.size()
};
/// Both are encoded as one text; white space at the end of the query counts as the choice's, since
/// tokens begin with it. Error: text that the tokenizer cannot spell, or one that leaves no token
/// before or in the choice.
Result<Continuation> EncodeChoice(const Tokenizer& tokenizer, std::string_view query,
                                  std::string_view choice);

}  // namespace loom::data
