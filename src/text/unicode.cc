#include "text/unicode.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <memory>

#include "base/utf8.h"
#include "text/unicode_tables.h"

namespace loom::text {
namespace {

utf8proc_category_t CategoryOf(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

bool IsAscii(std::string_view text) {
  for (const char c : text) {
    if (static_cast<unsigned char>(c) >= 0x80) return false;
  }
  return true;
}

/// Start of the last character. Requires valid UTF-8, not empty.
std::size_t LastCharacter(std::string_view text) {
  std::size_t at = text.size() - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

template <std::size_t n>
bool IsIn(const CodePointRun (&runs)[n], char32_t c) {
  const auto* run = std::lower_bound(std::begin(runs), std::end(runs), c,
                                     [](const CodePointRun& r, char32_t x) { return r.last < x; });
  return run != std::end(runs) && run->first <= c;
}

/// "Lo" and so on; "Cn" for a character that is not among the new ones.
std::string_view NewCategory(char32_t c) {
  const auto* run = std::lower_bound(std::begin(kNewCharacters), std::end(kNewCharacters), c,
                                     [](const CategoryRun& r, char32_t x) { return r.last < x; });
  const bool in = run != std::end(kNewCharacters) && run->first <= c;
  return in ? std::string_view(run->category) : std::string_view("Cn");
}

Status Compose(std::string_view text, std::string& out) {
  if (IsAscii(text)) {
    out += text;
    return {};
  }
  utf8proc_uint8_t* raw = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &raw,
                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  if (size < 0) {
    return MakeError(Code::kInternal,
                     fmt::format("NFC of {} bytes: {}", text.size(), utf8proc_errmsg(size)));
  }
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owned(raw, &std::free);
  out.append(reinterpret_cast<const char*>(raw), static_cast<std::size_t>(size));
  return {};
}

}  // namespace

Result<std::string> Nfc(std::string_view text) {
  if (IsAscii(text)) return std::string(text);
  std::string out;
  out.reserve(text.size());
  std::size_t done = 0;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Step step = DecodeUtf8(text, at);
    if (step.code_point >= kNoNormalForm[0].first && IsIn(kNoNormalForm, step.code_point)) {
      LOOM_RETURN_IF_ERROR(Compose(text.substr(done, at - done), out));
      out += text.substr(at, step.size);
      done = at + step.size;
    }
    at += step.size;
  }
  LOOM_RETURN_IF_ERROR(Compose(text.substr(done), out));
  return out;
}

bool IsWhitespace(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool IsNumeric(char32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  const utf8proc_category_t category = CategoryOf(c);
  if (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO) return true;
  if (category != UTF8PROC_CATEGORY_CN) return false;
  return IsIn(kNewNumbers, c) || NewCategory(c)[0] == 'N';
}

bool IsWordCharacter(char32_t c) {
  const utf8proc_category_t category = CategoryOf(c);
  if (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NL)
    return true;  // L M Nd Nl
  if (category == UTF8PROC_CATEGORY_PC || c == 0x200C || c == 0x200D) return true;
  if (category == UTF8PROC_CATEGORY_CN) {
    const std::string_view now = NewCategory(c);
    return now[0] == 'L' || now[0] == 'M' || now == "Nd" || now == "Nl" || now == "Pc";
  }
  // Symbols that Unicode counts as alphabetic: letters in circles and squares.
  return (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
         (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
}

std::size_t TrailingWhitespace(std::string_view text) {
  std::size_t end = text.size();
  while (end > 0) {
    const std::size_t at = LastCharacter(text.substr(0, end));
    if (!IsWhitespace(DecodeUtf8(text, at).code_point)) break;
    end = at;
  }
  return end;
}

std::size_t LeadingWhitespace(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const Utf8Step step = DecodeUtf8(text, at);
    if (!IsWhitespace(step.code_point)) break;
    at += step.size;
  }
  return at;
}

bool StartsWithWord(std::string_view text) {
  return !text.empty() && IsWordCharacter(DecodeUtf8(text, 0).code_point);
}

bool EndsWithWord(std::string_view text) {
  return !text.empty() && IsWordCharacter(DecodeUtf8(text, LastCharacter(text)).code_point);
}

}  // namespace loom::text
