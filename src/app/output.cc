// Lines on stdout and stderr; a terminal is told from a pipe by isatty.
#include "app/output.h"

#include <unistd.h>

#include <cstdio>

#include "app/print.h"
#include "base/utf8.h"

namespace loom::app {
namespace {

constexpr Duration kPipeInterval = 5s;

}  // namespace

void Output::Event(const json::Object& object) {
  if (!json_) return;
  EndProgress();
  Print(stdout, "{}\n", json::Dump(object));
  std::fflush(stdout);
}

void Output::EndProgress() {
  if (!progress_shown_) return;
  Print(stderr, "\r\x1b[K");
  progress_shown_ = false;
}

void Output::SayLine(std::string_view text) {
  EndProgress();
  std::FILE* stream = json_ ? stderr : stdout;
  Print(stream, "{}\n", text);
  std::fflush(stream);
}

void Output::Progress(std::string_view text) {
  if (isatty(STDERR_FILENO) != 0) {
    Print(stderr, "\r\x1b[K{}", text);
    std::fflush(stderr);
    progress_shown_ = true;
    return;
  }
  const Time now = SystemClock().Now();
  if (last_progress_ != Time{} && now - last_progress_ < kPipeInterval) return;
  last_progress_ = now;
  SayLine(text);
}

std::string Printable(std::string_view text) {
  std::string out;
  for (const char c : ReplaceInvalidUtf8(text)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 ? byte != 0x7f : c == '\n' || c == '\t') out += c;
  }
  return out;
}

}  // namespace loom::app
