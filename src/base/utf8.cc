#include "base/utf8.h"

#include <fmt/format.h>

namespace loom {

namespace {

struct Lead {
  std::uint32_t size;
  unsigned char low, high;  // the range of the second byte
};

// Table 3-7 of the Unicode standard: well-formed byte sequences.
Lead LeadOf(unsigned char byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Step DecodeUtf8(std::string_view text, std::size_t offset) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[offset + i]); };
  const Lead lead = LeadOf(byte(0));
  if (lead.size == 0) return {0xFFFD, 1, false};
  if (lead.size == 1) return {byte(0), 1, true};
  char32_t code = byte(0) & (0x7FU >> lead.size);
  for (std::uint32_t i = 1; i < lead.size; ++i) {
    if (offset + i >= text.size()) return {0xFFFD, i, false};
    const unsigned char low = i == 1 ? lead.low : 0x80;
    const unsigned char high = i == 1 ? lead.high : 0xBF;
    if (byte(i) < low || byte(i) > high) return {0xFFFD, i, false};
    code = (code << 6) | (byte(i) & 0x3FU);
  }
  return {code, lead.size, true};
}

std::size_t FindInvalidUtf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    if (static_cast<unsigned char>(text[i]) < 0x80) {
      ++i;
      continue;
    }
    const Utf8Step step = DecodeUtf8(text, i);
    if (!step.valid) return i;
    i += step.size;
  }
  return std::string_view::npos;
}

std::uint64_t CountCodePoints(std::string_view text) {
  std::uint64_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80 ? 1 : 0;
  return count;
}

std::string ReplaceInvalidUtf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Step step = DecodeUtf8(text, i);
    if (step.valid) {
      out.append(text.substr(i, step.size));
    } else {
      out.append("\xEF\xBF\xBD");
    }
    i += step.size;
  }
  return out;
}

void AppendUtf8(char32_t code, std::string& out) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | (code >> 6));
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | (code >> 12));
    put(0x80 | ((code >> 6) & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | (code >> 18));
    put(0x80 | ((code >> 12) & 0x3F));
    put(0x80 | ((code >> 6) & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

std::string DescribeCodePoint(char32_t code) {
  const auto number = static_cast<std::uint32_t>(code);
  if (code < 0x20 || (code >= 0x7F && code < 0xA0)) return fmt::format("U+{:04X}", number);
  std::string shown;
  AppendUtf8(code, shown);
  return fmt::format("'{}' (U+{:04X})", shown, number);
}

}  // namespace loom
