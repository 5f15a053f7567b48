// Presets, validation, parameter names and first weights.
#include "model/config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "agreed/flat_buffer.h"
#include "crypto/hash.h"
#include "model/family.h"

namespace loom::model {
namespace {

TEST(ConfigTest, EveryPresetIsValidAndItsNameTellsItsSize) {
  std::uint64_t before = 0;
  for (const std::string& name : PresetNames()) {
    SCOPED_TRACE(name);
    const ModelConfig config = Preset(name).value();
    EXPECT_TRUE(Validate(config).ok());
    const std::uint64_t count = ParameterCount(config);
    EXPECT_GT(count, before);
    before = count;
    std::uint64_t sum = 0;
    for (const auto& shape : ParameterShapes(config)) sum += shape.Numel();
    EXPECT_EQ(sum, count);
    if (name.rfind("loom-", 0) == 0) {
      const double unit = name.back() == 'b' ? 1e9 : 1e6;
      const double said = std::stod(name.substr(5)) * unit;
      EXPECT_NEAR(static_cast<double>(count), said, 0.16 * said);
    }
  }
  EXPECT_NEAR(static_cast<double>(ParameterCount(Preset("loom-7b").value())), 6.738e9, 1e6);
}

TEST(ConfigTest, AMistypedPresetIsAnsweredWithTheNearestAndTheList) {
  const auto result = Preset("lom-125m");
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, Code::kNotFound);
  EXPECT_NE(result.error().hint.find("did you mean \"loom-125m\"?"), std::string::npos);
  EXPECT_NE(result.error().hint.find("nano"), std::string::npos);
}

TEST(ConfigTest, ErrorsNameFieldValueAndLimit) {
  const auto message = [](auto change) {
    ModelConfig config = Preset("nano").value();
    change(config);
    const Status status = Validate(config);
    return status.ok() ? std::string("ok") : status.error().message;
  };
  EXPECT_EQ(message([](ModelConfig&) {}), "ok");
  EXPECT_EQ(message([](ModelConfig& c) { c.layers = 0; }),
            "model.layers is 0, allowed are 1 to 1024");
  EXPECT_EQ(message([](ModelConfig& c) { c.width = 4; }),
            "model.width is 4, allowed are 8 to 131072");
  EXPECT_EQ(message([](ModelConfig& c) { c.kv_heads = 3; }),
            "model.kv_heads is 3, which does not divide model.heads = 4");
  EXPECT_EQ(message([](ModelConfig& c) { c.head_dim = 7; }),
            "model.head_dim is 7, it must be a multiple of 2");
  EXPECT_NE(message([](ModelConfig& c) { c.norm_eps = NAN; }), "ok");
  EXPECT_EQ(message([](ModelConfig& c) { c.positions = 63; }),
            "model.positions is 63, allowed are 64 to 16777216");
  EXPECT_NE(message([](ModelConfig& c) { c.vocab = UINT32_MAX; }), "ok");
  EXPECT_NE(message([](ModelConfig& c) { c.rope_scaling.kind = RopeScalingKind::kLlama3; }), "ok");
  EXPECT_NE(message([](ModelConfig& c) {
              c.vocab = 1 << 24, c.width = 1 << 17, c.ffn = 1 << 20, c.layers = 1024;
            }),
            "ok");
}

TEST(ConfigTest, SettingsThatAFamilyDoesNotHaveAreRefusedByName) {
  const auto message = [](Family family, auto change) {
    ModelConfig config = Preset("nano").value();
    config.family = family;
    change(config);
    const Status status = Validate(config);
    return status.ok() ? std::string("ok") : status.error().message;
  };
  const auto nothing = [](ModelConfig&) {};
  for (const FamilyTraits& traits : Families()) {
    EXPECT_EQ(message(traits.family, nothing), "ok") << traits.name;
    EXPECT_EQ(&Traits(traits.family), &traits);
  }
  const auto biased = [](ModelConfig& c) { c.attention_bias = true; };
  EXPECT_EQ(message(Family::kLlama, biased), "ok");
  EXPECT_EQ(message(Family::kQwen2, biased),
            "model.attention_bias is true, which the family qwen2 does not have");
  const auto mlp_biased = [](ModelConfig& c) { c.mlp_bias = true; };
  EXPECT_EQ(message(Family::kQwen3, mlp_biased),
            "model.mlp_bias is true, which the family qwen3 does not have");
  const auto narrow = [](ModelConfig& c) { c.window = 8; };
  EXPECT_EQ(message(Family::kMistral, narrow), "ok");
  EXPECT_EQ(message(Family::kLlama, narrow),
            "model.window is 8, which the family llama does not have");
  EXPECT_EQ(message(Family::kGpt2, [](ModelConfig& c) { c.kv_heads = 2; }),
            "model.kv_heads is 2 beside 4 heads, which the family gpt2 does not have");
  EXPECT_EQ(message(Family::kGpt2, [](ModelConfig& c) { c.rope_theta = 5e5f; }),
            "model.rope_theta is 500000, which the family gpt2 does not have");
  EXPECT_EQ(message(Family::kGpt2, [](ModelConfig& c) { c.head_dim = 16; }),
            "model.heads * head_dim is 4 * 16, the family gpt2 needs model.width = 128");
}

TEST(ConfigTest, EveryFamilyCountsAndStartsAllItsParameters) {
  for (const FamilyTraits& traits : Families()) {
    SCOPED_TRACE(traits.name);
    ModelConfig config = Preset("loom-0.2m").value();
    config.family = traits.family;
    config.tie_embeddings = false;
    config.attention_bias = traits.attention_bias;
    config.mlp_bias = traits.mlp_bias;
    config.positions = 100;
    const agreed::TileGrid grid = MakeGrid(config).value();
    EXPECT_EQ(grid.num_elements(), ParameterCount(config));
    agreed::FlatBuffer weights(grid.flat_size());
    InitWeights(config, grid, 1, weights.span());
    for (std::size_t t = 0; t < grid.tensors().size(); ++t) {
      const auto& tensor = grid.tensors()[t];
      SCOPED_TRACE(tensor.name);
      EXPECT_TRUE(tensor.name.starts_with(traits.prefix) || tensor.name == "lm_head.weight");
      const float* first = weights.data() + grid.TensorOffset(t);
      const bool same =
          std::all_of(first, first + tensor.Numel(), [&](float x) { return x == first[0]; });
      EXPECT_EQ(same, tensor.shape.size() == 1);
      if (same) {
        EXPECT_EQ(first[0], tensor.name.ends_with("bias") ? 0.0f : 1.0f);
      }
    }
  }
  ModelConfig gpt2;
  gpt2.family = Family::kGpt2;
  gpt2.vocab = 50257, gpt2.layers = 12, gpt2.width = 768, gpt2.heads = gpt2.kv_heads = 12;
  gpt2.head_dim = 64, gpt2.ffn = 3072, gpt2.context = 1024;
  EXPECT_EQ(ParameterCount(gpt2), 124'439'808u) << "the published size of GPT-2";
}

TEST(ConfigTest, FirstWeightsHaveTheStatedSpreadAndOneHash) {
  const ModelConfig config = Preset("loom-0.2m").value();
  const agreed::TileGrid grid = MakeGrid(config).value();
  agreed::FlatBuffer weights(grid.flat_size());
  InitWeights(config, grid, 42, weights.span());
  for (std::size_t t = 0; t < grid.tensors().size(); ++t) {
    const auto& tensor = grid.tensors()[t];
    SCOPED_TRACE(tensor.name);
    double sum = 0, squares = 0;
    for (std::uint64_t i = 0; i < tensor.Numel(); ++i) {
      const double x = static_cast<double>(weights.data()[grid.TensorOffset(t) + i]);
      sum += x, squares += x * x;
    }
    const auto n = static_cast<double>(tensor.Numel());
    if (tensor.shape.size() == 1) {
      EXPECT_EQ(sum, n);
      continue;
    }
    const bool residual = tensor.name.find("o_proj") != std::string::npos ||
                          tensor.name.find("down_proj") != std::string::npos;
    const double std = residual ? 0.02 / std::sqrt(8.0) : 0.02;
    EXPECT_NEAR(std::sqrt(squares / n), std, 0.05 * std);
    EXPECT_NEAR(sum / n, 0, 5 * std / std::sqrt(n));
  }
  const auto hash = crypto::Sha256(AsBytes(std::span<const float>(weights.span())));
  InitWeights(config, grid, 42, weights.span());
  EXPECT_EQ(hash, crypto::Sha256(AsBytes(std::span<const float>(weights.span()))));
  InitWeights(config, grid, 43, weights.span());
  EXPECT_NE(hash, crypto::Sha256(AsBytes(std::span<const float>(weights.span()))));
}

TEST(ConfigTest, CheckpointingPlansLessMemory) {
  const ModelConfig config = Preset("loom-125m").value();
  ActivationPlan plan{.batch = 8, .length = 1024};
  const std::uint64_t kept = ActivationBytes(config, plan);
  plan.checkpointing = true;
  EXPECT_LT(ActivationBytes(config, plan), kept / 3);
  plan.bf16 = true;
  EXPECT_LT(ActivationBytes(config, plan), kept / 4);
}

}  // namespace
}  // namespace loom::model
