// LoRA and freezing: the additions are what their definition says, gradients are those of finite
// differences or of the whole network, and what cannot be meant is refused by name.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "agreed/flat_buffer.h"
#include "agreed/random.h"
#include "model/family.h"
#include "model/model.h"
#include "tensor/runtime.h"

namespace loom::model {
namespace {

using Ids = std::vector<std::int32_t>;

ModelConfig Small(Family family) {
  ModelConfig c;
  c.family = family;
  const bool rotary = Traits(family).rotary;
  c.vocab = 19, c.layers = 2, c.width = 15, c.heads = 3, c.kv_heads = rotary ? 1 : 3;
  c.head_dim = rotary ? 6 : 5, c.ffn = 21, c.context = 8;
  return c;
}

Tuning Lora(std::vector<std::string> targets) { return {{}, 3, 6, std::move(targets)}; }

/// Every value of every tensor N(0, .3), by the tensor's name; norms near 1.
std::vector<float> Drawn(const agreed::TileGrid& grid) {
  std::vector<float> out(grid.flat_size());
  for (std::size_t t = 0; t < grid.tensors().size(); ++t) {
    const agreed::TensorShape& tensor = grid.tensors()[t];
    std::uint64_t stream = 0;
    for (const char c : tensor.name) stream = 31 * stream + static_cast<unsigned char>(c);
    const std::span<float> values = std::span(out).subspan(grid.TensorOffset(t), tensor.Numel());
    agreed::FillNormal(values, 5, stream, 0.3f);
    if (tensor.shape.size() == 1 && tensor.name.ends_with(".weight"))
      for (float& x : values) x += 1;
  }
  return out;
}

std::span<float> TensorOf(const agreed::TileGrid& grid, std::span<float> flat,
                          const std::string& name) {
  for (std::size_t t = 0; t < grid.tensors().size(); ++t) {
    if (grid.tensors()[t].name == name)
      return flat.subspan(grid.TensorOffset(t), grid.tensors()[t].Numel());
  }
  ADD_FAILURE() << "no tensor " << name;
  return {};
}

struct Rig {
  explicit Rig(const ModelConfig& c) : config(c) {
    grid = MakeGrid(config).value();
    frozen_grid = agreed::TileGrid::Make(FrozenShapes(config)).value();
    weights = Drawn(grid);
    frozen = Drawn(frozen_grid);
    grads.resize(weights.size());
    model = Model::Create(config, grid, Cpu(), weights, grads, frozen).value();
  }
  static ModelOptions Cpu() {
    ModelOptions options;
    options.device = tensor::Device::kCpu;
    return options;
  }
  static Ids Windows() {
    const agreed::Philox random(3, 0);
    Ids ids;
    for (std::uint64_t i = 0; i < 18; ++i)
      ids.push_back(static_cast<std::int32_t>(random.Below(i, 19)));
    return ids;
  }
  double Loss() { return model->Loss(Windows(), 2, 8).value().nll; }

  ModelConfig config;
  agreed::TileGrid grid, frozen_grid;
  std::vector<float> weights, frozen, grads;
  std::unique_ptr<Model> model;
};

class TuningTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(tensor::ConfigureRuntime({1, true}).ok()); }
};

/// Llama with a part of q|k|v, which lie side by side, GPT-2 with its matrices that stand the other
/// way round.
std::vector<ModelConfig> WithLora() {
  ModelConfig some = Small(Family::kLlama), all = Small(Family::kQwen2),
              gpt2 = Small(Family::kGpt2);
  some.tuning = Lora({"k_proj", "o_proj", "up_proj"});
  all.tuning = Lora({"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"});
  gpt2.tuning = Lora({"c_attn", "mlp.c_proj", "c_fc"});
  return {some, all, gpt2};
}

