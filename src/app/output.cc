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

void Output::Event(const json::Object& object) const {
  if (!json_) return;
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

std::string HumanBytes(double bytes) {
  static constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB"};
  std::size_t unit = 0;
  while (bytes >= 1000 && unit + 1 < std::size(kUnits)) {
    bytes /= 1000;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", bytes, kUnits[unit]);
}

std::string HumanSeconds(double seconds) {
  if (seconds < 1) return fmt::format("{:.2f} s", seconds);
  const auto whole = static_cast<std::uint64_t>(seconds + 0.5);
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
}

std::string HumanCount(std::uint64_t count) {
  const std::string digits = fmt::format("{}", count);
  std::string out;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
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
