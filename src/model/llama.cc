// Llama (Touvron et al. 2023) and its relatives: pre-norm blocks of rotary grouped-query attention
// and a SwiGLU feed-forward network. Mistral narrows what a token sees; Qwen2 has biases on q, k
// and v; Qwen3 norms every head's q and k.
//
// Shape suffixes: R rows = B * T   B batch   T tokens   W width   H query heads   K key/value heads
//                 D head_dim   N = (H + 2K) D   F ffn   E = D / 2   S tokens in the cache
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <numbers>
#include <utility>
#include <vector>

#include "base/check.h"
#include "model/attention.h"
#include "model/family.h"
#include "model/network.h"

namespace loom::model {
namespace {

using tensor::Linear;
using tensor::RmsNorm;
using tensor::SplitRotate;
using tensor::Stack;
using tensor::SwiGlu;
using tensor::Weight;

/// Biases that a model does not have are empty, norms undefined.
struct Layer {
  Weight attention_norm, q_norm, k_norm, ffn_norm;
  Stack qkv, qkv_bias, out, out_bias;
  Stack gate_up, gate_up_bias, down, down_bias;
};

/// Rotary frequencies in fp32, as Hugging Face computes them: 1 / theta^(2i / D), then scaled.
at::Tensor Frequencies(const ModelConfig& config) {
  const at::Tensor exponent_E =
      at::arange(0, config.head_dim, 2, at::kFloat) / static_cast<double>(config.head_dim);
  const at::Tensor f_E = at::pow(config.rope_theta, exponent_E).reciprocal();
  const RopeScaling& scaling = config.rope_scaling;
  switch (scaling.kind) {
    case RopeScalingKind::kNone:
      return f_E;
    case RopeScalingKind::kLinear:
      return f_E / scaling.factor;
    case RopeScalingKind::kLlama3:
      break;
  }
  const auto length = static_cast<double>(scaling.original_context);
  const double low = scaling.low_freq_factor;
  const double high = scaling.high_freq_factor;
  const at::Tensor wave_E = (2 * std::numbers::pi) / f_E;
  const at::Tensor slow_E = f_E / scaling.factor;
  const at::Tensor s_E = (length / wave_E - low) / (high - low);
  const at::Tensor ramp_E = (1 - s_E) * slow_E + s_E * f_E;
  return at::where(wave_E < length / high, f_E, at::where(wave_E > length / low, slow_E, ramp_E));
}

class Llama : public Network {
 public:
  Llama(const ModelConfig& config, const WeightLookup& weight) : config_(config) {
    const auto one = [&](const std::string& name) { return weight({name}).front(); };
    embedding_ = one("model.embed_tokens.weight");
    for (std::uint32_t i = 0; i < config.layers; ++i) {
      const std::string at = fmt::format("model.layers.{}.", i);
      const std::string attn = at + "self_attn.", mlp = at + "mlp.";
      Layer layer;
      layer.attention_norm = one(at + "input_layernorm.weight");
      layer.qkv = weight({attn + "q_proj.weight", attn + "k_proj.weight", attn + "v_proj.weight"});
      layer.out = weight({attn + "o_proj.weight"});
      if (HasQkvBias(config))
        layer.qkv_bias = weight({attn + "q_proj.bias", attn + "k_proj.bias", attn + "v_proj.bias"});
      if (config.attention_bias) layer.out_bias = weight({attn + "o_proj.bias"});
      if (Traits(config.family).qk_norm) {
        layer.q_norm = one(attn + "q_norm.weight");
        layer.k_norm = one(attn + "k_norm.weight");
      }
      layer.ffn_norm = one(at + "post_attention_layernorm.weight");
      layer.gate_up = weight({mlp + "gate_proj.weight", mlp + "up_proj.weight"});
      layer.down = weight({mlp + "down_proj.weight"});
      if (config.mlp_bias) {
        layer.gate_up_bias = weight({mlp + "gate_proj.bias", mlp + "up_proj.bias"});
        layer.down_bias = weight({mlp + "down_proj.bias"});
      }
      layers_.push_back(std::move(layer));
    }
    final_norm_ = one("model.norm.weight");
    head_ = config.tie_embeddings ? embedding_ : one("lm_head.weight");
  }

  at::Tensor Hidden(const at::Tensor& x_RW, std::int64_t batch, std::int64_t length,
                    bool checkpointing) override {
    const Positions at = At(0, length);
    at::Tensor h_RW = x_RW;
    for (const Layer& layer : layers_) {
      const auto block = [this, &layer, at, batch, length](const at::Tensor& in_RW) {
        return Block(in_RW, layer, batch, length, at,
                     [this](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
                       return Attend(q, k, v, config_.window);
                     });
      };
      h_RW = checkpointing ? tensor::Checkpoint(block, h_RW) : block(h_RW);
    }
    return RmsNorm(h_RW, final_norm_, config_.norm_eps);
  }