TEST_F(TuningTest, LoraEqualsTheMergedNetwork) {
  for (const ModelConfig& config : WithLora()) {
    Rig rig(config);
    ModelConfig whole = config;
    whole.tuning = {};
    Rig merged(whole);
    std::copy(rig.frozen.begin(), rig.frozen.end(), merged.weights.begin());
    std::size_t matrices = 0;
    for (const agreed::TensorShape& tensor : NetworkShapes(config)) {
      const auto lora = FindLora(config.tuning, tensor.name);
      if (!lora || tensor.shape.size() != 2) continue;
      ++matrices;
      const auto a = TensorOf(rig.grid, rig.weights, lora->a);
      const auto b = TensorOf(rig.grid, rig.weights, lora->b);
      const auto w = TensorOf(merged.grid, merged.weights, tensor.name);
      const bool input_major = config.family == Family::kGpt2;
      const std::size_t out = tensor.shape[input_major ? 1 : 0];
      const std::size_t in = tensor.shape[input_major ? 0 : 1];
      for (std::size_t o = 0; o < out; ++o) {
        for (std::size_t i = 0; i < in; ++i) {
          double sum = 0;
          for (std::size_t n = 0; n < 3; ++n)
            sum += static_cast<double>(b[o * 3 + n]) * static_cast<double>(a[n * in + i]);
          w[input_major ? i * out + o : o * in + i] += static_cast<float>(2 * sum);
        }
      }
    }
    EXPECT_EQ(matrices * 2, rig.grid.tensors().size());
    merged.model->WeightsChanged();
    const double nll = merged.Loss();
    EXPECT_NEAR(rig.Loss(), nll, 2e-6 * nll) << Traits(config.family).name;
    std::fill(rig.weights.begin(), rig.weights.end(), 0.0f);
    EXPECT_GT(std::abs(rig.Loss() - nll), 1e-3 * nll) << "the additions do something";
  }
}

TEST_F(TuningTest, GradientOfLoraEqualsFiniteDifferences) {
  for (const ModelConfig& config : WithLora()) {
    Rig rig(config);
    (void)rig.model->ForwardBackward(Rig::Windows(), 2, 8, 1.0f).value();
    const agreed::Philox random(11, 0);
    for (std::size_t t = 0; t < rig.grid.tensors().size(); ++t) {
      SCOPED_TRACE(rig.grid.tensors()[t].name);
      const std::uint64_t begin = rig.grid.TensorOffset(t);
      const std::uint64_t count = rig.grid.tensors()[t].Numel();
      std::vector<float> direction(count);
      double slope = 0, norm = 0;
      for (std::uint64_t i = 0; i < count; ++i) {
        direction[i] = random.U64(begin + i) % 2 == 0 ? 1.0f : -1.0f;
        const auto g = static_cast<double>(rig.grads[begin + i]);
        slope += static_cast<double>(direction[i]) * g;
        norm += g * g;
      }
      const float step = 4e-3f / std::sqrt(static_cast<float>(count));
      const auto at = [&](float h) {
        const std::vector<float> kept = rig.weights;
        for (std::uint64_t i = 0; i < count; ++i) rig.weights[begin + i] += h * direction[i];
        const double nll = rig.Loss();
        std::copy(kept.begin(), kept.end(), rig.weights.begin());
        return nll;
      };
      const double measured = (at(step) - at(-step)) / (2 * static_cast<double>(step));
      const double scale = std::sqrt(norm * static_cast<double>(count));
      EXPECT_GT(scale, 0);
      EXPECT_NEAR(measured, slope, 3e-3 * scale);
    }
  }
}

TEST_F(TuningTest, FreshLoraChangesNothingAndLearns) {
  for (const ModelConfig& config : WithLora()) {
    Rig rig(config);
    InitWeights(config, rig.grid, 7, rig.weights);
    ModelConfig whole = config;
    whole.tuning = {};
    Rig plain(whole);
    std::copy(rig.frozen.begin(), rig.frozen.end(), plain.weights.begin());
    plain.model->WeightsChanged();
    EXPECT_EQ(rig.Loss(), plain.Loss());
    const double before = rig.Loss();
    for (int k = 0; k < 20; ++k) {
      std::fill(rig.grads.begin(), rig.grads.end(), 0.0f);
      (void)rig.model->ForwardBackward(Rig::Windows(), 2, 8, 1.0f / 16).value();
      for (std::size_t i = 0; i < rig.weights.size(); ++i) rig.weights[i] -= 0.1f * rig.grads[i];
    }
    EXPECT_LT(rig.Loss(), before);
  }
}

