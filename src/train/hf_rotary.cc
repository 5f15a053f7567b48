// What config.json says about Llama, Mistral, Qwen2 and Qwen3.
#include <fmt/format.h>

#include <string>

#include "train/hf_fields.h"

namespace loom::train {
namespace {

using json::Value;
using model::Family;
using model::ModelConfig;
using model::RopeScaling;
using model::RopeScalingKind;

// Hugging Face's defaults for keys that a config.json may leave out.
constexpr float kDefaultRopeTheta = 10000.0F;
constexpr float kDefaultNormEps = 1e-6F;
constexpr std::uint32_t kMistralWindow = 4096;
constexpr std::uint32_t kQwen3HeadDim = 128;

std::uint32_t DefaultContext(Family family) {
  if (family == Family::kLlama) return 2048;
  return family == Family::kMistral ? 131072 : 32768;
}

bool IsSilu(const Value& value) { return IsOneOf(value, {"silu", "swish"}); }
bool AllFullAttention(const Value& value) {
  if (value.AsArray() == nullptr) return false;
  for (const Value& type : *value.AsArray()) {
    if (!IsOneOf(type, {"full_attention"})) return false;
  }
  return true;
}

constexpr NeutralRule kRules[] = {
    {"hidden_act", IsSilu, "\"silu\""},
    {"use_sliding_window", IsFalse, "false (full attention)"},
    {"layer_types", AllFullAttention, "full_attention in every layer"},
};

json::Object RopeJson(const ModelConfig& config, bool with_theta) {
  const RopeScaling& scaling = config.rope_scaling;
  json::Object out;
  if (with_theta) out.emplace_back("rope_theta", ShortestDecimal(config.rope_theta));
  switch (scaling.kind) {
    case RopeScalingKind::kNone:
      out.emplace_back("rope_type", "default");
      break;
    case RopeScalingKind::kLinear:
      out.emplace_back("rope_type", "linear");
      out.emplace_back("factor", ShortestDecimal(scaling.factor));
      break;
    case RopeScalingKind::kLlama3:
      out.emplace_back("rope_type", "llama3");
      out.emplace_back("factor", ShortestDecimal(scaling.factor));
      out.emplace_back("low_freq_factor", ShortestDecimal(scaling.low_freq_factor));
      out.emplace_back("high_freq_factor", ShortestDecimal(scaling.high_freq_factor));
      out.emplace_back("original_max_position_embeddings", scaling.original_context);
      break;
  }
  return out;
}

Result<RopeScaling> ReadScaling(std::string_view name, const Value& value) {
  if (value.AsObject() == nullptr) return RefuseKey(name, value, "an object here");
  const HfFields fields(value);
  RopeScaling out;
  std::string_view type = fields.Text("rope_type");
  if (type.empty()) type = fields.Text("type");
  if (const Value* partial = fields.Find("partial_rotary_factor");
      partial != nullptr && !IsNumber(*partial, 1.0)) {
    return RefuseKey(fmt::format("{}.partial_rotary_factor", name), *partial, "1.0");
  }
  if (type == "default") return out;
  if (type != "linear" && type != "llama3") {
    return RefuseKey(name, value, "rope_type \"default\", \"linear\" and \"llama3\"");
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
Status ReadRope(const HfFields& fields, ModelConfig& config) {
  const Value* parameters = fields.Find("rope_parameters");
  const Value* scaling = fields.Find("rope_scaling");
  const bool has_theta = fields.Find("rope_theta") != nullptr;
  LOOM_ASSIGN(config.rope_theta, fields.F32("rope_theta", kDefaultRopeTheta));
  if (scaling != nullptr) {
    LOOM_ASSIGN(config.rope_scaling, ReadScaling("rope_scaling", *scaling));
  }
  if (parameters == nullptr) return {};
  LOOM_ASSIGN(const RopeScaling newer, ReadScaling("rope_parameters", *parameters));
  LOOM_ASSIGN(const float theta, HfFields(*parameters).F32("rope_theta", config.rope_theta));
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

/// Mistral's window; Qwen's number counts only beside use_sliding_window, which is refused.
Status ReadWindow(const HfFields& fields, bool missing, ModelConfig& config) {
  const Value* window = fields.Find("sliding_window");
  if (config.family == Family::kMistral) {
    LOOM_ASSIGN(config.window, fields.U32("sliding_window", missing ? kMistralWindow : 0));
    if (window == nullptr || config.window != 0) return {};
    return RefuseKey("sliding_window", *window, "1 or more here, or null (full attention)");
  }
  if (config.family != Family::kLlama || window == nullptr) return {};
  return RefuseKey("sliding_window", *window, "null (full attention)");
}

}  // namespace

Status ReadRotaryConfig(const HfFields& fields, ModelConfig& c) {
  LOOM_RETURN_IF_ERROR(CheckNeutral(fields, kRules));
  LOOM_ASSIGN(c.layers, fields.U32("num_hidden_layers"));
  LOOM_ASSIGN(c.width, fields.U32("hidden_size"));
  LOOM_ASSIGN(c.heads, fields.U32("num_attention_heads"));
  LOOM_ASSIGN(c.ffn, fields.U32("intermediate_size"));
  LOOM_ASSIGN(c.kv_heads, fields.U32("num_key_value_heads", c.heads));
  const std::uint32_t even = c.heads == 0 ? 0 : c.width / c.heads;
  LOOM_ASSIGN(c.head_dim,
              fields.U32("head_dim", c.family == Family::kQwen3 ? kQwen3HeadDim : even));
  LOOM_ASSIGN(c.context, fields.U32("max_position_embeddings", DefaultContext(c.family)));
  LOOM_ASSIGN(c.norm_eps, fields.F32("rms_norm_eps", kDefaultNormEps));
  LOOM_ASSIGN(c.tie_embeddings, fields.Bool("tie_word_embeddings", false));
  LOOM_ASSIGN(c.attention_bias, fields.Bool("attention_bias", false));
  LOOM_ASSIGN(c.mlp_bias, fields.Bool("mlp_bias", false));
  LOOM_RETURN_IF_ERROR(ReadWindow(fields, !fields.Has("sliding_window"), c));
  return ReadRope(fields, c);
}

void WriteRotaryConfig(const ModelConfig& c, json::Object& out) {
  const model::FamilyTraits& family = model::Traits(c.family);
  const bool scaled = c.rope_scaling.kind != RopeScalingKind::kNone;
  out.emplace_back("attention_dropout", 0.0);
  out.emplace_back("head_dim", c.head_dim);
  out.emplace_back("hidden_act", "silu");
  out.emplace_back("hidden_size", c.width);
  out.emplace_back("intermediate_size", c.ffn);
  out.emplace_back("max_position_embeddings", model::NumPositions(c));
  out.emplace_back("num_attention_heads", c.heads);
  out.emplace_back("num_hidden_layers", c.layers);
  out.emplace_back("num_key_value_heads", c.kv_heads);
  out.emplace_back("rms_norm_eps", ShortestDecimal(c.norm_eps));
  out.emplace_back("rope_parameters", RopeJson(c, true));
  out.emplace_back("rope_scaling", scaled ? Value(RopeJson(c, false)) : Value(nullptr));
  out.emplace_back("rope_theta", ShortestDecimal(c.rope_theta));
  if (family.attention_bias) out.emplace_back("attention_bias", c.attention_bias);
  if (family.mlp_bias) out.emplace_back("mlp_bias", c.mlp_bias);
  if (c.family == Family::kLlama) out.emplace_back("pretraining_tp", 1);
  if (c.family == Family::kQwen2 || c.family == Family::kQwen3)
    out.emplace_back("use_sliding_window", false);
  if (c.family != Family::kLlama)
    out.emplace_back("sliding_window", c.window == 0 ? Value(nullptr) : Value(c.window));
}

}  // namespace loom::train
