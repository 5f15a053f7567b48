// config.json of a Hugging Face model to ModelConfig and back: which family it is, what no family
// allows, and what all families write. Loom's numbers are fp32; they are written as the shortest
// decimal that reads back to the same fp32.
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "train/hf_fields.h"
#include "train/hf_folder.h"

namespace loom::train {

namespace {

using json::Value;
using model::FamilyTraits;
using model::ModelConfig;

constexpr std::size_t kMaxConfigBytes = 1 << 20;

bool IsOne(const Value& value) { return IsNumber(value, 1.0); }
bool IsZero(const Value& value) { return IsNumber(value, 0.0); }

constexpr NeutralRule kRules[] = {
    {"auto_map", IsNever, "model families it knows itself; it never runs code from a folder"},
    {"quantization_config", IsNever, "weights that are not quantized"},
    {"is_encoder_decoder", IsFalse, "decoders"},
    {"add_cross_attention", IsFalse, "decoders"},
    {"num_local_experts", IsNever, "dense models"},
    {"num_experts", IsNever, "dense models"},
    {"partial_rotary_factor", IsOne, "1.0 (rotation of the whole head)"},
    {"no_rope_layers", IsNever, "rotation in every layer"},
    {"no_rope_layer_interval", IsNever, "rotation in every layer"},
    {"pretraining_tp", IsOne, "1"},
    {"attention_dropout", IsZero, "0.0 (no dropout)"},
    {"scale_attn_by_inverse_layer_idx", IsFalse, "false"},
    {"reorder_and_upcast_attn", IsFalse, "false"},
    {"attn_logit_softcapping", IsNever, "null"},
    {"final_logit_softcapping", IsNever, "null"},
    {"query_pre_attn_scalar", IsNever, "null"},
    {"logit_scale", IsOne, "1.0"},
    {"embedding_multiplier", IsOne, "1.0"},
    {"residual_multiplier", IsOne, "1.0"},
    {"attention_multiplier", IsNever, "null"},
    {"logits_scaling", IsOne, "1.0"},
};

constexpr std::string_view kTokenIds[] = {"bos_token_id", "eos_token_id", "pad_token_id"};
constexpr std::size_t kMaxTokenIds = 64;

std::string_view TorchName(tensor::DType dtype) {
  if (dtype == tensor::DType::kBF16) return "bfloat16";
  return dtype == tensor::DType::kF16 ? "float16" : "float32";
}

/// An id, or a list of them.
bool IsTokenIds(const Value& value) {
  if (value.AsUnsigned() != nullptr) return *value.AsUnsigned() < (1U << 31);
  const json::Array* list = value.AsArray();
  return list != nullptr && list->size() <= kMaxTokenIds &&
         std::ranges::all_of(*list, [](const Value& id) {
           return id.AsUnsigned() != nullptr && *id.AsUnsigned() < (1U << 31);
         });
}

Result<Value> ParseObject(std::string_view config_json) {
  auto parsed = json::Parse(config_json, {.max_bytes = kMaxConfigBytes, .max_values = 1 << 16});
  if (!parsed) return std::move(parsed).error().Context("config.json");
  if (parsed->AsObject() == nullptr) {
    return MakeError(Code::kInvalid, "config.json is not an object",
                     "fetch the file again from where the model came");
  }
  return parsed;
}

/// "llama", "mistral" and so on, for people.
std::string FamilyList(std::string_view FamilyTraits::* name) {
  std::string out;
  for (const FamilyTraits& family : model::Families())
    out += fmt::format("{}\"{}\"", out.empty() ? "" : ", ", family.*name);
  return out;
}

Result<model::Family> ReadFamily(const HfFields& fields) {
  const Value* type = fields.Find("model_type");
  const auto families = model::Families();
  const auto found = std::ranges::find(families, fields.Text("model_type"), &FamilyTraits::name);
  if (found == families.end()) {
    return RefuseKey("model_type", type == nullptr ? Value() : *type,
                     FamilyList(&FamilyTraits::name));
  }
  const Value* architectures = fields.Find("architectures");
  if (architectures == nullptr) return found->family;
  const json::Array* list = architectures->AsArray();
  if (list == nullptr || list->size() != 1 || (*list)[0].AsString() == nullptr ||
      *(*list)[0].AsString() != found->architecture) {
    return RefuseKey("architectures", *architectures,
                     fmt::format("[\"{}\"] here", found->architecture));
  }
  return found->family;
}

}  // namespace

std::string HfConfigJson(const ModelConfig& config, tensor::DType dtype,
                         const json::Object& token_ids) {
  const FamilyTraits& family = model::Traits(config.family);
  // Without an explicit null the special tokens get Hugging Face's defaults, and generation would
  // stop at an ordinary byte.
  json::Object out{
      {"architectures", json::Array{family.architecture}},
      {"dtype", TorchName(dtype)},
      {"initializer_range", ShortestDecimal(config.init_std)},
      {"model_type", family.name},
      {"tie_word_embeddings", config.tie_embeddings},
      {"torch_dtype", TorchName(dtype)},
      {"use_cache", true},
      {"vocab_size", config.vocab},
  };
  for (const std::string_view key : kTokenIds) {
    const auto found = std::ranges::find(token_ids, key, &json::Member::first);
    out.emplace_back(key, found == token_ids.end() ? Value() : found->second);
  }
  if (family.rotary) {
    WriteRotaryConfig(config, out);
  } else {
    WriteGpt2Config(config, out);
  }
  std::ranges::sort(out, {}, &json::Member::first);
  return json::Dump(Value(std::move(out)), 2) + "\n";
}

Result<ModelConfig> ParseHfConfig(std::string_view config_json) {
  LOOM_ASSIGN(const Value parsed, ParseObject(config_json));
  const HfFields fields(parsed);
  ModelConfig config;
  LOOM_ASSIGN(config.family, ReadFamily(fields));
  LOOM_RETURN_IF_ERROR(CheckNeutral(fields, kRules));
  LOOM_ASSIGN(config.vocab, fields.U32("vocab_size"));
  LOOM_ASSIGN(config.init_std, fields.F32("initializer_range", config.init_std));
  if (model::Traits(config.family).rotary) {
    LOOM_RETURN_IF_ERROR(ReadRotaryConfig(fields, config));
  } else {
    LOOM_RETURN_IF_ERROR(ReadGpt2Config(fields, config));
  }
  if (auto valid = model::Validate(config); !valid)
    return std::move(valid).error().Context("config.json");
  return config;
}

Result<json::Object> ParseTokenIds(std::string_view config_json) {
  LOOM_ASSIGN(const Value parsed, ParseObject(config_json));
  const HfFields fields(parsed);
  json::Object out;
  for (const std::string_view key : kTokenIds) {
    const Value* value = fields.Find(key);
    if (value == nullptr) continue;
    if (!IsTokenIds(*value)) return RefuseKey(key, *value, "a token id, a list of them, or null");
    out.emplace_back(key, *value);
  }
  return out;
}

}  // namespace loom::train