TEST_F(TuningTest, FrozenParametersLeaveTheOthersGradientsAsTheyWere) {
  for (const Family family : {Family::kLlama, Family::kGpt2}) {
    ModelConfig whole = Small(family), part = whole;
    part.tuning.freeze =
        family == Family::kLlama
            ? std::vector<std::string>{"model.embed*", "*.0.self_attn.[qk]_proj*", "*norm.weight"}
            : std::vector<std::string>{"*.w[tp]e.*", "*.ln_1.weight", "*c_attn*"};
    Rig a(whole), b(part);
    EXPECT_LT(b.grid.num_elements(), a.grid.num_elements());
    EXPECT_EQ(b.grid.num_elements() + b.frozen_grid.num_elements(), a.grid.num_elements());
    const Ids ids = Rig::Windows();
    const double nll = a.model->ForwardBackward(ids, 2, 8, 1.0f).value().nll;
    EXPECT_NEAR(b.model->ForwardBackward(ids, 2, 8, 1.0f).value().nll, nll, 1e-6 * nll);
    for (const agreed::TensorShape& tensor : b.grid.tensors()) {
      const auto whole_grad = TensorOf(a.grid, a.grads, tensor.name);
      const auto part_grad = TensorOf(b.grid, b.grads, tensor.name);
      double most = 0, size = 0;
      for (std::size_t i = 0; i < whole_grad.size(); ++i) {
        most = std::max(most, static_cast<double>(std::abs(whole_grad[i] - part_grad[i])));
        size = std::max(size, static_cast<double>(std::abs(whole_grad[i])));
      }
      EXPECT_LE(most, 1e-5 * size) << tensor.name;
      EXPECT_GT(size, 0) << tensor.name;
    }
  }
}

TEST_F(TuningTest, WhatCannotBeMeantIsRefused) {
  const auto refused = [](const ModelConfig& config, std::string_view told) {
    const Status status = Validate(config);
    ASSERT_FALSE(status) << told;
    EXPECT_NE(status.error().ToString().find(told), std::string::npos) << status.error().ToString();
  };
  ModelConfig c = Small(Family::kLlama);
  c.tuning = Lora({"c_attn"});
  refused(c, "\"c_attn\"");
  refused(c, "q_proj");
  c.tuning = Lora({"embed_tokens"});
  refused(c, "embed_tokens");
  c.tuning = Lora({"input_layernorm"});
  refused(c, "input_layernorm");
  c.tuning = Lora({});
  refused(c, "lora_targets is empty");
  c.tuning = Lora({"q_proj"});
  c.tuning.lora_alpha = 0;
  refused(c, "lora_alpha is 0");
  c.tuning = Lora({"q_proj"});
  c.tuning.lora_rank = 5000;
  refused(c, "5000");
  c.tuning = Lora({"q_proj"});
  c.tuning.freeze = {"*"};
  refused(c, "freeze stands beside");
  c.tuning = {{"*"}, 0, 0, {}};
  refused(c, "leaves nothing");
  c.tuning = {{"model.layer.*"}, 0, 0, {}};
  refused(c, "model.layer.*");
  c.tuning = {{}, 0, 16, {}};
  refused(c, "lora_alpha is set, but not");
  c.tuning = {};
  Rig rig(c);
  EXPECT_FALSE(
      Model::Create(c, rig.grid, Rig::Cpu(), rig.weights, {}, std::vector<float>(16)).ok());
}

}  // namespace
}  // namespace loom::model
