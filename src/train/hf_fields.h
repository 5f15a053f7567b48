// The members of a config.json (or an adapter's), read with errors that name key, value and what
// Loom supports; and what the readers of its families share. Internal to train.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "model/family.h"

namespace loom::train {

/// "config.json: KEY is VALUE", and what Loom supports.
Error RefuseKey(std::string_view key, const json::Value& value, std::string_view supported,
                std::string_view file = "config.json");

/// 1e-5f as 1e-05, not as 9.999999747378752e-06: the decimal that reads back to the same fp32.
double ShortestDecimal(float value);

/// Typed members of an object; a missing or null member gives the fallback, or an error where there
/// is none.
class HfFields {
 public:
  explicit HfFields(const json::Value& object, std::string_view file = "config.json")
      : object_(object), file_(file) {}
  std::string_view file() const { return file_; }

  const json::Value* Find(std::string_view key) const;  ///< null when missing or null
  bool Has(std::string_view key) const { return object_.Find(key) != nullptr; }  ///< null counts
  Result<std::uint32_t> U32(std::string_view key, std::optional<std::uint32_t> fallback = {}) const;
  Result<float> F32(std::string_view key, std::optional<float> fallback = {}) const;
  Result<bool> Bool(std::string_view key, bool fallback) const;
  /// The text under key, or "" when it is missing or no text.
  std::string_view Text(std::string_view key) const;

 private:
  Error Missing(std::string_view key) const;
  const json::Value& object_;
  std::string_view file_;
};

/// A key that would change the mathematics: legal only with the value that changes nothing.
struct NeutralRule {
  std::string_view key;
  bool (*neutral)(const json::Value&);
  std::string_view supported;
};
bool IsNumber(const json::Value& value, double expected);
bool IsFalse(const json::Value& value);
bool IsTrue(const json::Value& value);
/// A text, one of these.
bool IsOneOf(const json::Value& value, std::initializer_list<std::string_view> names);
inline bool IsNever(const json::Value&) { return false; }
Status CheckNeutral(const HfFields& fields, std::span<const NeutralRule> rules);

/// Llama, Mistral, Qwen2 and Qwen3; the family of `config` is set.
Status ReadRotaryConfig(const HfFields& fields, model::ModelConfig& config);
void WriteRotaryConfig(const model::ModelConfig& config, json::Object& out);
Status ReadGpt2Config(const HfFields& fields, model::ModelConfig& config);
void WriteGpt2Config(const model::ModelConfig& config, json::Object& out);

}  // namespace loom::train
