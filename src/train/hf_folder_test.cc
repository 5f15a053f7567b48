#include "train/hf_folder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

#include "agreed/random.h"
#include "base/file.h"
#include "base/json.h"
#include "tensor/safetensors.h"

namespace loom::train {
namespace {

namespace fs = std::filesystem;
using json::Value;

model::ModelConfig Small(bool tied) {
  model::ModelConfig c;
  c.vocab = 256;
  c.layers = 2;
  c.width = 32;
  c.heads = 4;
  c.kv_heads = 2;
  c.head_dim = 8;
  c.ffn = 48;
  c.context = 64;
  c.rope_theta = 50000.0F;
  c.tie_embeddings = tied;
  return c;
}

class HfFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = ::testing::TempDir() + "loom_hf_" +
            ::testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(root_);
    fs::create_directories(root_);
    folder_ = root_ + "/model";
  }
  void TearDown() override { fs::remove_all(root_); }

  Status Export(const model::ModelConfig& config, std::uint64_t seed = 1) {
    auto grid = model::MakeGrid(config);
    EXPECT_TRUE(grid.ok());
    weights_ = agreed::FlatBuffer(grid->flat_size());
    for (std::size_t t = 0; t < grid->tensors().size(); ++t) {
      agreed::FillNormal(weights_.span().subspan(grid->TensorOffset(t), grid->tensors()[t].Numel()),
                         seed, t, 1.0F);
    }
    return ExportHfFolder(folder_, config, *grid, weights_.span(), *data::Tokenizer::Bytes());
  }

  /// Rewrites config.json with one key set.
  void SetConfig(const std::string& key, Value value) {
    Value config = *json::Parse(HfConfigJson(Small(false)));
    auto& object = std::get<json::Object>(config.data);
    std::erase_if(object, [&](const json::Member& m) { return m.first == key; });
    object.emplace_back(key, std::move(value));
    std::ofstream(folder_ + "/config.json") << json::Dump(config);
  }
  std::string ImportError() {
    const auto model = ImportHfFolder(folder_);
    EXPECT_FALSE(model.ok());
    return model.ok() ? "" : model.error().ToString();
  }
  void WriteWeights(const std::string& name, std::vector<tensor::TensorView> views) {
    ASSERT_TRUE(tensor::WriteSafetensors(folder_ + "/" + name, views).ok());
  }

  std::string root_, folder_;
  agreed::FlatBuffer weights_;
};

TEST_F(HfFolder, WhatIsExportedIsImportedBitForBit) {
  for (const bool tied : {true, false}) {
    ASSERT_TRUE(Export(Small(tied)).ok());
    const auto model = ImportHfFolder(folder_);
    ASSERT_TRUE(model.ok()) << model.error().ToString();
    EXPECT_EQ(model->config, Small(tied));
    ASSERT_EQ(model->weights.size(), weights_.size());
    EXPECT_EQ(std::memcmp(model->weights.data(), weights_.data(), weights_.size() * 4), 0);
    ASSERT_NE(model->tokenizer, nullptr);
    EXPECT_EQ(model->tokenizer->kind(), data::TokenizerKind::kBytes);
    EXPECT_FALSE(fs::exists(folder_ + ".tmp"));
  }
}

TEST_F(HfFolder, TheHeadIsInTheFileOnlyWhenItIsItsOwn) {
  for (const bool tied : {true, false}) {
    ASSERT_TRUE(Export(Small(tied)).ok());
    auto file = tensor::SafetensorsFile::Open(folder_ + "/model.safetensors");
    ASSERT_TRUE(file.ok());
    EXPECT_EQ(file->Find("lm_head.weight") == nullptr, tied);
  }
}

TEST_F(HfFolder, ConfigNamesRopeTwiceAndNoSpecialTokens) {
  const auto config = json::Parse(HfConfigJson(Small(true)));
  ASSERT_TRUE(config.ok());
  double theta = 0;
  ASSERT_TRUE(config->Find("rope_theta")->AsNumber(theta));
  EXPECT_EQ(theta, 50000.0);
  ASSERT_TRUE(config->Find("rope_parameters")->Find("rope_theta")->AsNumber(theta));
  EXPECT_EQ(theta, 50000.0);
  ASSERT_TRUE(config->Find("rms_norm_eps")->AsNumber(theta));
  EXPECT_EQ(theta, 1e-5);  // the shortest decimal of the fp32, not its double
  for (const auto* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    ASSERT_NE(config->Find(key), nullptr);
    EXPECT_TRUE(config->Find(key)->IsNull());
  }
}

