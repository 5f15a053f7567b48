// Printing that cannot fail loudly: fmt::print throws when a terminal or a pipe is gone, and a peer
// must outlive both. What stdout did not take is found by CheckStdout at the end.
#pragma once

#include <fmt/core.h>

#include <cstdio>
#include <string>
#include <utility>

namespace loom::app {

template <class... Args>
void Print(std::FILE* to, fmt::format_string<Args...> format, Args&&... args) {
  const std::string text = fmt::format(format, std::forward<Args>(args)...);
  static_cast<void>(std::fwrite(text.data(), 1, text.size(), to));
}

}  // namespace loom::app
