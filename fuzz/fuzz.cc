#include "fuzz/fuzz.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "base/utf8.h"

namespace loom::fuzz {
namespace {

constexpr std::size_t kLongestText = 16384;

bool accepted = false;

}  // namespace

void Expect(bool holds, std::string_view property, std::string_view details) {
  if (holds) return;
  fmt::print(stderr, "fuzz: broken property: {}{}{}\n", property, details.empty() ? "" : ": ",
             details);
  std::abort();
}

namespace {

void ExpectText(std::string_view text, std::string_view what, bool lines) {
  const bool control = std::ranges::any_of(text, [&](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte < 0x20 && !(lines && c == '\n')) || byte == 0x7F;
  });
  if (control || FindInvalidUtf8(text) != std::string::npos || text.size() > kLongestText) {
    fmt::print(stderr, "fuzz: {} is no text for people: '{}'\n", what,
               text.substr(0, kLongestText));
    std::abort();
  }
}

}  // namespace

void ExpectPrintable(std::string_view text, std::string_view what) {
  ExpectText(text, what, false);
}

void ExpectGoodError(const Error& error) {
  Expect(!error.message.empty(), "an error says something");
  ExpectText(error.ToString(), "an error", true);
}

void Accept() { accepted = true; }
bool Accepted() { return accepted; }
void ResetAccepted() { accepted = false; }

ByteView Input::Take(std::size_t n) {
  const ByteView out = left_.first(std::min(n, left_.size()));
  left_ = left_.subspan(out.size());
  return out;
}

}  // namespace loom::fuzz
