#include "base/printable.h"

#include <algorithm>

#include "base/utf8.h"

namespace loom {
namespace {

/// The character at `at`, or '?' when it is none or a control character that is not allowed.
std::string_view Shown(std::string_view text, std::size_t at, const Utf8Step& step, bool lines) {
  const char32_t c = step.code_point;
  const bool control = (c < 0x20 && !(lines && c == '\n')) || (c >= 0x7F && c < 0xA0);
  return !step.valid || control ? "?" : text.substr(at, step.size);
}

}  // namespace

std::string Printable(std::string text) {
  const bool plain =
      std::ranges::all_of(text, [](char c) { return (c >= ' ' && c <= '~') || c == '\n'; });
  if (plain) return text;
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Step step = DecodeUtf8(text, at);
    out += Shown(text, at, step, true);
    at += step.size;
  }
  return out;
}

std::string OneLine(std::string_view text, std::size_t max_bytes) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Step step = DecodeUtf8(text, at);
    const std::string_view shown = Shown(text, at, step, false);
    if (out.size() + shown.size() > max_bytes) break;
    out += shown;
    at += step.size;
  }
  return out;
}

}  // namespace loom
