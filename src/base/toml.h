// TOML for people, read into plain values that remember their line, so that every later complaint
// can say file:line. toml++ stays inside toml.cc; what a key means is decided by the caller.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"

namespace loom {

struct TomlValue;
/// The items of an array, in order.
using TomlArray = std::vector<TomlValue>;
struct TomlEntry;
/// The entries of a table, in order of their lines.
using TomlTable = std::vector<TomlEntry>;
/// A date or a time: Loom has no key that takes one, so only the fact is kept.
struct TomlOther {};

struct TomlValue {
  std::variant<std::string, std::int64_t, double, bool, TomlArray, TomlTable, TomlOther> value;
  std::uint32_t line = 0;  ///< 1-based

  /// "a string", "an integer", ...: for error messages.
  std::string_view KindName() const;
  const TomlTable* AsTable() const { return std::get_if<TomlTable>(&value); }
};

/// Key and value. Not a std::pair, which clang wants complete inside TomlValue.
struct TomlEntry {
  std::string first;
  TomlValue second;
};

/// Largest TOML text that is read; a longer one is refused before it is parsed.
inline constexpr std::size_t kMaxTomlBytes = 1 << 20;
inline constexpr std::size_t kMaxTomlKeyParts = 64;  ///< a.b.c has three

/// Parses a document; file_name only names it in errors ("run.toml:7: ...").
Result<TomlTable> ParseToml(std::string_view text, std::string_view file_name);

/// A basic TOML string with quotes, escaped so that ParseToml gives text back.
std::string TomlQuote(std::string_view text);

}  // namespace loom
