// Expected failures are values: Result<T> holds a T or an Error that says what failed, where, and
// what to do next. Exceptions of libraries end at their adapter and become one of these.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/check.h"

namespace loom {

/// The few kinds of failure that callers tell apart.
enum class Code : std::uint8_t {
  kInvalid,      ///< the input (of a user, file or peer) breaks a stated rule
  kNotFound,     ///< the named thing does not exist
  kCorrupt,      ///< stored or received bytes do not match their hash or schema
  kIo,           ///< the operating system failed a read, write or socket call
  kDiskFull,     ///< no space left; nothing older was touched
  kUnreachable,  ///< no address of the peer answered
  kTimeout,      ///< a stated deadline passed
  kRefused,      ///< the other side said no, with a reason
  kConflict,     ///< somebody else holds it: a lock, an identity, a newer era
  kLimit,        ///< a named cap would be exceeded
  kInternal,     ///< a defect in Loom or in a library it uses
};

/// The name of a code as it stands in --json output, e.g. "disk_full".
std::string_view CodeName(Code code);

struct Error {
  Code code = Code::kInternal;
  std::string message;  ///< what failed, where, the value and the limit
  std::string hint;     ///< the next step for the person who reads it; may be empty

  /// "message" or "message (hint: ...)", one line.
  std::string ToString() const;
  /// The same error, told from further out: "context: message".
  Error Context(std::string_view context) &&;
};

inline Error MakeError(Code code, std::string message, std::string hint = {}) {
  return Error{code, std::move(message), std::move(hint)};
}

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: implicit
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & {
    LOOM_CHECK(ok(), "value() of a failed Result: {}", error().ToString());
    return std::get<0>(state_);
  }
  const T& value() const& {
    LOOM_CHECK(ok(), "value() of a failed Result: {}", error().ToString());
    return std::get<0>(state_);
  }
  T&& value() && {
    LOOM_CHECK(ok(), "value() of a failed Result: {}", error().ToString());
    return std::get<0>(std::move(state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const& { return std::get<1>(state_); }
  Error&& error() && { return std::get<1>(std::move(state_)); }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT: implicit
  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Error& error() const& { return *error_; }
  Error&& error() && { return std::move(*error_); }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;

}  // namespace loom

#define LOOM_CONCAT_INNER(a, b) a##b
#define LOOM_CONCAT(a, b) LOOM_CONCAT_INNER(a, b)

/// LOOM_RETURN_IF_ERROR(expr): leaves the function with the error of a failed Status or Result.
#define LOOM_RETURN_IF_ERROR(expr)                 \
  do {                                             \
    if (auto loom_status = (expr); !loom_status) { \
      return std::move(loom_status).error();       \
    }                                              \
  } while (false)

/// LOOM_ASSIGN(auto x, Parse(...)): x takes the value, or the function returns the error.
#define LOOM_ASSIGN(decl, expr) LOOM_ASSIGN_INNER(LOOM_CONCAT(loom_result_, __LINE__), decl, expr)
#define LOOM_ASSIGN_INNER(tmp, decl, expr) \
  auto tmp = (expr);                       \
  if (!tmp) return std::move(tmp).error(); \
  decl = std::move(tmp).value()
