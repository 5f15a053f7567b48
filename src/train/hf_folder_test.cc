#include "train/hf_folder.h"

#include <fmt/format.h>
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
#include "model/family.h"
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
      {"model_type", "bert"},
      {"model_type", nullptr},
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

/// A model of each family with what it may have.
std::vector<model::ModelConfig> OfEveryFamily() {
  std::vector<model::ModelConfig> out;
  for (const model::FamilyTraits& family : model::Families()) {
    model::ModelConfig c = Small(false);
    c.family = family.family;
    c.attention_bias = family.attention_bias;
    c.mlp_bias = family.mlp_bias;
    c.window = family.window ? 16 : 0;
    if (!family.rotary) c.kv_heads = c.heads, c.rope_theta = 10000.0F;
    out.push_back(c);
    c.tie_embeddings = true;
    out.push_back(c);
  }
  return out;
}

TEST_F(HfFolder, EveryFamilySurvives) {
  for (const model::ModelConfig& config : OfEveryFamily()) {
    SCOPED_TRACE(model::Traits(config.family).name);
    ASSERT_TRUE(Export(config).ok());
    const auto model = ImportHfFolder(folder_);
    ASSERT_TRUE(model.ok()) << model.error().ToString();
    EXPECT_EQ(model->config, config);
    EXPECT_EQ(std::memcmp(model->weights.data(), weights_.data(), 4 * weights_.size()), 0);
  }
}

TEST_F(HfFolder, WeightsOfTheBareNetworkAndSavedMasksAreRead) {
  for (const model::ModelConfig& config : OfEveryFamily()) {
    const model::FamilyTraits& family = model::Traits(config.family);
    SCOPED_TRACE(family.name);
    ASSERT_TRUE(Export(config).ok());
    const auto file = tensor::SafetensorsFile::Open(folder_ + "/model.safetensors");
    ASSERT_TRUE(file.ok());
    std::vector<tensor::TensorView> views = file->content().tensors;
    for (tensor::TensorView& view : views) {
      if (view.name.starts_with(family.prefix)) view.name.erase(0, family.prefix.size());
    }
    const Bytes mask(4);
    views.push_back({family.rotary ? "layers.0.self_attn.rotary_emb.inv_freq" : "h.0.attn.bias",
                     tensor::DType::kF32,
                     {1},
                     mask});
    WriteWeights("model.safetensors", views);
    const auto model = ImportHfFolder(folder_);
    ASSERT_TRUE(model.ok()) << model.error().ToString();
    EXPECT_EQ(std::memcmp(model->weights.data(), weights_.data(), 4 * weights_.size()), 0);
  }
}

TEST_F(HfFolder, WhatAFamilyDoesNotHaveIsRefusedByName) {
  const auto refused = [](const model::ModelConfig& config, const std::string& key, Value value) {
    Value parsed = *json::Parse(HfConfigJson(config));
    auto& object = std::get<json::Object>(parsed.data);
    std::erase_if(object, [&](const json::Member& m) { return m.first == key; });
    object.emplace_back(key, std::move(value));
    const auto read = ParseHfConfig(json::Dump(parsed));
    return !read && read.error().message.find(key) != std::string::npos;
  };
  for (const model::ModelConfig& config : OfEveryFamily()) {
    const model::FamilyTraits& family = model::Traits(config.family);
    SCOPED_TRACE(family.name);
    EXPECT_TRUE(refused(config, "architectures", json::Array{"BertModel"}));
    if (family.rotary) {
      EXPECT_TRUE(refused(config, "hidden_act", "gelu_new"));
      EXPECT_TRUE(refused(config, "partial_rotary_factor", 0.5));
      EXPECT_TRUE(refused(config, "use_sliding_window", true));
      EXPECT_EQ(refused(config, "attention_bias", true), !family.attention_bias);
      EXPECT_EQ(refused(config, "mlp_bias", true), !family.mlp_bias);
      continue;
    }
    for (const char* act : {"gelu", "relu", "gelu_fast"})
      EXPECT_TRUE(refused(config, "activation_function", act)) << act;
    EXPECT_FALSE(refused(config, "activation_function", "gelu_pytorch_tanh"));
    EXPECT_TRUE(refused(config, "scale_attn_weights", false));
    EXPECT_TRUE(refused(config, "scale_attn_by_inverse_layer_idx", true));
    EXPECT_TRUE(refused(config, "reorder_and_upcast_attn", true));
    EXPECT_TRUE(refused(config, "add_cross_attention", true));
  }
}

TEST_F(HfFolder, AWindowThatAConfigLeavesOutIsTheFamilysDefault) {
  model::ModelConfig config = Small(false);
  config.family = model::Family::kMistral;
  Value parsed = *json::Parse(HfConfigJson(config));
  EXPECT_EQ(ParseHfConfig(json::Dump(parsed))->window, 0u) << "null";
  std::erase_if(std::get<json::Object>(parsed.data),
                [](const json::Member& m) { return m.first == "sliding_window"; });
  EXPECT_EQ(ParseHfConfig(json::Dump(parsed))->window, 4096u);
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
  const auto config = Small(false);
  ASSERT_TRUE(Export(config).ok());
  auto grid = model::MakeGrid(config);
  weights_.span()[grid->TensorOffset(3) + 5] = std::numeric_limits<float>::quiet_NaN();
  const Status exported =
      ExportHfFolder(folder_, config, *grid, weights_.span(), *data::Tokenizer::Bytes());
  ASSERT_FALSE(exported.ok());
  EXPECT_NE(exported.error().message.find(grid->tensors()[3].name), std::string::npos);
  EXPECT_TRUE(ImportHfFolder(folder_).ok()) << "the folder of before is still there";
  WriteWeights("model.safetensors", WeightViews(*grid, weights_.span()));
  EXPECT_NE(ImportError().find(grid->tensors()[3].name), std::string::npos);
  EXPECT_NE(ImportError().find("element 5"), std::string::npos);
}

