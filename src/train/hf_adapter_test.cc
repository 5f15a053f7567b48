// Adapters in PEFT's format: out and in again bit for bit, what would compute something else
// refused by name, and a merge that is the definition.
#include "train/hf_adapter.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <utility>

#include "agreed/random.h"
#include "base/file.h"
#include "base/json.h"
#include "model/family.h"
#include "train/hf_folder.h"

namespace loom::train {
namespace {

namespace fs = std::filesystem;
using json::Value;

model::ModelConfig Small(model::Family family) {
  model::ModelConfig c;
  c.family = family;
  c.vocab = 16, c.layers = 2, c.width = 12, c.heads = 3, c.kv_heads = 3, c.head_dim = 4;
  c.ffn = 20, c.context = 8;
  const bool rotary = model::Traits(family).rotary;
  c.tuning = {{},
              4,
              8,
              rotary ? std::vector<std::string>{"q_proj", "up_proj"}
                     : std::vector<std::string>{"c_attn", "c_fc"}};
  return c;
}

class HfAdapter : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = ::testing::TempDir() + "loom_adapter_" +
            ::testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(root_);
    fs::create_directories(root_);
    folder_ = root_ + "/adapter";
  }
  void TearDown() override { fs::remove_all(root_); }

  void Write(const model::ModelConfig& config) {
    grid_ = model::MakeGrid(config).value();
    weights_ = agreed::FlatBuffer(grid_.flat_size());
    for (std::size_t t = 0; t < grid_.tensors().size(); ++t) {
      agreed::FillNormal(weights_.span().subspan(grid_.TensorOffset(t), grid_.tensors()[t].Numel()),
                         3, t, 0.5F);
    }
    const Status done = ExportAdapter(folder_, {config, grid_, weights_.span(), "some/base"});
    ASSERT_TRUE(done) << done.error().ToString();
  }
  /// Rewrites adapter_config.json with one key set.
  void Set(const std::string& key, Value value) {
    const std::string path = folder_ + "/adapter_config.json";
    if (config_text_.empty()) config_text_ = ReadFile(path, 1 << 20).value();
    Value config = *json::Parse(config_text_);
    auto& object = std::get<json::Object>(config.data);
    std::erase_if(object, [&](const json::Member& m) { return m.first == key; });
    object.emplace_back(key, std::move(value));
    std::ofstream(path) << json::Dump(config);
  }
  void ExpectRefused(const model::ModelConfig& network, std::string_view told) {
    const auto adapter = ReadAdapter(folder_, network);
    ASSERT_FALSE(adapter.ok()) << told;
    EXPECT_NE(adapter.error().ToString().find(told), std::string::npos)
        << adapter.error().ToString();
    EXPECT_FALSE(adapter.error().hint.empty()) << adapter.error().ToString();
  }

  std::string root_, folder_, config_text_;
  agreed::TileGrid grid_;
  agreed::FlatBuffer weights_;
};

TEST_F(HfAdapter, OutAndInAgainBitForBit) {
  for (const model::Family family : {model::Family::kLlama, model::Family::kGpt2}) {
    const model::ModelConfig config = Small(family);
    Write(config);
    EXPECT_TRUE(IsAdapterFolder(folder_));
    model::ModelConfig network = config;
    network.tuning = {};
    const auto adapter = ReadAdapter(folder_, network);
    ASSERT_TRUE(adapter.ok()) << adapter.error().ToString();
    EXPECT_EQ(adapter->base, "some/base");
    EXPECT_EQ(adapter->config.tuning.lora_rank, 4U);
    EXPECT_EQ(adapter->config.tuning.lora_alpha, 8.0F);
    EXPECT_EQ(adapter->grid.tensors(), grid_.tensors());
    EXPECT_EQ(std::memcmp(adapter->weights.data(), weights_.data(), 4 * weights_.size()), 0);
  }
}

TEST_F(HfAdapter, APatternOfModulesMeansThoseInTheFile) {
  const model::ModelConfig config = Small(model::Family::kLlama);
  Write(config);
  Set("target_modules", ".*(q_proj|up_proj)");
  const auto adapter = ReadAdapter(folder_, config);
  ASSERT_TRUE(adapter.ok()) << adapter.error().ToString();
  EXPECT_EQ(adapter->config.tuning.lora_targets.size(), 4U);
  EXPECT_EQ(adapter->grid.tensors(), grid_.tensors());
}

