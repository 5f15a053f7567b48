// The one file that includes toml++ (about 3 s a compile); its tree is copied into our own.
// toml++ asserts on some malformed input (a "[[[" for one), and in release builds assumes instead:
// here such an assertion is a parse error in every build.
#undef NDEBUG
#include "base/toml.h"

#include <stdexcept>

namespace {
[[noreturn]] void Malformed() { throw std::runtime_error("malformed TOML"); }
}  // namespace

#define TOML_EXCEPTIONS 1
#define TOML_HEADER_ONLY 1
#define TOML_ASSERT(condition) (static_cast<bool>(condition) ? void() : ::Malformed())
#include <fmt/core.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cctype>

namespace loom {
namespace {

TomlValue Convert(const ::toml::node& node) {
  TomlValue out;
  out.line = node.source().begin.line;
  if (const auto* text = node.as_string()) {
    out.value = text->get();
  } else if (const auto* integer = node.as_integer()) {
    out.value = std::int64_t{integer->get()};
  } else if (const auto* number = node.as_floating_point()) {
    out.value = number->get();
  } else if (const auto* flag = node.as_boolean()) {
    out.value = flag->get();
  } else if (const auto* array = node.as_array()) {
    TomlArray items;
    for (const auto& item : *array) items.push_back(Convert(item));
    out.value = std::move(items);
  } else if (const auto* table = node.as_table()) {
    TomlTable entries;
    for (const auto& [key, value] : *table) {
      TomlValue entry = Convert(value);
      entry.line = key.source().begin.line;
      entries.emplace_back(std::string(key.str()), std::move(entry));
    }
    std::stable_sort(entries.begin(), entries.end(),
                     [](const auto& a, const auto& b) { return a.second.line < b.second.line; });
    out.value = std::move(entries);
  } else {
    out.value = TomlOther{};
  }
  return out;
}

/// Whether some dotted key, or what looks like one, has more parts than kMaxTomlKeyParts: toml++
/// makes a table of each and recurses into them.
bool HasEndlessKey(std::string_view text) {
  constexpr std::string_view kOfKeys = "-_\"' \t";
  std::size_t parts = 1;
  for (const char c : text) {
    if (c == '.') {
      if (++parts > kMaxTomlKeyParts) return true;
    } else if (std::isalnum(static_cast<unsigned char>(c)) == 0 &&
               kOfKeys.find(c) == std::string_view::npos) {
      parts = 1;
    }
  }
  return false;
}

}  // namespace

std::string_view TomlValue::KindName() const {
  static constexpr std::string_view kNames[] = {
      "a string", "an integer", "a number", "true/false", "an array", "a table", "a date or time"};
  return kNames[value.index()];
}

Result<TomlTable> ParseToml(std::string_view text, std::string_view file_name) {
  if (text.size() > kMaxTomlBytes) {
    return MakeError(Code::kLimit, fmt::format("{}: {} bytes, the limit of a TOML file is {}",
                                               file_name, text.size(), kMaxTomlBytes));
  }
  if (HasEndlessKey(text)) {
    return MakeError(Code::kLimit, fmt::format("{}: a key of more than {} parts with dots between",
                                               file_name, kMaxTomlKeyParts));
  }
  constexpr const char* kHint = "strings need quotes, tables look like [model]";
  try {
    return std::get<TomlTable>(Convert(::toml::parse(text, file_name)).value);
  } catch (const ::toml::parse_error& error) {
    return MakeError(
        Code::kInvalid,
        fmt::format("{}:{}: {}", file_name, error.source().begin.line, error.description()), kHint);
  } catch (const std::exception& error) {
    return MakeError(Code::kInvalid, fmt::format("{}: {}", file_name, error.what()), kHint);
  }
}

std::string TomlQuote(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += fmt::format("\\u{:04X}", static_cast<unsigned>(static_cast<unsigned char>(c)));
    } else {
      out += c;
    }
  }
  return out + '"';
}

}  // namespace loom
