// What a model is, in numbers: sizes, validation, presets by name, the parameters in Hugging Face
// names and order, the first weights, and what a step will need in memory. No libtorch.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "agreed/tile_grid.h"
#include "base/result.h"

namespace loom::model {

/// The kind of transformer; family.h says what each one is.
enum class Family : std::uint8_t { kLlama, kMistral, kQwen2, kQwen3, kGpt2 };

/// How rotary frequencies are stretched beyond the context a model was first trained with.
enum class RopeScalingKind : std::uint8_t {
  kNone,
  kLinear,  ///< every frequency divided by factor
  kLlama3,  ///< low frequencies divided by factor, high ones kept, a ramp between
};

/// What of a network is trained: everything, everything but what patterns freeze, or low-rank
/// additions alone. What is not trained comes from elsewhere (the weights a run begins with).
struct Tuning {
  /// Patterns ("*", "?" and "[...]", as of file names) of parameters that keep their values.
  std::vector<std::string> freeze;
  /// LoRA (Hu et al. 2021): all parameters keep their values, and matrices W of the layers become
  /// W + alpha / rank * B A with A [rank, in], B [out, rank]. 0 = no.
  std::uint32_t lora_rank = 0;
  float lora_alpha = 0;
  std::vector<std::string> lora_targets;  ///< last parts of their modules' names, as in PEFT

  bool trains_all() const { return freeze.empty() && lora_rank == 0; }
  bool operator==(const Tuning&) const = default;
};

struct RopeScaling {
  RopeScalingKind kind = RopeScalingKind::kNone;
  float factor = 1.0f;
  float low_freq_factor = 1.0f;        ///< kLlama3 only
  float high_freq_factor = 4.0f;       ///< kLlama3 only
  std::uint32_t original_context = 0;  ///< kLlama3 only, tokens

  bool operator==(const RopeScaling&) const = default;
};

/// One decoder-only transformer. Counts are elements, heads, layers or tokens.
struct ModelConfig {
  Family family = Family::kLlama;
  std::uint32_t vocab = 0;  ///< number of token ids
  std::uint32_t layers = 0;
  std::uint32_t width = 0;     ///< size of the residual stream
  std::uint32_t heads = 0;     ///< query heads
  std::uint32_t kv_heads = 0;  ///< key/value heads; divides heads
  std::uint32_t head_dim = 0;  ///< usually width / heads; even where heads are rotated
  std::uint32_t ffn = 0;       ///< inner size of the feed-forward network
  std::uint32_t context = 0;   ///< longest sequence here, tokens
  /// Longest sequence that the model is made for, at least `context`; 0 = context. Learned
  /// positions have as many rows.
  std::uint32_t positions = 0;
  std::uint32_t window = 0;  ///< tokens that a token sees, itself included; 0 = all before it
  float rope_theta = 10000.0f;
  float norm_eps = 1e-5f;
  bool tie_embeddings = true;   ///< the output matrix is the embedding
  float init_std = 0.02f;       ///< standard deviation of the first matrices
  bool attention_bias = false;  ///< biases on q, k, v and o projections, where the family asks
  bool mlp_bias = false;        ///< biases on gate, up and down projections
  RopeScaling rope_scaling;
  Tuning tuning;

  bool operator==(const ModelConfig&) const = default;
};

/// ModelConfig::positions with its default applied.
inline std::uint32_t NumPositions(const ModelConfig& config) {
  return config.positions != 0 ? config.positions : config.context;
}

/// The same model for samples of `context` tokens, at most NumPositions; it keeps its positions.
ModelConfig ForContext(const ModelConfig& config, std::uint32_t context);

/// Checks every field against the stated limits; the error names field, value and limit.
Status Validate(const ModelConfig& config);

/// The named preset, e.g. "nano" or "loom-125m". Its vocab is the size the preset was planned for
/// (256 for "nano", 32000 or 50304 else); the caller sets it to the tokenizer's. kNotFound lists
/// the names and the nearest one.
Result<ModelConfig> Preset(std::string_view name);
/// The names of all presets, smallest model first.
std::vector<std::string> PresetNames();

/// All parameters of the network in Hugging Face names and row-major shapes, in the order of the
/// flat buffer: embedding, layers, final norm, and lm_head when untied. Matrices are [out, in],
/// those of GPT-2's layers [in, out], as Hugging Face stores them.
/// Requires: Validate(config) is ok.
std::vector<agreed::TensorShape> NetworkShapes(const ModelConfig& config);
/// Those that are trained, and therefore agreed: NetworkShapes without what is frozen, or the pairs
/// of LoRA in PEFT's names ("base_model.model.M.lora_A.weight", then lora_B, of each module M).
std::vector<agreed::TensorShape> ParameterShapes(const ModelConfig& config);
/// Those of NetworkShapes that keep their values.
std::vector<agreed::TensorShape> FrozenShapes(const ModelConfig& config);
/// The tile grid of ParameterShapes. Fails when Validate does.
Result<agreed::TileGrid> MakeGrid(const ModelConfig& config);
/// Number of values of the network, trained or not. Requires: Validate(config) is ok.
std::uint64_t ParameterCount(const ModelConfig& config);

/// The last parts of the names of a layer's matrices: what LoRA can be added to.
std::vector<std::string> LayerMatrices(const ModelConfig& config);
/// The names of A and B that LoRA adds to the matrix of this name.
struct LoraNames {
  std::string a, b;
};
/// None when the matrix is not one of the targets, or there is no LoRA.
std::optional<LoraNames> FindLora(const Tuning& tuning, std::string_view matrix);

/// Fills `weights` (flat buffer of the grid, padding zeroed) with the first weights: matrices
/// N(0, init_std), those that write into the residual stream (o_proj, down_proj, c_proj) divided by
/// sqrt(2 * layers), norms 1, biases 0; of LoRA A is N(0, 1 / (3 in)), the variance that PEFT draws
/// with, and B 0. Tensor t
/// draws from stream t of `seed`, through agreed::FillNormal: same bits on every machine.
void InitWeights(const ModelConfig& config, const agreed::TileGrid& grid, std::uint64_t seed,
                 std::span<float> weights);

/// Logits are made for this many tokens at a time, so that a large vocabulary needs little memory.
inline constexpr std::uint64_t kLossChunkTokens = 1024;

/// Peak bytes that a forward and backward of B sequences of T tokens keep beside weights and
/// gradients. An estimate (upper side), for plans and limits.
struct ActivationPlan {
  std::uint64_t batch = 1;     ///< B, sequences
  std::uint64_t length = 1;    ///< T, tokens
  bool bf16 = false;           ///< activations of 2 bytes instead of 4
  bool checkpointing = false;  ///< keep block inputs only, recompute one block at a time
};
std::uint64_t ActivationBytes(const ModelConfig& config, const ActivationPlan& plan);
/// Multiply-adds times two of one token's forward and backward (6 N + attention), for tok/s plans.
double TrainFlopsPerToken(const ModelConfig& config, std::uint64_t length);

}  // namespace loom::model
