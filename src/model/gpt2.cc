// GPT-2 (Radford et al. 2019): learned positions, pre-norm blocks with LayerNorm, full attention
// and a feed-forward network with the tanh form of GELU; biases everywhere. Hugging Face stores the
// matrices of the layers input-major, and so does Loom.
//
// Shape suffixes: R rows = B * T   B batch   T tokens   W width   H heads   D head_dim   F ffn
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <utility>
#include <vector>

#include "base/check.h"
#include "model/attention.h"
#include "model/network.h"

namespace loom::model {
namespace {

using tensor::InputMajorLinear;
using tensor::LayerNorm;
using tensor::Weight;

/// A matrix or a norm with its bias.
struct Affine {
  Weight weight, bias;
};
Affine Find(const WeightLookup& weight, const std::string& name) {
  return {weight({name + ".weight"}).front(), weight({name + ".bias"}).front()};
}

struct Layer {
  Affine attention_norm, qkv, out, ffn_norm, up, down;
};

class Gpt2 : public Network {
 public:
  Gpt2(const ModelConfig& config, const WeightLookup& weight) : config_(config) {
    embedding_ = weight({"transformer.wte.weight"}).front();
    positions_ = weight({"transformer.wpe.weight"}).front();
    layers_.reserve(config.layers);
    for (std::uint32_t i = 0; i < config.layers; ++i) {
      const std::string at = fmt::format("transformer.h.{}.", i);
      layers_.push_back({.attention_norm = Find(weight, at + "ln_1"),
                         .qkv = Find(weight, at + "attn.c_attn"),
                         .out = Find(weight, at + "attn.c_proj"),
                         .ffn_norm = Find(weight, at + "ln_2"),
                         .up = Find(weight, at + "mlp.c_fc"),
                         .down = Find(weight, at + "mlp.c_proj")});
    }
    final_norm_ = Find(weight, "transformer.ln_f");
    head_ = config.tie_embeddings ? embedding_ : weight({"lm_head.weight"}).front();
  }

  at::Tensor Hidden(const at::Tensor& x_RW, std::int64_t batch, std::int64_t length,
                    bool checkpointing) override {
    at::Tensor h_RW = tensor::AddPositions(x_RW, positions_, 0, length);
    for (const Layer& layer : layers_) {
      const auto block = [this, &layer, batch, length](const at::Tensor& in_RW) {
        return Block(in_RW, layer, batch, length,
                     [](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
                       return Attend(q, k, v);
                     });
      };
      h_RW = checkpointing ? tensor::Checkpoint(block, h_RW) : block(h_RW);
    }
    return Norm(h_RW, final_norm_);
  }

  at::Tensor HiddenNext(const at::Tensor& x_TW, KvCache& cache) override {
    const std::int64_t tokens = x_TW.size(0);
    LOOM_CHECK(tokens == 1 || cache.length() == 0, "{} tokens after {}", tokens, cache.length());
    at::Tensor h_TW = tensor::AddPositions(x_TW, positions_, cache.length(), tokens);
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      h_TW = Block(h_TW, layers_[i], 1, tokens,
                   [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
                     const auto [all_k, all_v] = cache.Append(i, k, v);
                     return Attend(q, all_k, all_v);
                   });
    }
    cache.Advance(tokens);
    return Norm(h_TW, final_norm_);
  }

  const Weight& embedding() const override { return embedding_; }
  const Weight& head() const override { return head_; }

 private:
  at::Tensor Norm(const at::Tensor& x_RW, const Affine& norm) const {
    return LayerNorm(x_RW, norm.weight, norm.bias, config_.norm_eps);
  }

  /// x + Attention(Norm(x)), then x + FeedForward(Norm(x)).
  template <class Attention>
  at::Tensor Block(const at::Tensor& x_RW, const Layer& layer, std::int64_t batch,
                   std::int64_t length, const Attention& attention) const {
    const at::Tensor a_RW = Norm(x_RW, layer.attention_norm);
    const at::Tensor qkv_BT3HD = InputMajorLinear(a_RW, layer.qkv.weight, layer.qkv.bias)
                                     .view({batch, length, 3, config_.heads, config_.head_dim});
    const at::Tensor qkv_3BHTD = qkv_BT3HD.permute({2, 0, 3, 1, 4});
    const at::Tensor o_BHTD = attention(qkv_3BHTD[0], qkv_3BHTD[1], qkv_3BHTD[2]);
    const at::Tensor o_RW = o_BHTD.transpose(1, 2).reshape({batch * length, -1});
    const at::Tensor r_RW = x_RW + InputMajorLinear(o_RW, layer.out.weight, layer.out.bias);

    const at::Tensor f_RW = Norm(r_RW, layer.ffn_norm);
    const at::Tensor u_RF =
        at::gelu(InputMajorLinear(f_RW, layer.up.weight, layer.up.bias), "tanh");
    return r_RW + InputMajorLinear(u_RF, layer.down.weight, layer.down.bias);
  }

  ModelConfig config_;
  Weight embedding_, positions_, head_;
  std::vector<Layer> layers_;
  Affine final_norm_;
};

}  // namespace

std::unique_ptr<Network> MakeGpt2(const ModelConfig& config, const WeightLookup& weight) {
  return std::make_unique<Gpt2>(config, weight);
}

}  // namespace loom::model
