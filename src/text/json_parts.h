// Reading the parts of a tokenizer.json strictly: a key or kind that is not known would change ids,
// so it is an error that names it.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace loom::text {

/// "tokenizer.json: WHAT", with what is supported as the next step.
Error Refuse(std::string_view what);

/// Empty when the key is missing or no string.
std::string StringOf(const json::Value& value, std::string_view key);
/// A missing or null key is the fallback; another kind of value is an error.
Result<bool> BoolOf(const json::Value& value, std::string_view key, bool fallback);
bool IsNullOrMissing(const json::Value* value);
/// An object with no other keys than these.
Status CheckKeys(const json::Value& value, std::string_view what,
                 std::initializer_list<std::string_view> keys);

}  // namespace loom::text
