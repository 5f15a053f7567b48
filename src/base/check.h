// LOOM_CHECK guards invariants of our own code, in release builds too. It is never used on what a
// peer, a file or a user sent: those failures are Result values.
#pragma once

#include <fmt/core.h>

#include <string>

namespace loom {

/// Prints file, line, condition and message to stderr and aborts.
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition,
                              const std::string& message);

}  // namespace loom

#define LOOM_CHECK(condition, ...)                                                        \
  do {                                                                                    \
    if (!(condition)) [[unlikely]] {                                                      \
      ::loom::CheckFailed(__FILE__, __LINE__, #condition, ::fmt::format("" __VA_ARGS__)); \
    }                                                                                     \
  } while (false)
