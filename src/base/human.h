// Numbers as people read them, and file names as a shell takes them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace loom {

/// "1.2 MB", "930 B".
std::string HumanBytes(double bytes);
/// "12 s", "3 min 5 s", "2 h 10 min".
std::string HumanSeconds(double seconds);
/// "1,234,567".
std::string HumanCount(std::uint64_t count);
/// "1 peer", "2 peers"; `many` where no "s" makes it.
std::string Counted(std::uint64_t count, std::string_view one, std::string_view many = {});
/// One word for a POSIX shell: as it is where that is safe, else in single quotes.
std::string ShellWord(std::string_view text);

}  // namespace loom