TEST_F(HfFolder, FormatsAndShardsAreThoseAskedFor) {
  const auto config = Small(true);
  const auto grid = model::MakeGrid(config);
  ASSERT_TRUE(Export(config).ok());
  const auto views = WeightViews(*grid, weights_.span());
  HfTexts texts;
  for (const tensor::DType dtype :
       {tensor::DType::kF32, tensor::DType::kBF16, tensor::DType::kF16}) {
    SCOPED_TRACE(tensor::DTypeName(dtype));
    ASSERT_TRUE(ExportHfFolder(folder_, {config, views, texts, dtype, 20'000}).ok());
    EXPECT_FALSE(fs::exists(folder_ + "/model.safetensors"));
    const auto folder = train::HfFolder::Open(folder_);
    ASSERT_TRUE(folder.ok()) << folder.error().ToString();
    EXPECT_EQ(MostCommonType(folder->tensors), dtype);
    const std::string last = fmt::format("model-{0:05}-of-{0:05}.safetensors", [&] {
      std::size_t shards = 0;
      for (const auto& entry : fs::directory_iterator(folder_))
        shards += entry.path().extension() == ".safetensors";
      return shards;
    }());
    EXPECT_TRUE(fs::exists(folder_ + "/" + last)) << last;
    // Read and written again as it is: the same bits, file by file.
    const std::string again = root_ + "/again";
    ASSERT_TRUE(ExportHfFolder(again, {config, folder->tensors, folder->texts, {}, 20'000}).ok());
    for (const auto& entry : fs::directory_iterator(folder_)) {
      const std::string name = entry.path().filename();
      EXPECT_EQ(ReadFile(folder_ + "/" + name, 1 << 20).value(),
                ReadFile(again + "/" + name, 1 << 20).value())
          << name;
    }
  }
}

TEST_F(HfFolder, TextsAndTokenIdsAreKept) {
  const auto config = Small(true);
  ASSERT_TRUE(Export(config).ok());
  const std::pair<const char*, const char*> kept[] = {
      {"tokenizer_config.json", R"({"chat_template": "{{ bos_token }}", "eos_token": "<|end|>"})"},
      {"special_tokens_map.json", R"({"eos_token": "<|end|>"})"},
      {"chat_template.jinja", "{% for m in messages %}{{ m }}{% endfor %}\n"},
      {"generation_config.json", R"({"eos_token_id": [2, 7], "temperature": 0.6})"}};
  for (const auto& [name, text] : kept) std::ofstream(folder_ + "/" + name) << text;
  std::ofstream(folder_ + "/config.json") << HfConfigJson(
      config, tensor::DType::kF32, {{"bos_token_id", 1}, {"eos_token_id", json::Array{2, 7}}});
  const auto folder = train::HfFolder::Open(folder_);
  ASSERT_TRUE(folder.ok()) << folder.error().ToString();
  const std::string out = root_ + "/out";
  ASSERT_TRUE(ExportHfFolder(out, {config, folder->tensors, folder->texts}).ok());
  for (const auto& [name, text] : kept)
    EXPECT_EQ(ReadFile(out + "/" + name, 1 << 20).value(), text) << name;
  for (const char* name : {"config.json", "tokenizer.json"}) {
    EXPECT_EQ(ReadFile(out + "/" + name, 1 << 20).value(),
              ReadFile(folder_ + "/" + name, 1 << 20).value())
        << name;
  }
  std::ofstream(folder_ + "/generation_config.json") << "[1]";
  EXPECT_NE(ImportError().find("generation_config.json"), std::string::npos);
  fs::remove(folder_ + "/generation_config.json");
  std::ofstream(folder_ + "/chat_template.jinja") << "\xff";
  EXPECT_NE(ImportError().find("chat_template.jinja: byte 0"), std::string::npos);
  fs::remove(folder_ + "/chat_template.jinja");
  SetConfig("eos_token_id", "two");
  EXPECT_NE(ImportError().find("eos_token_id"), std::string::npos);
}

TEST_F(HfFolder, ATokenizerThatLoomCannotUseIsToldOnlyToThoseWhoNeedIt) {
  ASSERT_TRUE(Export(Small(true)).ok());
  std::ofstream(folder_ + "/tokenizer.json") << R"({"model": {"type": "Unigram"}})";
  auto model = ImportHfFolder(folder_);
  ASSERT_TRUE(model.ok()) << model.error().ToString();
  EXPECT_EQ(model->tokenizer, nullptr);
  ASSERT_TRUE(model->no_tokenizer.has_value());
  EXPECT_NE(model->no_tokenizer->ToString().find(folder_), std::string::npos);
  fs::remove(folder_ + "/tokenizer.json");
  model = ImportHfFolder(folder_);
  ASSERT_TRUE(model.ok());
  EXPECT_EQ(model->no_tokenizer->code, Code::kNotFound);
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
