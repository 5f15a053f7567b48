// The regular expressions that tokenizers split text by, as tokenizer.json writes them (Oniguruma's
// Ruby syntax) and matched by PCRE2, which stays inside split_pattern.cc. Where the two differ the
// pattern is translated; what cannot be is refused by name, never matched in another way.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace loom::text {

/// Immutable and safe to share between threads.
class SplitPattern {
 public:
  static constexpr std::size_t kMaxPattern = 4096;

  /// Error: too long, no valid pattern, or a part that would mean something else here.
  static Result<SplitPattern> Compile(std::string_view pattern);
  SplitPattern(SplitPattern&&) noexcept;
  SplitPattern& operator=(SplitPattern&&) noexcept;
  ~SplitPattern();

  /// Calls `found` with the begin and end of each match that is not empty, left to right, none
  /// overlapping. Requires valid UTF-8. Error: a match took more than the limit of steps.
  Status ForEach(std::string_view text,
                 const std::function<void(std::size_t, std::size_t)>& found) const;

  /// What PCRE2 is given for it.
  static Result<std::string> Translate(std::string_view pattern);

 private:
  struct State;
  explicit SplitPattern(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace loom::text
