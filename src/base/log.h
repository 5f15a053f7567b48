// Log lines for people, on stderr: one line per event, a level and a component. Formatting happens
// only when the level is on. spdlog stays inside log.cc.
#pragma once

#include <fmt/core.h>

#include <string_view>

namespace loom {

enum class LogLevel { kDebug, kInfo, kWarn, kError, kOff };

/// Sets the least level that is printed; default kInfo. Thread-safe.
void SetLogLevel(LogLevel level);
bool LogEnabled(LogLevel level);
void LogLine(LogLevel level, std::string_view component, std::string_view message);

template <class... Args>
void Log(LogLevel level, std::string_view component, fmt::format_string<Args...> format,
         Args&&... args) {
  if (LogEnabled(level))
    LogLine(level, component, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace loom
