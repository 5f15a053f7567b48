// The version of the agreed arithmetic (rule R30). It stands in every record; any change to the
// bits that a kernel of agreed or codec produces raises it, and peers of two versions do not vote
// together.
#pragma once

#include <cstdint>

namespace loom::agreed {

inline constexpr std::uint32_t kArithmeticVersion = 1;

}  // namespace loom::agreed
