// Sizes, limits and names of models; see config.h.
#include "model/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "agreed/random.h"
#include "base/check.h"
#include "base/nearest.h"

namespace loom::model {
namespace {

constexpr std::uint32_t kMaxVocab = 1u << 24;
constexpr std::uint32_t kMaxLayers = 1024;
constexpr std::uint32_t kMaxWidth = 1u << 17;
constexpr std::uint32_t kMaxHeads = 4096;
constexpr std::uint32_t kMaxHeadDim = 1024;
constexpr std::uint32_t kMaxFfn = 1u << 20;
constexpr std::uint32_t kMaxContext = 1u << 24;
constexpr std::uint64_t kMaxParameters = 1ull << 40;

Status InRange(std::string_view field, std::uint32_t value, std::uint32_t low, std::uint32_t high) {
  if (value >= low && value <= high) return {};
  return MakeError(Code::kInvalid,
                   fmt::format("model.{} is {}, allowed are {} to {}", field, value, low, high));
}

Status Multiple(std::string_view field, std::uint32_t value, std::uint32_t of) {
  if (value % of == 0) return {};
  return MakeError(Code::kInvalid,
                   fmt::format("model.{} is {}, it must be a multiple of {}", field, value, of));
}

Status FloatIn(std::string_view field, float value, float low, float high) {
  if (value >= low && value <= high) return {};  // false for NaN
  return MakeError(Code::kInvalid,
                   fmt::format("model.{} is {}, allowed are {} to {}", field, value, low, high));
}

struct NamedPreset {
  std::string_view name;
  std::uint32_t vocab, layers, width, heads, kv_heads, head_dim, ffn, context;
  bool tie;
};

// Smallest first. "nano" has the sizes of nanoGPT's CPU example; 1b and 7b those of TinyLlama and
// Llama 2. The small ones are planned for byte or character vocabularies.
constexpr NamedPreset kPresets[] = {
    {"loom-0.2m", 256, 4, 64, 4, 4, 16, 176, 64, true},
    {"nano", 256, 4, 128, 4, 4, 32, 344, 64, true},
    {"loom-1m", 256, 6, 128, 4, 2, 32, 352, 128, true},
    {"loom-10m", 256, 6, 384, 6, 6, 64, 1024, 256, true},
    {"loom-60m", 32000, 14, 512, 8, 8, 64, 1376, 1024, true},
    {"loom-125m", 50304, 12, 768, 12, 12, 64, 2048, 1024, true},
    {"loom-350m", 50304, 24, 1024, 16, 16, 64, 2816, 1024, true},
    {"loom-1b", 32000, 22, 2048, 32, 4, 64, 5632, 2048, false},
    {"loom-7b", 32000, 32, 4096, 32, 32, 128, 11008, 4096, false},
};

bool EndsWith(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

}  // namespace

Status Validate(const ModelConfig& config) {
  if (config.arch != "llama") {
    return MakeError(Code::kInvalid, fmt::format("model.arch is \"{:.40}\"", config.arch),
                     "the only family so far is \"llama\"");
  }
  LOOM_RETURN_IF_ERROR(InRange("vocab", config.vocab, 2, kMaxVocab));
  LOOM_RETURN_IF_ERROR(InRange("layers", config.layers, 1, kMaxLayers));
  LOOM_RETURN_IF_ERROR(InRange("width", config.width, 8, kMaxWidth));
  // Multiples of 8 and 2 keep q|k|v and gate|up side by side in the flat buffer (16-element
  // padding).
  LOOM_RETURN_IF_ERROR(Multiple("width", config.width, 8));
  LOOM_RETURN_IF_ERROR(InRange("heads", config.heads, 1, kMaxHeads));
  LOOM_RETURN_IF_ERROR(InRange("kv_heads", config.kv_heads, 1, kMaxHeads));
  if (config.heads % config.kv_heads != 0) {
    return MakeError(Code::kInvalid,
                     fmt::format("model.kv_heads is {}, which does not divide model.heads = {}",
                                 config.kv_heads, config.heads),
                     "each key/value head serves the same number of query heads");
  }
  LOOM_RETURN_IF_ERROR(InRange("head_dim", config.head_dim, 2, kMaxHeadDim));
  LOOM_RETURN_IF_ERROR(Multiple("head_dim", config.head_dim, 2));
  LOOM_RETURN_IF_ERROR(InRange("ffn", config.ffn, 2, kMaxFfn));
  LOOM_RETURN_IF_ERROR(Multiple("ffn", config.ffn, 2));
  if (config.attention_bias) {  // biases lie side by side too, and only padding-free ones do
    LOOM_RETURN_IF_ERROR(Multiple("heads * head_dim", config.heads * config.head_dim, 16));
    LOOM_RETURN_IF_ERROR(Multiple("kv_heads * head_dim", config.kv_heads * config.head_dim, 16));
  }
  if (config.mlp_bias) LOOM_RETURN_IF_ERROR(Multiple("ffn", config.ffn, 16));
  LOOM_RETURN_IF_ERROR(InRange("context", config.context, 1, kMaxContext));
  LOOM_RETURN_IF_ERROR(FloatIn("rope_theta", config.rope_theta, 1.0f, 1e12f));
  LOOM_RETURN_IF_ERROR(FloatIn("norm_eps", config.norm_eps, 1e-12f, 1e-1f));
  LOOM_RETURN_IF_ERROR(FloatIn("init_std", config.init_std, 0.0f, 10.0f));
  const RopeScaling& rope = config.rope_scaling;
  if (rope.kind != RopeScalingKind::kNone) {
    LOOM_RETURN_IF_ERROR(FloatIn("rope_scaling.factor", rope.factor, 1.0f, 1e6f));
  }
  if (rope.kind == RopeScalingKind::kLlama3) {
    LOOM_RETURN_IF_ERROR(
        FloatIn("rope_scaling.low_freq_factor", rope.low_freq_factor, 1e-6f, 1e6f));
    LOOM_RETURN_IF_ERROR(
        FloatIn("rope_scaling.high_freq_factor", rope.high_freq_factor, 1e-6f, 1e6f));
    LOOM_RETURN_IF_ERROR(
        InRange("rope_scaling.original_context", rope.original_context, 1, kMaxContext));
    if (rope.high_freq_factor <= rope.low_freq_factor) {
      return MakeError(Code::kInvalid,
                       fmt::format("model.rope_scaling.high_freq_factor is {}, it must be above "
                                   "low_freq_factor = {}",
                                   rope.high_freq_factor, rope.low_freq_factor));
    }
  }
  if (ParameterCount(config) > kMaxParameters) {
    return MakeError(Code::kLimit,
                     fmt::format("the model would have {} parameters, the limit is {}",
                                 ParameterCount(config), kMaxParameters));
  }
  return {};
}

Result<ModelConfig> Preset(std::string_view name) {
  std::vector<std::string_view> names;
  for (const NamedPreset& preset : kPresets) {
    if (preset.name == name) {
      ModelConfig config;
      config.vocab = preset.vocab;
      config.layers = preset.layers;
      config.width = preset.width;
      config.heads = preset.heads;
      config.kv_heads = preset.kv_heads;
      config.head_dim = preset.head_dim;
      config.ffn = preset.ffn;
      config.context = preset.context;
      config.tie_embeddings = preset.tie;
      return config;
    }
    names.push_back(preset.name);
  }
  const std::string_view nearest = Nearest(name, names);
  return MakeError(Code::kNotFound, fmt::format("there is no model preset \"{:.40}\"", name),
                   fmt::format("{}presets: {}",
                               nearest.empty() ? "" : fmt::format("did you mean \"{}\"? ", nearest),
                               fmt::join(names, ", ")));
}

std::vector<std::string> PresetNames() {
  std::vector<std::string> names;
  for (const NamedPreset& preset : kPresets) names.emplace_back(preset.name);
  return names;
}

std::vector<agreed::TensorShape> ParameterShapes(const ModelConfig& config) {
  const std::uint64_t width = config.width;
  const std::uint64_t q_rows = std::uint64_t{config.heads} * config.head_dim;
  const std::uint64_t kv_rows = std::uint64_t{config.kv_heads} * config.head_dim;
  const std::uint64_t ffn = config.ffn;
  std::vector<agreed::TensorShape> shapes;
  const auto add = [&](std::string name, std::vector<std::uint64_t> shape) {
    shapes.push_back({std::move(name), std::move(shape)});
  };
  add("model.embed_tokens.weight", {config.vocab, width});
  for (std::uint32_t layer = 0; layer < config.layers; ++layer) {
    const std::string at = fmt::format("model.layers.{}.", layer);
    add(at + "self_attn.q_proj.weight", {q_rows, width});
    add(at + "self_attn.k_proj.weight", {kv_rows, width});
    add(at + "self_attn.v_proj.weight", {kv_rows, width});
    add(at + "self_attn.o_proj.weight", {width, q_rows});
    if (config.attention_bias) {
      add(at + "self_attn.q_proj.bias", {q_rows});
      add(at + "self_attn.k_proj.bias", {kv_rows});
      add(at + "self_attn.v_proj.bias", {kv_rows});
      add(at + "self_attn.o_proj.bias", {width});
    }
    add(at + "mlp.gate_proj.weight", {ffn, width});
    add(at + "mlp.up_proj.weight", {ffn, width});
    add(at + "mlp.down_proj.weight", {width, ffn});
    if (config.mlp_bias) {
      add(at + "mlp.gate_proj.bias", {ffn});
      add(at + "mlp.up_proj.bias", {ffn});
      add(at + "mlp.down_proj.bias", {width});
    }
    add(at + "input_layernorm.weight", {width});
    add(at + "post_attention_layernorm.weight", {width});
  }
  add("model.norm.weight", {width});
  if (!config.tie_embeddings) add("lm_head.weight", {config.vocab, width});
  return shapes;
}

Result<agreed::TileGrid> MakeGrid(const ModelConfig& config) {
  LOOM_RETURN_IF_ERROR(Validate(config));
  return agreed::TileGrid::Make(ParameterShapes(config));
}

std::uint64_t ParameterCount(const ModelConfig& config) {
  const std::uint64_t width = config.width;
  const std::uint64_t q_rows = std::uint64_t{config.heads} * config.head_dim;
  const std::uint64_t kv_rows = std::uint64_t{config.kv_heads} * config.head_dim;
  const std::uint64_t ffn = config.ffn;
  std::uint64_t layer = 2 * q_rows * width + 2 * kv_rows * width + 3 * ffn * width + 2 * width;
  if (config.attention_bias) layer += q_rows + 2 * kv_rows + width;
  if (config.mlp_bias) layer += 2 * ffn + width;
  const std::uint64_t embeddings = (config.tie_embeddings ? 1u : 2u) * (config.vocab * width);
  return embeddings + config.layers * layer + width;
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
    if (shape.shape.size() >= 2) {
      const bool writes_residual =
          EndsWith(shape.name, "o_proj.weight") || EndsWith(shape.name, "down_proj.weight");
      agreed::FillNormal(values, seed, t, writes_residual ? residual_std : config.init_std);
    } else if (EndsWith(shape.name, "norm.weight")) {
      std::fill(values.begin(), values.end(), 1.0f);
    }
  }
}

std::uint64_t ActivationBytes(const ModelConfig& config, const ActivationPlan& plan) {
  const std::uint64_t tokens = plan.batch * plan.length;
  const std::uint64_t element = plan.bf16 ? 2 : 4;
  const std::uint64_t q_rows = std::uint64_t{config.heads} * config.head_dim;
  const std::uint64_t kv_rows = std::uint64_t{config.kv_heads} * config.head_dim;
  // Per token a block keeps: its input and the normed input of both halves, q, k, v, the attention
  // output and the second residual; gate, up and their product; the norms' scales and log-sum-exp.
  const std::uint64_t kept =
      4 * std::uint64_t{config.width} + 2 * q_rows + 2 * kv_rows + 3 * std::uint64_t{config.ffn};
  const std::uint64_t block = tokens * (kept * element + 4 * (2 + std::uint64_t{config.heads}));
  // While one block runs backward, gradients of its widest tensors live beside what it kept.
  const std::uint64_t transient =
      tokens * element * (2 * std::uint64_t{config.width} + 3 * std::uint64_t{config.ffn} + q_rows);
  const std::uint64_t inputs = tokens * config.width * element;
  const std::uint64_t chunk = std::min<std::uint64_t>(tokens, kLossChunkTokens);
  const std::uint64_t head = chunk * config.vocab * (plan.bf16 ? 6 : 4) + 3 * inputs;
  const std::uint64_t blocks =
      plan.checkpointing ? config.layers * inputs + block : config.layers * block;
  return blocks + std::max(transient, head);
}

double TrainFlopsPerToken(const ModelConfig& config, std::uint64_t length) {
  const std::uint64_t embedding = std::uint64_t{config.vocab} * config.width;
  const std::uint64_t in_matmuls = ParameterCount(config) - (config.tie_embeddings ? 0 : embedding);
  const double attention = 12.0 * config.layers * config.heads * config.head_dim / 2;
  return 6.0 * static_cast<double>(in_matmuls) + attention * static_cast<double>(length);
}

}  // namespace loom::model
