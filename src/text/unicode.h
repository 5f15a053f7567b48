// What tokenizers need of Unicode: canonical composition and a few classes of characters. utf8proc
// stays inside unicode.cc.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.h"

namespace loom::text {

/// Normalization form C of Unicode 9, as Hugging Face's library has it: younger marks stay where
/// they are. Requires valid UTF-8. Error: no memory.
Result<std::string> Nfc(std::string_view text);

bool IsWhitespace(char32_t c);     ///< the property White_Space, as `\s` of a split pattern
bool IsNumeric(char32_t c);        ///< general category N
bool IsWordCharacter(char32_t c);  ///< letters, marks, digits, connectors: `\w`

/// Where the whitespace at the end of the text begins, and where that at its start ends. Requires
/// valid UTF-8.
std::size_t TrailingWhitespace(std::string_view text);
std::size_t LeadingWhitespace(std::string_view text);
bool StartsWithWord(std::string_view text);
bool EndsWithWord(std::string_view text);

}  // namespace loom::text
