#include "text/json_parts.h"

#include <fmt/format.h>

#include <algorithm>

namespace loom::text {

Error Refuse(std::string_view what) {
  return MakeError(Code::kInvalid, fmt::format("tokenizer.json: {}", what),
                   "supported are byte-level BPE as GPT-2, Llama 3, Qwen2 and SmolLM publish it, "
                   "and the tokenizers that Loom writes");
}

std::string StringOf(const json::Value& value, std::string_view key) {
  const json::Value* found = value.Find(key);
  return found == nullptr || found->AsString() == nullptr ? std::string() : *found->AsString();
}

Result<bool> BoolOf(const json::Value& value, std::string_view key, bool fallback) {
  const json::Value* found = value.Find(key);
  if (IsNullOrMissing(found)) return fallback;
  if (found->AsBool() == nullptr) {
    return Refuse(fmt::format("'{}' is a {}, it must be true or false", key, found->KindName()));
  }
  return *found->AsBool();
}

bool IsNullOrMissing(const json::Value* value) { return value == nullptr || value->IsNull(); }

Status CheckKeys(const json::Value& value, std::string_view what,
                 std::initializer_list<std::string_view> keys) {
  if (value.AsObject() == nullptr) {
    return Refuse(fmt::format("{} is a {}, it must be an object", what, value.KindName()));
  }
  for (const auto& [key, member] : *value.AsObject()) {
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) {
      return Refuse(fmt::format("{}: the setting '{}' is not known", what, key.substr(0, 40)));
    }
  }
  return {};
}

}  // namespace loom::text
