#include "model/family.h"

#include <fmt/format.h>

#include <cstddef>
#include <string>

namespace loom::model {
namespace {

constexpr FamilyTraits kFamilies[] = {
    // Touvron et al. 2023; also Llama 2 and 3, SmolLM, TinyLlama.
    {.family = Family::kLlama,
     .name = "llama",
     .architecture = "LlamaForCausalLM",
     .attention_bias = true,
     .mlp_bias = true},
    // Jiang et al. 2023: Llama with a sliding window in its first version.
    {.family = Family::kMistral,
     .name = "mistral",
     .architecture = "MistralForCausalLM",
     .window = true},
    // Yang et al. 2024; also Qwen 2.5.
    {.family = Family::kQwen2,
     .name = "qwen2",
     .architecture = "Qwen2ForCausalLM",
     .qkv_bias = true},
    // Yang et al. 2025.
    {.family = Family::kQwen3,
     .name = "qwen3",
     .architecture = "Qwen3ForCausalLM",
     .qk_norm = true,
     .attention_bias = true},
    // Radford et al. 2019.
    {.family = Family::kGpt2,
     .name = "gpt2",
     .architecture = "GPT2LMHeadModel",
     .prefix = "transformer.",
     .embedding = "transformer.wte.weight",
     .rotary = false,
     .qkv_bias = true},
};

/// `name` is set although the family has no such setting.
Error NoSetting(const ModelConfig& config, std::string_view name, std::string_view value) {
  return MakeError(Code::kInvalid,
                   fmt::format("model.{} is {}, which the family {} does not have", name, value,
                               Traits(config.family).name),
                   "leave it out, or choose another model.family");
}

}  // namespace

std::span<const FamilyTraits> Families() { return kFamilies; }

const FamilyTraits& Traits(Family family) { return kFamilies[static_cast<std::size_t>(family)]; }

bool HasQkvBias(const ModelConfig& config) {
  return config.attention_bias || Traits(config.family).qkv_bias;
}

Status ValidateFamily(const ModelConfig& config) {
  const FamilyTraits& traits = Traits(config.family);
  if (config.attention_bias && !traits.attention_bias)
    return NoSetting(config, "attention_bias", "true");
  if (config.mlp_bias && !traits.mlp_bias) return NoSetting(config, "mlp_bias", "true");
  if (config.window != 0 && !traits.window)
    return NoSetting(config, "window", std::to_string(config.window));
  if (traits.rotary) {
    if (config.head_dim % 2 == 0) return {};
    return MakeError(
        Code::kInvalid,
        fmt::format("model.head_dim is {}, it must be a multiple of 2", config.head_dim),
        "the rotation turns pairs of values");
  }
  if (config.rope_theta != ModelConfig().rope_theta)
    return NoSetting(config, "rope_theta", fmt::format("{}", config.rope_theta));
  if (config.rope_scaling.kind != RopeScalingKind::kNone)
    return NoSetting(config, "rope_scaling", "set");
  if (config.kv_heads != config.heads)
    return NoSetting(config, "kv_heads",
                     fmt::format("{} beside {} heads", config.kv_heads, config.heads));
  if (std::uint64_t{config.heads} * config.head_dim != config.width) {
    return MakeError(Code::kInvalid,
                     fmt::format("model.heads * head_dim is {} * {}, the family {} needs "
                                 "model.width = {}",
                                 config.heads, config.head_dim, traits.name, config.width),
                     "leave head_dim out, and make width a multiple of heads");
  }
  return {};
}

}  // namespace loom::model
