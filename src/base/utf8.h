// UTF-8 at the edges: where text stops being valid, where its characters start, and how to show
// text that is not. Validity is Unicode's: no surrogates, nothing overlong, nothing past U+10FFFF.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace loom {

/// One decoded step: `size` bytes make the code point, or, when `valid` is false, the longest
/// prefix that no valid character starts with (at least 1 byte).
struct Utf8Step {
  char32_t code_point = 0;
  std::uint32_t size = 0;
  bool valid = false;
};
/// Requires: offset < text.size().
Utf8Step DecodeUtf8(std::string_view text, std::size_t offset);

/// Offset of the first byte that breaks UTF-8, or npos.
std::size_t FindInvalidUtf8(std::string_view text);

/// The number of characters (code points). Requires valid UTF-8.
std::uint64_t CountCodePoints(std::string_view text);

/// Every invalid run becomes one U+FFFD, as Rust's from_utf8_lossy (and so Hugging Face) does it.
std::string ReplaceInvalidUtf8(std::string_view text);

void AppendUtf8(char32_t code_point, std::string& out);

/// "'x' (U+0078)", or only the number for characters that do not print.
std::string DescribeCodePoint(char32_t code_point);

}  // namespace loom
