// The families of transformers that Loom trains: what the models of one share beside their sizes,
// and which settings it has at all. A family is a row here, its parameters (parameters.cc), its
// network (llama.cc, gpt2.cc) and its config.json (train/hf_config.cc).
#pragma once

#include <span>
#include <string_view>

#include "model/config.h"

namespace loom::model {

struct FamilyTraits {
  Family family;
  std::string_view name;          ///< in run.toml, and model_type in Hugging Face's config.json
  std::string_view architecture;  ///< Hugging Face's class
  std::string_view prefix = "model.";  ///< of every parameter's name but lm_head's
  std::string_view embedding = "model.embed_tokens.weight";
  bool rotary = true;           ///< RoPE, RMSNorm, SwiGLU; else learned positions, LayerNorm, GELU
  bool qkv_bias = false;        ///< q, k and v projections always have biases
  bool qk_norm = false;         ///< an RMSNorm over each head's q and k, before the rotation
  bool attention_bias = false;  ///< ModelConfig::attention_bias can be set
  bool mlp_bias = false;        ///< ModelConfig::mlp_bias can be set
  bool window = false;          ///< ModelConfig::window can be set
};

/// All families, in the order of the enumeration.
std::span<const FamilyTraits> Families();
const FamilyTraits& Traits(Family family);
/// Whether q, k and v projections of this model have biases.
bool HasQkvBias(const ModelConfig& config);

/// Checks what depends on the family: settings that it does not have, sizes that it ties together.
/// The error names field, value and family.
Status ValidateFamily(const ModelConfig& config);

}  // namespace loom::model
