// What a verb prints: NDJSON or one object on stdout with --json, sentences for people otherwise.
// Long work shows one progress line that is redrawn on a terminal, and a plain line in a pipe.
#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>

#include "base/human.h"
#include "base/json.h"
#include "base/time.h"

namespace loom::app {

/// Not thread-safe: the main thread prints.
class Output {
 public:
  explicit Output(bool json) : json_(json) {}
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  ~Output() { EndProgress(); }

  bool json() const { return json_; }
  /// One line of JSON on stdout, flushed; nothing without --json.
  void Event(const json::Object& object);
  /// A sentence for people: on stdout, or on stderr when stdout is for JSON.
  template <class... Args>
  void Say(fmt::format_string<Args...> format, Args&&... args) {
    SayLine(fmt::format(format, std::forward<Args>(args)...));
  }
  void SayLine(std::string_view text);
  /// A line that the next one replaces; in a pipe at most one every few seconds is printed.
  void Progress(std::string_view text);

 private:
  void EndProgress();

  bool json_;
  bool progress_shown_ = false;
  Time last_progress_{};
};

/// Valid UTF-8 whatever the tokenizer gave, control characters other than line ends and tabs
/// removed.
std::string Printable(std::string_view text);

}  // namespace loom::app