TEST_F(HfAdapter, WhatWouldComputeSomethingElseIsRefusedByName) {
  const model::ModelConfig config = Small(model::Family::kLlama);
  Write(config);
  const std::pair<const char*, Value> bad[] = {
      {"peft_type", "IA3"},
      {"bias", "all"},
      {"use_dora", true},
      {"use_rslora", true},
      {"rank_pattern", json::Object{{"q_proj", std::uint64_t{2}}}},
      {"modules_to_save", json::Array{"lm_head"}},
      {"layers_to_transform", json::Array{std::uint64_t{0}}},
      {"fan_in_fan_out", true},
      {"r", std::uint64_t{0}},
      {"r", std::uint64_t{5}},
      {"lora_alpha", "much"},
      {"lora_alpha", -1.0},
      {"target_modules", json::Array{"c_attn"}},
      {"target_modules", json::Array{"q_proj"}},
      {"target_modules", json::Array{"q_proj", "up_proj", "down_proj"}},
      {"target_modules", Value()},
      {"task_type", "SEQ_CLS"},
  };
  for (const auto& [key, value] : bad) {
    SCOPED_TRACE(key);
    Set(key, value);
    const auto adapter = ReadAdapter(folder_, config);
    ASSERT_FALSE(adapter.ok());
    const std::string text = adapter.error().ToString();
    const auto has = [&](std::string_view word) { return text.find(word) != std::string::npos; };
    const bool named = has(key) || has("lora_A") || has("lora_rank") || has("lora_targets");
    EXPECT_TRUE(named) << text;
    EXPECT_NE(text.find(folder_), std::string::npos) << text;
  }
  Set("use_dora", false);
  model::ModelConfig wider = config;
  wider.width = 24, wider.head_dim = 8;
  ExpectRefused(wider, "shape");
  model::ModelConfig deeper = config;
  deeper.layers = 3;
  ExpectRefused(deeper, "lacks 'base_model.model.model.layers.2");
  std::ofstream(folder_ + "/adapter_config.json") << "[1]";
  ExpectRefused(config, "not an object");
}

TEST_F(HfAdapter, WhatTheWeightsFileHoldsIsCheckedByName) {
  const model::ModelConfig config = Small(model::Family::kLlama);
  Write(config);
  std::vector<tensor::TensorView> views = WeightViews(grid_, weights_.span());
  const auto write = [&] {
    const Bytes header = tensor::SafetensorsHeader(views).value();
    std::ofstream out(folder_ + "/adapter_model.safetensors", std::ios::binary);
    out.write(reinterpret_cast<const char*>(header.data()),
              static_cast<std::streamsize>(header.size()));
    for (const tensor::TensorView& view : views) {
      out.write(reinterpret_cast<const char*>(view.data.data()),
                static_cast<std::streamsize>(view.data.size()));
    }
  };
  float& value = weights_.data()[grid_.TensorOffset(1)];
  const float good = std::exchange(value, std::numeric_limits<float>::quiet_NaN());
  write();
  ASSERT_TRUE(AdapterFolder::Open(folder_).ok()) << "values are looked at when they are read";
  ExpectRefused(config, "tensor '" + grid_.tensors()[1].name + "' has a value that is not finite");
  value = good;
  views[1].dtype = tensor::DType::kI32;
  write();
  ExpectRefused(config, "is I32");
  views = WeightViews(grid_, weights_.span());
  const std::vector<float> more(3);
  views.push_back(
      {"base_model.model.score.weight", tensor::DType::kF32, {3}, std::as_bytes(std::span(more))});
  write();
  ExpectRefused(config, "no place in the network for 'base_model.model.score.weight'");
}

TEST_F(HfAdapter, AFolderWithOtherThingsIsLeftAlone) {
  const model::ModelConfig config = Small(model::Family::kLlama);
  Write(config);
  Write(config);  // an adapter is replaced
  std::ofstream(folder_ + "/notes.txt") << "mine";
  const Status again = ExportAdapter(folder_, {config, grid_, weights_.span(), ""});
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, Code::kConflict);
  EXPECT_NE(again.error().message.find("notes.txt"), std::string::npos);
}

TEST_F(HfAdapter, AMergeAddsTheProductWhereItBelongs) {
  for (const model::Family family : {model::Family::kLlama, model::Family::kGpt2}) {
    const model::ModelConfig config = Small(family);
    Write(config);
    model::ModelConfig whole = config;
    whole.tuning = {};
    const agreed::TileGrid network_grid = model::MakeGrid(whole).value();
    agreed::FlatBuffer before(network_grid.flat_size());
    agreed::FillNormal(before.span(), 9, 0, 1.0F);
    agreed::FlatBuffer after(network_grid.flat_size());
    std::ranges::copy(before.span(), after.data());
    ASSERT_TRUE(MergeAdapter(config, grid_, weights_.span(), after.span()));
    const bool input_major = family == model::Family::kGpt2;
    for (std::size_t t = 0; t < network_grid.tensors().size(); ++t) {
      const agreed::TensorShape& shape = network_grid.tensors()[t];
      const auto at = [&](const agreed::FlatBuffer& flat, std::size_t i) {
        return flat.data()[network_grid.TensorOffset(t) + i];
      };
      const auto lora = model::FindLora(config.tuning, shape.name);
      if (!lora || shape.shape.size() != 2) {
        for (std::size_t i = 0; i < shape.Numel(); ++i) ASSERT_EQ(at(before, i), at(after, i));
        continue;
      }
      std::size_t first = 0;
      while (grid_.tensors()[first].name != lora->a) ++first;
      const float* a = weights_.data() + grid_.TensorOffset(first);
      const float* b = weights_.data() + grid_.TensorOffset(first + 1);
      const std::size_t in = grid_.tensors()[first].shape[1];
      const std::size_t out = grid_.tensors()[first + 1].shape[0];
      for (std::size_t o = 0; o < out; ++o) {
        for (std::size_t i = 0; i < in; ++i) {
          float sum = 0;
          for (std::size_t n = 0; n < 4; ++n) sum += 2 * b[o * 4 + n] * a[n * in + i];
          const std::size_t place = input_major ? i * out + o : o * in + i;
          ASSERT_NEAR(at(after, place), at(before, place) + sum, 1e-5);
        }
      }
    }
  }
}

}  // namespace
}  // namespace loom::train
