#include "train/hf_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <string>

namespace loom::train {

Error HfFields::Missing(std::string_view key) const {
  return MakeError(Code::kInvalid, fmt::format("{} has no '{}'", file_, key),
                   "fetch the file again from where the model came");
}

Error RefuseKey(std::string_view key, const json::Value& value, std::string_view supported,
                std::string_view file) {
  return MakeError(Code::kInvalid,
                   fmt::format("{}: {} is {}", file, key, json::Dump(value).substr(0, 100)),
                   fmt::format("Loom supports {}", supported));
}

double ShortestDecimal(float value) {
  const std::string text = fmt::format("{}", value);
  double out = static_cast<double>(value);
  std::from_chars(text.data(), text.data() + text.size(), out);
  return out;
}

const json::Value* HfFields::Find(std::string_view key) const {
  const json::Value* value = object_.Find(key);
  return value == nullptr || value->IsNull() ? nullptr : value;
}

Result<std::uint32_t> HfFields::U32(std::string_view key,
                                    std::optional<std::uint32_t> fallback) const {
  const json::Value* value = Find(key);
  if (value == nullptr) {
    if (fallback) return *fallback;
    return Missing(key);
  }
  const std::uint64_t* number = value->AsUnsigned();
  if (number == nullptr || *number > std::numeric_limits<std::uint32_t>::max()) {
    return RefuseKey(key, *value, "whole numbers below 2^32 here", file_);
  }
  return static_cast<std::uint32_t>(*number);
}

Result<float> HfFields::F32(std::string_view key, std::optional<float> fallback) const {
  const json::Value* value = Find(key);
  if (value == nullptr) {
    if (fallback) return *fallback;
    return Missing(key);
  }
  double number = 0;
  if (!value->AsNumber(number) || std::abs(number) > std::numeric_limits<float>::max()) {
    return RefuseKey(key, *value, "a number here", file_);
  }
  return static_cast<float>(number);
}

Result<bool> HfFields::Bool(std::string_view key, bool fallback) const {
  const json::Value* value = Find(key);
  if (value == nullptr) return fallback;
  if (value->AsBool() == nullptr) return RefuseKey(key, *value, "true or false here", file_);
  return *value->AsBool();
}

std::string_view HfFields::Text(std::string_view key) const {
  const json::Value* value = Find(key);
  return value == nullptr || value->AsString() == nullptr ? ""
                                                          : std::string_view(*value->AsString());
}

bool IsNumber(const json::Value& value, double expected) {
  double number = 0;
  return value.AsNumber(number) && number == expected;
}
bool IsFalse(const json::Value& value) { return value.AsBool() != nullptr && !*value.AsBool(); }
bool IsTrue(const json::Value& value) { return value.AsBool() != nullptr && *value.AsBool(); }

bool IsOneOf(const json::Value& value, std::initializer_list<std::string_view> names) {
  return value.AsString() != nullptr && std::ranges::find(names, *value.AsString()) != names.end();
}

Status CheckNeutral(const HfFields& fields, std::span<const NeutralRule> rules) {
  for (const NeutralRule& rule : rules) {
    const json::Value* value = fields.Find(rule.key);
    if (value != nullptr && !rule.neutral(*value))
      return RefuseKey(rule.key, *value, rule.supported, fields.file());
  }
  return {};
}

}  // namespace loom::train
