// config.json of a Hugging Face LlamaForCausalLM to ModelConfig and back. Loom's numbers are fp32;
// they are written as the shortest decimal that reads back to the same fp32.
#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "base/json.h"
#include "train/hf_folder.h"

namespace loom::train {

namespace {

using json::Value;
using model::ModelConfig;
using model::RopeScaling;
using model::RopeScalingKind;

constexpr std::size_t kMaxConfigBytes = 1 << 20;
// Hugging Face's defaults for keys that a config.json may leave out.
constexpr float kDefaultRopeTheta = 10000.0F;
constexpr float kDefaultNormEps = 1e-6F;
constexpr std::uint32_t kDefaultContext = 2048;

/// 1e-5f as 1e-05, not as 9.999999747378752e-06.
double Shortest(float value) {
  const std::string text = fmt::format("{}", value);
  double out = value;
  std::from_chars(text.data(), text.data() + text.size(), out);
  return out;
}

json::Object RopeJson(const ModelConfig& config, bool with_theta) {
  const RopeScaling& scaling = config.rope_scaling;
  json::Object out;
  if (with_theta) out.emplace_back("rope_theta", Shortest(config.rope_theta));
  switch (scaling.kind) {
    case RopeScalingKind::kNone:
      out.emplace_back("rope_type", "default");
      break;
    case RopeScalingKind::kLinear:
      out.emplace_back("rope_type", "linear");
      out.emplace_back("factor", Shortest(scaling.factor));
      break;
    case RopeScalingKind::kLlama3:
      out.emplace_back("rope_type", "llama3");
      out.emplace_back("factor", Shortest(scaling.factor));
      out.emplace_back("low_freq_factor", Shortest(scaling.low_freq_factor));
      out.emplace_back("high_freq_factor", Shortest(scaling.high_freq_factor));
      out.emplace_back("original_max_position_embeddings", scaling.original_context);
      break;
  }
  return out;
}

Error Refuse(std::string_view key, const Value& value, std::string_view supported) {
  return MakeError(Code::kInvalid,
                   fmt::format("config.json: {} is {}", key, json::Dump(value).substr(0, 100)),
                   fmt::format("Loom supports {}", supported));
}

// Reads typed members of an object; a missing or null member gives the fallback, or an error where
// there is none.
class Fields {
 public:
  explicit Fields(const Value& object) : object_(object) {}

  const Value* Find(std::string_view key) const {
    const Value* value = object_.Find(key);
    return value == nullptr || value->IsNull() ? nullptr : value;
  }

  Result<std::uint32_t> U32(std::string_view key,
                            std::optional<std::uint32_t> fallback = {}) const {
    const Value* value = Find(key);
    if (value == nullptr) {
      if (fallback) return *fallback;
      return MakeError(Code::kInvalid, fmt::format("config.json has no '{}'", key));
    }
    const std::uint64_t* number = value->AsUnsigned();
    if (number == nullptr || *number > std::numeric_limits<std::uint32_t>::max()) {
      return Refuse(key, *value, "whole numbers below 2^32 here");
    }
    return static_cast<std::uint32_t>(*number);
  }

  Result<float> F32(std::string_view key, std::optional<float> fallback = {}) const {
    const Value* value = Find(key);
    if (value == nullptr) {
      if (fallback) return *fallback;
      return MakeError(Code::kInvalid, fmt::format("config.json has no '{}'", key));
    }
    double number = 0;
    if (!value->AsNumber(number) || std::abs(number) > std::numeric_limits<float>::max()) {
      return Refuse(key, *value, "a number here");
    }
    return static_cast<float>(number);
  }

  Result<bool> Bool(std::string_view key, bool fallback) const {
    const Value* value = Find(key);
    if (value == nullptr) return fallback;
    if (value->AsBool() == nullptr) return Refuse(key, *value, "true or false here");
    return *value->AsBool();
  }

  /// The text under key, or "" when it is missing or no text.
  std::string_view Text(std::string_view key) const {
    const Value* value = Find(key);
    return value == nullptr || value->AsString() == nullptr ? ""
                                                            : std::string_view(*value->AsString());
  }

