// JSON in and out, strictly: parsing is bounded in bytes, depth and values, refuses duplicate keys
// and invalid UTF-8, and keeps the order of keys. nlohmann-json stays inside json.cc.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"

namespace loom::json {

struct Value;
using Array = std::vector<Value>;
using Member = std::pair<std::string, Value>;
using Object = std::vector<Member>;  ///< in the order of the text; keys are unique after Parse

/// A JSON value. Integers that fit are kept exactly (u64 when not negative, else i64).
struct Value {
  std::variant<std::nullptr_t, bool, std::int64_t, std::uint64_t, double, std::string, Array,
               Object>
      data = nullptr;

  Value() = default;
  template <class T>
    requires(!std::is_same_v<std::decay_t<T>, Value>)
  Value(T&& value) {  // NOLINT: implicit, so that literals build documents
    using D = std::decay_t<T>;
    if constexpr (std::is_same_v<D, bool> || std::is_same_v<D, std::nullptr_t>) {
      data = value;
    } else if constexpr (std::is_integral_v<D> && std::is_signed_v<D>) {
      if (value >= 0) {
        data = static_cast<std::uint64_t>(value);
      } else {
        data = static_cast<std::int64_t>(value);
      }
    } else if constexpr (std::is_integral_v<D>) {
      data = static_cast<std::uint64_t>(value);
    } else if constexpr (std::is_floating_point_v<D>) {
      data = static_cast<double>(value);
    } else if constexpr (std::is_convertible_v<T, std::string_view>) {
      data = std::string(std::string_view(value));
    } else {
      data = std::forward<T>(value);
    }
  }

  bool IsNull() const { return data.index() == 0; }
  const bool* AsBool() const { return std::get_if<bool>(&data); }
  const std::uint64_t* AsUnsigned() const { return std::get_if<std::uint64_t>(&data); }
  const std::string* AsString() const { return std::get_if<std::string>(&data); }
  const Array* AsArray() const { return std::get_if<Array>(&data); }
  const Object* AsObject() const { return std::get_if<Object>(&data); }
  /// Any number, as a double; false for everything else.
  bool AsNumber(double& out) const;
  /// The member of an object, or null for no such key and for values that are no objects.
  const Value* Find(std::string_view key) const;
  /// "null", "bool", "integer", "number", "string", "array", "object".
  std::string_view KindName() const;
};

struct Limits {
  std::size_t max_bytes = 64 << 20;
  std::size_t max_depth = 32;
  std::size_t max_values = 4 << 20;
};

/// Why a text was refused; callers that must tell reasons apart ask for it.
enum class Fault { kNone, kTooLarge, kInvalidUtf8, kSyntax, kDuplicateKey, kTooDeep, kTooMany };

/// The whole text must be one value. Errors name the byte offset or the key.
Result<Value> Parse(std::string_view text, const Limits& limits = {}, Fault* fault = nullptr);

/// indent < 0: one line. Invalid UTF-8 in strings becomes U+FFFD; numbers that are not finite
/// become null; doubles are written so that they read back equal.
std::string Dump(const Value& value, int indent = -1);

}  // namespace loom::json
