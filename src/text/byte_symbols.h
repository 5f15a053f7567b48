// GPT-2's spelling of bytes in a byte-level vocabulary: printable ones as themselves, the others as
// characters from U+0100 on.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace loom::text {

/// The character that stands for each byte.
const std::array<char32_t, 256>& ByteSymbols();
std::string ToByteSymbols(std::string_view bytes);
/// The bytes that the characters stand for; none when one of them stands for no byte. Requires
/// valid UTF-8.
std::optional<std::string> FromByteSymbols(std::string_view symbols);

}  // namespace loom::text
