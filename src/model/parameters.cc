// The parameters of every family by name and shape, and their first values; see config.h.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "agreed/random.h"
#include "base/check.h"
#include "model/family.h"

namespace loom::model {
namespace {

using Shapes = std::vector<agreed::TensorShape>;

/// Llama and its relatives.
void AddRotaryLayer(const ModelConfig& config, std::uint32_t layer, Shapes& out) {
  const std::uint64_t width = config.width;
  const std::uint64_t q_rows = std::uint64_t{config.heads} * config.head_dim;
  const std::uint64_t kv_rows = std::uint64_t{config.kv_heads} * config.head_dim;
  const std::uint64_t ffn = config.ffn;
  const std::string attention = fmt::format("model.layers.{}.self_attn.", layer);
  const std::string mlp = fmt::format("model.layers.{}.mlp.", layer);
  out.push_back({attention + "q_proj.weight", {q_rows, width}});
  out.push_back({attention + "k_proj.weight", {kv_rows, width}});
  out.push_back({attention + "v_proj.weight", {kv_rows, width}});
  out.push_back({attention + "o_proj.weight", {width, q_rows}});
  if (HasQkvBias(config)) {
    out.push_back({attention + "q_proj.bias", {q_rows}});
    out.push_back({attention + "k_proj.bias", {kv_rows}});
    out.push_back({attention + "v_proj.bias", {kv_rows}});
  }
  if (config.attention_bias) out.push_back({attention + "o_proj.bias", {width}});
  if (Traits(config.family).qk_norm) {
    out.push_back({attention + "q_norm.weight", {config.head_dim}});
    out.push_back({attention + "k_norm.weight", {config.head_dim}});
  }
  out.push_back({mlp + "gate_proj.weight", {ffn, width}});
  out.push_back({mlp + "up_proj.weight", {ffn, width}});
  out.push_back({mlp + "down_proj.weight", {width, ffn}});
  if (config.mlp_bias) {
    out.push_back({mlp + "gate_proj.bias", {ffn}});
    out.push_back({mlp + "up_proj.bias", {ffn}});
    out.push_back({mlp + "down_proj.bias", {width}});
  }
  out.push_back({fmt::format("model.layers.{}.input_layernorm.weight", layer), {width}});
  out.push_back({fmt::format("model.layers.{}.post_attention_layernorm.weight", layer), {width}});
}

void AddGpt2Layer(const ModelConfig& config, std::uint32_t layer, Shapes& out) {
  const std::uint64_t width = config.width;
  const std::uint64_t ffn = config.ffn;
  const std::string at = fmt::format("transformer.h.{}.", layer);
  out.push_back({at + "ln_1.weight", {width}});
  out.push_back({at + "ln_1.bias", {width}});
  out.push_back({at + "attn.c_attn.weight", {width, 3 * width}});
  out.push_back({at + "attn.c_attn.bias", {3 * width}});
  out.push_back({at + "attn.c_proj.weight", {width, width}});
  out.push_back({at + "attn.c_proj.bias", {width}});
  out.push_back({at + "ln_2.weight", {width}});
  out.push_back({at + "ln_2.bias", {width}});
  out.push_back({at + "mlp.c_fc.weight", {width, ffn}});
  out.push_back({at + "mlp.c_fc.bias", {ffn}});
  out.push_back({at + "mlp.c_proj.weight", {ffn, width}});
  out.push_back({at + "mlp.c_proj.bias", {width}});
}

Shapes LayerShapes(const ModelConfig& config, std::uint32_t layer) {
  Shapes out;
  if (Traits(config.family).rotary) {
    AddRotaryLayer(config, layer, out);
  } else {
    AddGpt2Layer(config, layer, out);
  }
  return out;
}

/// What stands before the layers.
Shapes FirstShapes(const ModelConfig& config) {
  if (Traits(config.family).rotary)
    return {{"model.embed_tokens.weight", {config.vocab, config.width}}};
  return {{"transformer.wte.weight", {config.vocab, config.width}},
          {"transformer.wpe.weight", {NumPositions(config), config.width}}};
}

/// What stands behind them.
Shapes LastShapes(const ModelConfig& config) {
  Shapes out;
  if (Traits(config.family).rotary) {
    out = {{"model.norm.weight", {config.width}}};
  } else {
    out = {{"transformer.ln_f.weight", {config.width}}, {"transformer.ln_f.bias", {config.width}}};
  }
  if (!config.tie_embeddings) out.push_back({"lm_head.weight", {config.vocab, config.width}});
  return out;
}

std::uint64_t Count(const Shapes& shapes) {
  std::uint64_t count = 0;
  for (const agreed::TensorShape& shape : shapes) count += shape.Numel();
  return count;
}

bool WritesResidual(std::string_view name) {
  return name.ends_with("o_proj.weight") || name.ends_with("down_proj.weight") ||
         name.ends_with("c_proj.weight");
}

}  // namespace

Shapes NetworkShapes(const ModelConfig& config) {
  Shapes shapes = FirstShapes(config);
  for (std::uint32_t layer = 0; layer < config.layers; ++layer) {
    for (agreed::TensorShape& shape : LayerShapes(config, layer))
      shapes.push_back(std::move(shape));
  }
  for (agreed::TensorShape& shape : LastShapes(config)) shapes.push_back(std::move(shape));
  return shapes;
}

Result<agreed::TileGrid> MakeGrid(const ModelConfig& config) {
  LOOM_RETURN_IF_ERROR(Validate(config));
  return agreed::TileGrid::Make(ParameterShapes(config));
}

std::uint64_t ParameterCount(const ModelConfig& config) {
  return Count(FirstShapes(config)) + config.layers * Count(LayerShapes(config, 0)) +
         Count(LastShapes(config));
}

void InitWeights(const ModelConfig& config, const agreed::TileGrid& grid, std::uint64_t seed,
                 std::span<float> weights) {
  LOOM_CHECK(weights.size() == grid.flat_size(), "{} != {}", weights.size(), grid.flat_size());
  std::fill(weights.begin(), weights.end(), 0.0f);
  // sqrt is correctly rounded, so this scalar has the same bits everywhere.
  const float residual_std = config.init_std / std::sqrt(2.0f * static_cast<float>(config.layers));
  for (std::size_t t = 0; t < grid.tensors().size(); ++t) {
    const agreed::TensorShape& shape = grid.tensors()[t];
    const std::span<float> values = weights.subspan(grid.TensorOffset(t), shape.Numel());
    if (shape.name.ends_with(".lora_A.weight")) {
      agreed::FillNormal(values, seed, t,
                         1.0f / std::sqrt(3.0f * static_cast<float>(shape.shape[1])));
    } else if (shape.name.ends_with(".lora_B.weight")) {
      continue;  // so that the first step starts from what the network says by itself
    } else if (shape.shape.size() >= 2) {
      agreed::FillNormal(values, seed, t,
                         WritesResidual(shape.name) ? residual_std : config.init_std);
    } else if (shape.name.ends_with(".weight")) {  // of a norm
      std::fill(values.begin(), values.end(), 1.0f);
    }
  }
}

}  // namespace loom::model
