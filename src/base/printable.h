// Text of strangers and files made fit to be shown: valid UTF-8 without control characters, which
// could move a terminal's cursor or forge a line of a log. What is not becomes a '?'.
#pragma once

#include <string>
#include <string_view>

namespace loom {

/// Line feeds stay.
std::string Printable(std::string text);
/// One line, and at most max_bytes of it.
std::string OneLine(std::string_view text, std::size_t max_bytes = 512);

}  // namespace loom