TEST_F(HfFolder, RopeScalingSurvives) {
  auto config = Small(false);
  config.rope_scaling = {.kind = model::RopeScalingKind::kLlama3,
                         .factor = 8.0F,
                         .low_freq_factor = 1.0F,
                         .high_freq_factor = 4.0F,
                         .original_context = 32};
  auto back = ParseHfConfig(HfConfigJson(config));
  ASSERT_TRUE(back.ok()) << back.error().ToString();
  EXPECT_EQ(*back, config);
  config.rope_scaling = {.kind = model::RopeScalingKind::kLinear, .factor = 2.5F};
  back = ParseHfConfig(HfConfigJson(config));
  ASSERT_TRUE(back.ok()) << back.error().ToString();
  EXPECT_EQ(*back, config);
}

TEST_F(HfFolder, BothSpellingsOfRopeAreRead) {
  const std::string start =
      R"({"model_type":"llama","vocab_size":10,"num_hidden_layers":1,"hidden_size":8,)"
      R"("num_attention_heads":2,"intermediate_size":8,)";
  auto old_style = ParseHfConfig(start + R"("rope_theta":500000.0,)"
                                         R"("rope_scaling":{"type":"linear","factor":2.0}})");
  ASSERT_TRUE(old_style.ok()) << old_style.error().ToString();
  EXPECT_EQ(old_style->rope_theta, 500000.0F);
  EXPECT_EQ(old_style->rope_scaling.kind, model::RopeScalingKind::kLinear);
  auto new_style = ParseHfConfig(
      start + R"("rope_parameters":{"rope_type":"linear","factor":2.0,"rope_theta":500000}})");
  ASSERT_TRUE(new_style.ok());
  EXPECT_EQ(*new_style, *old_style);
  EXPECT_EQ(new_style->kv_heads, 2U);
  EXPECT_EQ(new_style->head_dim, 4U);
  EXPECT_FALSE(new_style->tie_embeddings);
  const auto conflict = ParseHfConfig(
      start + R"("rope_theta":1e4,"rope_parameters":{"rope_type":"default","rope_theta":5e5}})");
  ASSERT_FALSE(conflict.ok());
  EXPECT_NE(conflict.error().message.find("10000"), std::string::npos);
  EXPECT_NE(conflict.error().message.find("500000"), std::string::npos);
  EXPECT_FALSE(ParseHfConfig(start + R"("rope_scaling":{"type":"linear","factor":2.0},)"
                                     R"("rope_parameters":{"rope_type":"default"}})")
                   .ok());
}

TEST_F(HfFolder, KeysThatChangeTheMathematicsAreRefusedByName) {
  ASSERT_TRUE(Export(Small(false)).ok());
  const std::pair<std::string, Value> cases[] = {
      {"hidden_act", "gelu"},
      {"partial_rotary_factor", 0.5},
      {"use_sliding_window", true},
      {"sliding_window", 4096},
      {"layer_types", json::Array{"full_attention", "sliding_attention"}},
      {"scale_attn_by_inverse_layer_idx", true},
      {"reorder_and_upcast_attn", true},
      {"quantization_config", json::Object{}},
      {"auto_map", json::Object{{"AutoModel", "evil.py"}}},
      {"pretraining_tp", 2},
      {"model_type", "qwen2"},
      {"architectures", json::Array{"LlamaForSequenceClassification"}},
      {"rope_parameters", json::Object{{"rope_type", "yarn"}, {"factor", 2.0}}},
      {"rope_scaling", json::Object{{"rope_type", "dynamic"}, {"factor", 2.0}}},
      {"hidden_size", -5},
      {"hidden_size", 4294967296},
      {"num_hidden_layers", 2.5},
      {"rms_norm_eps", "small"},
      {"tie_word_embeddings", 1},
  };
  for (const auto& [key, value] : cases) {
    SetConfig(key, value);
    EXPECT_NE(ImportError().find(key), std::string::npos) << key << ": " << ImportError();
  }
  for (const auto& [key, value] : std::initializer_list<std::pair<std::string, Value>>{
           {"partial_rotary_factor", 1.0},
           {"sliding_window", nullptr},
           {"layer_types", json::Array{"full_attention", "full_attention"}},
           {"some_note", "of somebody"}}) {
    SetConfig(key, value);
    EXPECT_TRUE(ImportHfFolder(folder_).ok()) << key;
  }
}