  at::Tensor HiddenNext(const at::Tensor& x_TW, KvCache& cache) override {
    const std::int64_t tokens = x_TW.size(0);
    LOOM_CHECK(tokens == 1 || cache.length() == 0, "{} tokens after {}", tokens, cache.length());
    const Positions at = At(cache.length(), tokens);
    at::Tensor h_TW = x_TW;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      h_TW = Block(h_TW, layers_[i], 1, tokens, at,
                   [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
                     const auto [all_k, all_v] = cache.Append(i, k, v);
                     return Attend(q, all_k, all_v, config_.window);
                   });
    }
    cache.Advance(tokens);
    return RmsNorm(h_TW, final_norm_, config_.norm_eps);
  }

  const Weight& embedding() const override { return embedding_; }
  const Weight& head() const override { return head_; }

 private:
  /// cos and sin of the angles at the positions of T tokens, [T, E] each.
  struct Positions {
    at::Tensor cos_TE, sin_TE;
  };

  /// x + Attention(Norm(x)), then x + FeedForward(Norm(x)).
  template <class Attention>
  at::Tensor Block(const at::Tensor& x_RW, const Layer& layer, std::int64_t batch,
                   std::int64_t length, const Positions& at, const Attention& attention) const {
    const at::Tensor a_RW = RmsNorm(x_RW, layer.attention_norm, config_.norm_eps);
    at::Tensor qkv_RN = Linear(a_RW, layer.qkv, layer.qkv_bias);
    if (layer.q_norm.defined()) qkv_RN = NormHeads(qkv_RN, layer);
    const auto [q_BHTD, k_BKTD, v_BKTD] =
        SplitRotate(qkv_RN, at.cos_TE, at.sin_TE,
                    {batch, length, config_.heads, config_.kv_heads, config_.head_dim});
    const at::Tensor o_BHTD = attention(q_BHTD, k_BKTD, v_BKTD);
    const at::Tensor o_RM = o_BHTD.transpose(1, 2).reshape({batch * length, -1});
    const at::Tensor r_RW = x_RW + Linear(o_RM, layer.out, layer.out_bias);

    const at::Tensor f_RW = RmsNorm(r_RW, layer.ffn_norm, config_.norm_eps);
    const at::Tensor s_RF = SwiGlu(Linear(f_RW, layer.gate_up, layer.gate_up_bias));
    return r_RW + Linear(s_RF, layer.down, layer.down_bias);
  }

  /// q and k of rows q|k|v with each head normed by itself.
  at::Tensor NormHeads(const at::Tensor& qkv_RN, const Layer& layer) const {
    const std::int64_t rows = qkv_RN.size(0);
    const std::int64_t dim = config_.head_dim;
    const std::int64_t q_size = dim * config_.heads;
    const std::int64_t k_size = dim * config_.kv_heads;
    const auto normed = [&](std::int64_t first, std::int64_t size, const Weight& norm) {
      const at::Tensor x_SD = qkv_RN.narrow(1, first, size).reshape({-1, dim});
      return RmsNorm(x_SD, norm, config_.norm_eps).view({rows, size});
    };
    return at::cat({normed(0, q_size, layer.q_norm), normed(q_size, k_size, layer.k_norm),
                    qkv_RN.narrow(1, q_size + k_size, k_size)},
                   1);
  }

  Positions At(std::int64_t first, std::int64_t tokens) {
    const std::int64_t need = first + tokens;
    if (!table_.cos_TE.defined() || table_.cos_TE.size(0) < need) {
      const std::int64_t room =
          std::min<std::int64_t>(config_.context, std::max<std::int64_t>(2 * need, 64));
      const at::Tensor angle_TE = at::outer(at::arange(room, at::kFloat), Frequencies(config_));
      const auto device = embedding_.value().device();
      table_ = {angle_TE.cos().to(device), angle_TE.sin().to(device)};
    }
    return {table_.cos_TE.narrow(0, first, tokens), table_.sin_TE.narrow(0, first, tokens)};
  }

  ModelConfig config_;
  Weight embedding_, final_norm_, head_;
  std::vector<Layer> layers_;
  Positions table_;  // grows up to the context
};

}  // namespace

std::unique_ptr<Network> MakeLlama(const ModelConfig& config, const WeightLookup& weight) {
  return std::make_unique<Llama>(config, weight);
}

}  // namespace loom::model
