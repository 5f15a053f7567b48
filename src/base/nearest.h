// "Did you mean ...?": the known word closest to a mistyped one.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace loom {

/// The known word with the least edit distance (insert, delete, replace, swap of neighbours), or ""
/// when even that one differs in more than half of its letters. Ties go to the earlier word.
std::string_view Nearest(std::string_view word, std::span<const std::string_view> known);

}  // namespace loom