 private:
  const Value& object_;
};

bool IsNumber(const Value& value, double expected) {
  double number = 0;
  return value.AsNumber(number) && number == expected;
}
bool IsFalse(const Value& value) { return value.AsBool() != nullptr && !*value.AsBool(); }
bool AllFullAttention(const Value& value) {
  if (value.AsArray() == nullptr) return false;
  for (const Value& type : *value.AsArray()) {
    if (type.AsString() == nullptr || *type.AsString() != "full_attention") return false;
  }
  return true;
}

/// Keys that would change the mathematics: legal only with the value that changes nothing.
Status CheckNeutral(const Fields& fields) {
  struct Rule {
    std::string_view key;
    bool (*neutral)(const Value&);
    std::string_view supported;
  };
  constexpr auto kOne = [](const Value& v) { return IsNumber(v, 1.0); };
  constexpr auto kZero = [](const Value& v) { return IsNumber(v, 0.0); };
  constexpr auto kNever = [](const Value&) { return false; };
  constexpr auto kSilu = [](const Value& v) {
    return v.AsString() != nullptr && (*v.AsString() == "silu" || *v.AsString() == "swish");
  };
  static constexpr Rule kRules[] = {
      {"hidden_act", kSilu, "\"silu\""},
      {"partial_rotary_factor", kOne, "1.0 (rotation of the whole head)"},
      {"pretraining_tp", kOne, "1"},
      {"use_sliding_window", IsFalse, "false (full attention)"},
      {"sliding_window", kNever, "null (full attention)"},
      {"layer_types", AllFullAttention, "full_attention in every layer"},
      {"scale_attn_by_inverse_layer_idx", IsFalse, "false"},
      {"reorder_and_upcast_attn", IsFalse, "false"},
      {"attention_dropout", kZero, "0.0 (no dropout)"},
      {"quantization_config", kNever, "weights that are not quantized"},
      {"auto_map", kNever, "model families it knows itself; it never runs code from a folder"},
      {"num_local_experts", kNever, "dense models"},
      {"attn_logit_softcapping", kNever, "null"},
      {"final_logit_softcapping", kNever, "null"},
      {"logit_scale", kOne, "1.0"},
      {"embedding_multiplier", kOne, "1.0"},
      {"residual_multiplier", kOne, "1.0"},
      {"attention_multiplier", kNever, "null"},
      {"logits_scaling", kOne, "1.0"},
  };
  for (const Rule& rule : kRules) {
    const Value* value = fields.Find(rule.key);
    if (value != nullptr && !rule.neutral(*value)) {
      return Refuse(rule.key, *value, rule.supported);
    }
  }
  return {};
}

Status CheckFamily(const Fields& fields) {
  const Value* type = fields.Find("model_type");
  if (fields.Text("model_type") != "llama") {
    return Refuse("model_type", type == nullptr ? Value() : *type, "\"llama\"");
  }
  const Value* architectures = fields.Find("architectures");
  if (architectures == nullptr) return {};
  const json::Array* list = architectures->AsArray();
  if (list == nullptr || list->size() != 1 || (*list)[0].AsString() == nullptr ||
      *(*list)[0].AsString() != "LlamaForCausalLM") {
    return Refuse("architectures", *architectures, "[\"LlamaForCausalLM\"]");
  }
  return {};
}

Result<RopeScaling> ParseScaling(std::string_view name, const Value& value) {
  if (value.AsObject() == nullptr) return Refuse(name, value, "an object here");
  const Fields fields(value);
  RopeScaling out;
  std::string_view type = fields.Text("rope_type");
  if (type.empty()) type = fields.Text("type");
  if (const Value* partial = fields.Find("partial_rotary_factor");
      partial != nullptr && !IsNumber(*partial, 1.0)) {
    return Refuse(fmt::format("{}.partial_rotary_factor", name), *partial, "1.0");
  }
  if (type == "default") return out;
  if (type != "linear" && type != "llama3") {
    return Refuse(name, value, "rope_type \"default\", \"linear\" and \"llama3\"");
  }
  out.kind = type == "linear" ? RopeScalingKind::kLinear : RopeScalingKind::kLlama3;
  LOOM_ASSIGN(out.factor, fields.F32("factor"));
  if (out.kind == RopeScalingKind::kLlama3) {
    LOOM_ASSIGN(out.low_freq_factor, fields.F32("low_freq_factor"));
    LOOM_ASSIGN(out.high_freq_factor, fields.F32("high_freq_factor"));
    LOOM_ASSIGN(out.original_context, fields.U32("original_max_position_embeddings"));
  }
  return out;
}

/// transformers 5 writes rope_parameters, older versions rope_theta and rope_scaling; where a file
/// has both they must say the same.
Status ParseRope(const Fields& fields, ModelConfig& config) {
  const Value* parameters = fields.Find("rope_parameters");
  const Value* scaling = fields.Find("rope_scaling");
  const bool has_theta = fields.Find("rope_theta") != nullptr;
  LOOM_ASSIGN(config.rope_theta, fields.F32("rope_theta", kDefaultRopeTheta));
  if (scaling != nullptr) {
    LOOM_ASSIGN(config.rope_scaling, ParseScaling("rope_scaling", *scaling));
  }
  if (parameters == nullptr) return {};
  LOOM_ASSIGN(const RopeScaling newer, ParseScaling("rope_parameters", *parameters));
  LOOM_ASSIGN(const float theta, Fields(*parameters).F32("rope_theta", config.rope_theta));
  if (has_theta && theta != config.rope_theta) {
    return MakeError(
        Code::kInvalid,
        fmt::format("config.json: rope_theta is {} and rope_parameters.rope_theta is {}",
                    config.rope_theta, theta),
        "make them equal or remove one");
  }
  if (scaling != nullptr && !(newer == config.rope_scaling)) {
    return MakeError(Code::kInvalid, "config.json: rope_scaling and rope_parameters disagree",
                     "make them equal or remove one");
  }
  config.rope_theta = theta;
  config.rope_scaling = newer;
  return {};
}

}  // namespace

std::string HfConfigJson(const ModelConfig& c) {
  const bool scaled = c.rope_scaling.kind != RopeScalingKind::kNone;
  // Without an explicit null the special tokens get Hugging Face's defaults 1 and 2, and
  // generation would stop at an ordinary byte.
  const json::Object config{
      {"architectures", json::Array{"LlamaForCausalLM"}},
      {"attention_bias", c.attention_bias},
      {"attention_dropout", 0.0},
      {"bos_token_id", nullptr},
      {"dtype", "float32"},
      {"eos_token_id", nullptr},
      {"head_dim", c.head_dim},
      {"hidden_act", "silu"},
      {"hidden_size", c.width},
      {"initializer_range", Shortest(c.init_std)},
      {"intermediate_size", c.ffn},
      {"max_position_embeddings", c.context},
      {"mlp_bias", c.mlp_bias},
      {"model_type", "llama"},
      {"num_attention_heads", c.heads},
      {"num_hidden_layers", c.layers},
      {"num_key_value_heads", c.kv_heads},
      {"pad_token_id", nullptr},
      {"pretraining_tp", 1},
      {"rms_norm_eps", Shortest(c.norm_eps)},
      {"rope_parameters", RopeJson(c, true)},
      {"rope_scaling", scaled ? Value(RopeJson(c, false)) : Value(nullptr)},
      {"rope_theta", Shortest(c.rope_theta)},
      {"tie_word_embeddings", c.tie_embeddings},
      {"torch_dtype", "float32"},
      {"use_cache", true},
      {"vocab_size", c.vocab},
  };
  return json::Dump(Value(config), 2) + "\n";
}

Result<ModelConfig> ParseHfConfig(std::string_view config_json) {
  auto parsed = json::Parse(config_json, {.max_bytes = kMaxConfigBytes, .max_values = 1 << 16});
  if (!parsed) return std::move(parsed).error().Context("config.json");
  if (parsed->AsObject() == nullptr) {
    return MakeError(Code::kInvalid, "config.json is not an object");
  }
  const Fields fields(*parsed);
  LOOM_RETURN_IF_ERROR(CheckFamily(fields));
  LOOM_RETURN_IF_ERROR(CheckNeutral(fields));
  ModelConfig c;
  LOOM_ASSIGN(c.vocab, fields.U32("vocab_size"));
  LOOM_ASSIGN(c.layers, fields.U32("num_hidden_layers"));
  LOOM_ASSIGN(c.width, fields.U32("hidden_size"));
  LOOM_ASSIGN(c.heads, fields.U32("num_attention_heads"));
  LOOM_ASSIGN(c.ffn, fields.U32("intermediate_size"));
  LOOM_ASSIGN(c.kv_heads, fields.U32("num_key_value_heads", c.heads));
  LOOM_ASSIGN(c.head_dim, fields.U32("head_dim", c.heads == 0 ? 0 : c.width / c.heads));
  LOOM_ASSIGN(c.context, fields.U32("max_position_embeddings", kDefaultContext));
  LOOM_ASSIGN(c.norm_eps, fields.F32("rms_norm_eps", kDefaultNormEps));
  LOOM_ASSIGN(c.init_std, fields.F32("initializer_range", c.init_std));
  LOOM_ASSIGN(c.tie_embeddings, fields.Bool("tie_word_embeddings", false));
  LOOM_ASSIGN(c.attention_bias, fields.Bool("attention_bias", false));
  LOOM_ASSIGN(c.mlp_bias, fields.Bool("mlp_bias", false));
  LOOM_RETURN_IF_ERROR(ParseRope(fields, c));
  if (auto valid = model::Validate(c); !valid)
    return std::move(valid).error().Context("config.json");
  return c;
}

}  // namespace loom::train
