// Sizes, limits and names of models; see config.h.
#include "model/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/nearest.h"
#include "model/family.h"
#include "model/tuning.h"

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

}  // namespace

ModelConfig ForContext(const ModelConfig& config, std::uint32_t context) {
  ModelConfig out = config;
  out.context = context;
  out.positions = context < NumPositions(config) ? NumPositions(config) : 0;
  return out;
}

Status Validate(const ModelConfig& config) {
  LOOM_RETURN_IF_ERROR(InRange("vocab", config.vocab, 2, kMaxVocab));
  LOOM_RETURN_IF_ERROR(InRange("layers", config.layers, 1, kMaxLayers));
  LOOM_RETURN_IF_ERROR(InRange("width", config.width, 8, kMaxWidth));
  LOOM_RETURN_IF_ERROR(InRange("heads", config.heads, 1, kMaxHeads));
  LOOM_RETURN_IF_ERROR(InRange("kv_heads", config.kv_heads, 1, kMaxHeads));
  if (config.heads % config.kv_heads != 0) {
    return MakeError(Code::kInvalid,
                     fmt::format("model.kv_heads is {}, which does not divide model.heads = {}",
                                 config.kv_heads, config.heads),
                     "each key/value head serves the same number of query heads");
  }
  LOOM_RETURN_IF_ERROR(InRange("head_dim", config.head_dim, 2, kMaxHeadDim));
  LOOM_RETURN_IF_ERROR(InRange("ffn", config.ffn, 2, kMaxFfn));
  LOOM_RETURN_IF_ERROR(InRange("context", config.context, 1, kMaxContext));
  if (config.positions != 0) {
    LOOM_RETURN_IF_ERROR(InRange("positions", config.positions, config.context, kMaxContext));
  }
  LOOM_RETURN_IF_ERROR(InRange("window", config.window, 0, kMaxContext));
  LOOM_RETURN_IF_ERROR(FloatIn("rope_theta", config.rope_theta, 1.0f, 1e12f));
  LOOM_RETURN_IF_ERROR(FloatIn("norm_eps", config.norm_eps, 1e-12f, 1e-1f));
  LOOM_RETURN_IF_ERROR(FloatIn("init_std", config.init_std, 0.0f, 10.0f));
  const RopeScaling& rope = config.rope_scaling;
  RopeScaling meant = rope;  // without the numbers that its kind does not have
  if (rope.kind == RopeScalingKind::kNone) meant = {};
  if (rope.kind == RopeScalingKind::kLinear) meant = {rope.kind, rope.factor};
  if (rope != meant) {
    return MakeError(Code::kInvalid,
                     fmt::format("model.rope_scaling is {}, but numbers of another kind are set",
                                 rope.kind == RopeScalingKind::kNone ? "none" : "linear"),
                     "leave out the rope_* numbers that it does not have");
  }
  if (rope.kind != RopeScalingKind::kNone) {
    LOOM_RETURN_IF_ERROR(FloatIn("rope_factor", rope.factor, 1.0f, 1e6f));
  }
  if (rope.kind == RopeScalingKind::kLlama3) {
    LOOM_RETURN_IF_ERROR(FloatIn("rope_low_freq_factor", rope.low_freq_factor, 1e-6f, 1e6f));
    LOOM_RETURN_IF_ERROR(FloatIn("rope_high_freq_factor", rope.high_freq_factor, 1e-6f, 1e6f));
    LOOM_RETURN_IF_ERROR(InRange("rope_original_context", rope.original_context, 1, kMaxContext));
    if (rope.high_freq_factor <= rope.low_freq_factor) {
      return MakeError(Code::kInvalid,
                       fmt::format("model.rope_high_freq_factor is {}, it must be above "
                                   "rope_low_freq_factor = {}",
                                   rope.high_freq_factor, rope.low_freq_factor));
    }
  }
  LOOM_RETURN_IF_ERROR(ValidateFamily(config));
  if (ParameterCount(config) > kMaxParameters) {
    return MakeError(Code::kLimit,
                     fmt::format("the model would have {} parameters, the limit is {}",
                                 ParameterCount(config), kMaxParameters));
  }
  return ValidateTuning(config);
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
  const std::uint64_t learned_positions =
      Traits(config.family).rotary ? 0 : std::uint64_t{NumPositions(config)} * config.width;
  const std::uint64_t in_matmuls =
      ParameterCount(config) - (config.tie_embeddings ? 0 : embedding) - learned_positions;
  const double attention = 12.0 * config.layers * config.heads * config.head_dim / 2;
  return 6.0 * static_cast<double>(in_matmuls) + attention * static_cast<double>(length);
}

}  // namespace loom::model