TEST_F(HfFolder, MissingUnusedAndMisshapenTensorsAreListed) {
  ASSERT_TRUE(Export(Small(true)).ok());
  const auto views = [&] {
    auto file = tensor::SafetensorsFile::Open(folder_ + "/model.safetensors");
    return std::make_unique<tensor::SafetensorsFile>(std::move(file).value());
  }();
  const std::vector<tensor::TensorView> good = views->content().tensors;
  auto bad = good;
  bad.pop_back();
  WriteWeights("model.safetensors", bad);
  EXPECT_NE(ImportError().find("lack '" + good.back().name), std::string::npos) << ImportError();
  bad = good;
  bad.push_back(good[0]);
  bad.back().name = "model.layers.7.surprise";
  WriteWeights("model.safetensors", bad);
  EXPECT_NE(ImportError().find("no place for 'model.layers.7.surprise'"), std::string::npos);
  bad = good;
  std::swap(bad[0].shape[0], bad[0].shape[1]);
  WriteWeights("model.safetensors", bad);
  EXPECT_NE(ImportError().find("has shape"), std::string::npos);
  bad = good;
  bad.push_back(*std::find_if(good.begin(), good.end(),
                              [](const auto& t) { return t.name == "model.embed_tokens.weight"; }));
  bad.back().name = "lm_head.weight";
  WriteWeights("model.safetensors", bad);
  EXPECT_TRUE(ImportHfFolder(folder_).ok());  // a tied model may carry its head, when it is equal
  std::vector<std::byte> other(bad.back().data.begin(), bad.back().data.end());
  other[0] ^= std::byte{1};
  bad.back().data = other;
  WriteWeights("model.safetensors", bad);
  EXPECT_NE(ImportError().find("lm_head.weight differs"), std::string::npos);
}

TEST_F(HfFolder, AValueThatIsNotFiniteIsNamed) {
  ASSERT_TRUE(Export(Small(false)).ok());
  const auto config = Small(false);
  auto grid = model::MakeGrid(config);
  weights_.span()[grid->TensorOffset(3) + 5] = std::numeric_limits<float>::quiet_NaN();
  ASSERT_TRUE(
      ExportHfFolder(folder_, config, *grid, weights_.span(), *data::Tokenizer::Bytes()).ok());
  EXPECT_NE(ImportError().find(grid->tensors()[3].name), std::string::npos);
  EXPECT_NE(ImportError().find("element 5"), std::string::npos);
}

TEST_F(HfFolder, ShardedFoldersAndTheirTraps) {
  ASSERT_TRUE(Export(Small(false)).ok());
  auto file = tensor::SafetensorsFile::Open(folder_ + "/model.safetensors");
  ASSERT_TRUE(file.ok());
  const auto& all = file->content().tensors;
  const auto half = static_cast<std::ptrdiff_t>(all.size() / 2);
  WriteWeights("model-00001-of-00002.safetensors", {all.begin(), all.begin() + half});
  WriteWeights("model-00002-of-00002.safetensors", {all.begin() + half, all.end()});
  fs::remove(folder_ + "/model.safetensors");
  const auto index = [&](const std::string& first) {
    json::Object map;
    for (std::ptrdiff_t i = 0; i < static_cast<std::ptrdiff_t>(all.size()); ++i) {
      map.emplace_back(all[static_cast<std::size_t>(i)].name,
                       i < half ? first : "model-00002-of-00002.safetensors");
    }
    std::ofstream(folder_ + "/model.safetensors.index.json")
        << json::Dump(json::Object{{"metadata", json::Object{}}, {"weight_map", std::move(map)}});
  };
  index("model-00001-of-00002.safetensors");
  const auto model = ImportHfFolder(folder_);
  ASSERT_TRUE(model.ok()) << model.error().ToString();
  EXPECT_EQ(std::memcmp(model->weights.data(), weights_.data(), weights_.size() * 4), 0);
  for (const auto* evil : {"../model.safetensors", "/etc/passwd", "a/b.safetensors", "",
                           ".safetensors", "pickle.bin", "x\\y.safetensors"}) {
    index(evil);
    EXPECT_NE(ImportError().find("no name of a weights file"), std::string::npos) << evil;
  }
  index("model-00002-of-00002.safetensors");
  EXPECT_NE(ImportError().find("in no file"), std::string::npos);
}

TEST_F(HfFolder, OnlyModelFoldersAreReplaced) {
  ASSERT_TRUE(Export(Small(false), 1).ok());
  ASSERT_TRUE(Export(Small(false), 2).ok());
  EXPECT_TRUE(ImportHfFolder(folder_ + "/").ok());
  std::ofstream(folder_ + "/diary.txt") << "mine";
  const Status refused = Export(Small(false), 3);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::kConflict);
  EXPECT_NE(refused.error().message.find("diary.txt"), std::string::npos);
  EXPECT_TRUE(fs::exists(folder_ + "/diary.txt"));
  EXPECT_FALSE(fs::exists(folder_ + ".tmp"));
  fs::remove_all(folder_);
  fs::create_directories(folder_);
  EXPECT_TRUE(Export(Small(false), 4).ok());  // into an empty folder
  // What a killed export left aside is no obstacle.
  fs::create_directories(folder_ + ".tmp");
  std::ofstream(folder_ + ".tmp/model.safetensors.tmp") << "half";
  EXPECT_TRUE(Export(Small(false), 5).ok());
  EXPECT_FALSE(fs::exists(folder_ + ".tmp"));
}

}  // namespace
}  // namespace loom::train
