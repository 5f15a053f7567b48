// What config.json says about GPT-2.
#include "train/hf_fields.h"

namespace loom::train {
namespace {

using json::Value;
using model::ModelConfig;

/// The tanh form under its two names.
bool IsTanhGelu(const Value& value) { return IsOneOf(value, {"gelu_new", "gelu_pytorch_tanh"}); }

// The dropout rates (embd_pdrop, resid_pdrop, attn_pdrop) are of training alone; Loom has none.
constexpr NeutralRule kRules[] = {
    {"activation_function", IsTanhGelu, "\"gelu_new\""},
    {"scale_attn_weights", IsTrue, "true"},
    {"attention_bias", IsTrue, "GPT-2 with all its biases"},
    {"mlp_bias", IsTrue, "GPT-2 with all its biases"},
    {"rope_scaling", IsNever, "learned positions in GPT-2"},
    {"rope_parameters", IsNever, "learned positions in GPT-2"},
    {"sliding_window", IsNever, "null (full attention)"},
    {"num_key_value_heads", IsNever, "as many key and value heads as n_head"},
};

}  // namespace

Status ReadGpt2Config(const HfFields& fields, ModelConfig& c) {
  LOOM_RETURN_IF_ERROR(CheckNeutral(fields, kRules));
  LOOM_ASSIGN(c.layers, fields.U32("n_layer"));
  LOOM_ASSIGN(c.width, fields.U32("n_embd"));
  LOOM_ASSIGN(c.heads, fields.U32("n_head"));
  c.kv_heads = c.heads;
  c.head_dim = c.heads == 0 ? 0 : c.width / c.heads;
  // Beyond the limit on the width the product would wrap; Validate refuses the width first.
  LOOM_ASSIGN(c.ffn, fields.U32("n_inner", c.width > (1U << 28) ? 0 : 4 * c.width));
  LOOM_ASSIGN(c.context, fields.U32("n_positions", 1024));
  LOOM_ASSIGN(c.norm_eps, fields.F32("layer_norm_epsilon", 1e-5F));
  LOOM_ASSIGN(c.tie_embeddings, fields.Bool("tie_word_embeddings", true));
  return {};
}

void WriteGpt2Config(const ModelConfig& c, json::Object& out) {
  out.emplace_back("activation_function", "gelu_new");
  out.emplace_back("attn_pdrop", 0.0);
  out.emplace_back("embd_pdrop", 0.0);
  out.emplace_back("layer_norm_epsilon", ShortestDecimal(c.norm_eps));
  out.emplace_back("n_ctx", model::NumPositions(c));
  out.emplace_back("n_embd", c.width);
  out.emplace_back("n_head", c.heads);
  out.emplace_back("n_inner", c.ffn);
  out.emplace_back("n_layer", c.layers);
  out.emplace_back("n_positions", model::NumPositions(c));
  out.emplace_back("reorder_and_upcast_attn", false);
  out.emplace_back("resid_pdrop", 0.0);
  out.emplace_back("scale_attn_by_inverse_layer_idx", false);
  out.emplace_back("scale_attn_weights", true);
}

}  // namespace loom::train
