// [model] from: the folder's model is the run's, a key that says something else is refused by name,
// and no tokenizer with other ids gets in.
#include "train/start_model.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "agreed/random.h"
#include "train/hf_adapter.h"
#include "train/hf_folder.h"

namespace loom::train {
namespace {

namespace fs = std::filesystem;

model::ModelConfig Small() {
  model::ModelConfig c;
  c.vocab = 300;  // rows to spare
  c.layers = 2;
  c.width = 32;
  c.heads = 4;
  c.kv_heads = 2;
  c.head_dim = 8;
  c.ffn = 48;
  c.context = 128;
  c.rope_theta = 50000.0F;
  c.tie_embeddings = false;
  return c;
}

class StartModelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = ::testing::TempDir() + "loom_start_" +
            ::testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(root_);
    fs::create_directories(root_);
    Export(Small());
  }
  void TearDown() override { fs::remove_all(root_); }

  void Export(const model::ModelConfig& config) {
    const auto grid = model::MakeGrid(config);
    ASSERT_TRUE(grid.ok());
    weights_ = agreed::FlatBuffer(grid->flat_size());
    for (std::size_t t = 0; t < grid->tensors().size(); ++t) {
      agreed::FillNormal(weights_.span().subspan(grid->TensorOffset(t), grid->tensors()[t].Numel()),
                         3, t, 1.0F);
    }
    const Status done =
        ExportHfFolder(root_ + "/model", config, *grid, weights_.span(), *data::Tokenizer::Bytes());
    ASSERT_TRUE(done.ok()) << done.error().ToString();
  }
  void ExportAdapterFor(const model::Tuning& tuning) {
    model::ModelConfig config = Small();
    config.tuning = tuning;
    adapter_grid_ = model::MakeGrid(config).value();
    adapter_ = agreed::FlatBuffer(adapter_grid_.flat_size());
    for (std::size_t t = 0; t < adapter_grid_.tensors().size(); ++t) {
      agreed::FillNormal(adapter_.span().subspan(adapter_grid_.TensorOffset(t),
                                                 adapter_grid_.tensors()[t].Numel()),
                         7, t, 1.0F);
    }
    const Status done =
        ExportAdapter(root_ + "/adapter", {config, adapter_grid_, adapter_.span(), "base"});
    ASSERT_TRUE(done.ok()) << done.error().ToString();
  }
  Result<RunFile> Load(const std::string& toml) const {
    std::ofstream(root_ + "/run.toml") << toml;
    return LoadRun(root_ + "/run.toml");
  }
  std::string Refused(const std::string& toml) const {
    const auto run = Load(toml);
    EXPECT_FALSE(run.ok()) << toml;
    return run.ok() ? "" : run.error().ToString();
  }

  std::string root_;
  agreed::FlatBuffer weights_;
  agreed::TileGrid adapter_grid_;
  agreed::FlatBuffer adapter_;
};

TEST_F(StartModelTest, TheFoldersModelIsTheRuns) {
  const auto run = Load("[model]\nfrom = \"model\"\n");
  ASSERT_TRUE(run.ok()) << run.error().ToString();
  EXPECT_EQ(run->spec.model, Small());
  EXPECT_EQ(run->spec.sync.context, 128U);
  EXPECT_EQ(run->model_from, root_ + "/model");
  EXPECT_EQ(run->spec.data.tokenizer, root_ + "/model/tokenizer.json");
  EXPECT_TRUE(ParseCanonicalSpec(CanonicalSpec(run->spec)).ok());
}

TEST_F(StartModelTest, TheContextMayBeSmallerAndTheModelKeepsItsPositions) {
  const auto run = Load("[model]\nfrom = \"model\"\ncontext = 16\nlayers = 2\npositions = 128\n");
  ASSERT_TRUE(run.ok()) << run.error().ToString();
  EXPECT_EQ(run->spec.model, model::ForContext(Small(), 16));
  EXPECT_EQ(model::NumPositions(run->spec.model), 128U);
  EXPECT_EQ(model::ParameterCount(run->spec.model), model::ParameterCount(Small()));
  const RunFile& written = *run;
  const auto again = Load(WriteRun(written));
  ASSERT_TRUE(again.ok()) << again.error().ToString();
  EXPECT_EQ(CanonicalSpec(again->spec), CanonicalSpec(written.spec));
  EXPECT_EQ(again->model_from, written.model_from);
}

TEST_F(StartModelTest, AKeyThatSaysSomethingElseIsRefusedByName) {
  const std::string from = "[model]\nfrom = \"model\"\n";
  const std::vector<std::pair<std::string, std::vector<std::string>>> cases = {
      {"layers = 3\n", {"run.toml:3", "model.layers = 3", "has 2", "leave it out"}},
      {"width = 64\n", {"model.width = 64", "has 32"}},
      {"vocab = 256\n", {"model.vocab = 256", "has 300"}},
      {"rope_theta = 10000\n", {"model.rope_theta = 10000", "has 50000"}},
      {"tie_embeddings = true\n", {"model.tie_embeddings = true", "has false"}},
      {"family = \"qwen2\"\n", {"model.family = \"qwen2\"", "has \"llama\""}},
      {"positions = 64\n", {"model.positions = 64", "has 128"}},
      {"context = 129\n", {"model.context = 129", "has 128", "not larger"}},
      {"preset = \"nano\"\n", {"run.toml:3", "model.preset", "model.from"}},
  };
  for (const auto& [key, says] : cases) {
    const std::string said = Refused(from + key);
    for (const std::string& part : says) {
      EXPECT_NE(said.find(part), std::string::npos) << key << "said: " << said << "\nnot: " << part;
    }
  }
  for (const char* fits : {"layers = 2\n", "vocab = 300\n", "vocab = 0\n", "context = 128\n",
                           "tie_embeddings = false\n", "family = \"llama\"\n"}) {
    EXPECT_TRUE(Load(from + fits).ok()) << fits;
  }
}

TEST_F(StartModelTest, WhatCannotBeStartedFromIsNamedWithTheFolder) {
  std::string said = Refused("[model]\nfrom = \"nowhere\"\n");
  EXPECT_NE(said.find("run.toml:2: model.from"), std::string::npos) << said;
  EXPECT_NE(said.find(root_ + "/nowhere"), std::string::npos) << said;
  std::ofstream(root_ + "/model/config.json") << R"({"model_type": "bert"})";
  said = Refused("[model]\nfrom = \"model\"\n");
  EXPECT_NE(said.find("model_type"), std::string::npos) << said;
  EXPECT_FALSE(ParseRun("[model]\nfrom = \"model\"\n", "run.toml").ok()) << "reads no disk";
  EXPECT_TRUE(ParseRun("[model]\nfrom = \"\"\n", "run.toml").ok()) << "drawn weights";
}

TEST_F(StartModelTest, OnlyTheModelsOwnVocabularyFits) {
  auto run = Load("[model]\nfrom = \"model\"\n");
  ASSERT_TRUE(run.ok());
  const auto bytes = data::Tokenizer::Bytes();
  EXPECT_TRUE(FitTokenizer(*run, *bytes).ok()) << "256 ids of 300 rows";
  EXPECT_EQ(run->spec.model.vocab, 300U);
  run->spec.data.tokenizer = "bytes";
  EXPECT_TRUE(FitTokenizer(*run, *bytes).ok());

  const std::string_view text = "abc";
  const auto chars = data::Tokenizer::TrainChars(std::span(&text, 1));
  ASSERT_TRUE(chars.ok());
  run->spec.data.tokenizer = "chars";
  auto refused = FitTokenizer(*run, **chars);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("3 ids"), std::string::npos) << refused.error().message;
  EXPECT_NE(refused.error().message.find("256"), std::string::npos) << refused.error().message;

  std::vector<char32_t> letters;
  for (char32_t c = 0x100; c < 0x200; ++c) letters.push_back(c);
  const auto as_many = data::Tokenizer::FromCharacters(letters);
  ASSERT_TRUE(as_many.ok());
  refused = FitTokenizer(*run, **as_many);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("id 0"), std::string::npos) << refused.error().message;
}

TEST_F(StartModelTest, AnAdaptersTuningIsTheRuns) {
  ExportAdapterFor({{}, 4, 12, {"q_proj", "down_proj"}});
  const std::string from = "[model]\nfrom = \"model\"\ncontext = 16\n[tune]\nfrom = \"adapter\"\n";
  const auto run = Load(from);
  ASSERT_TRUE(run.ok()) << run.error().ToString();
  EXPECT_EQ(run->tune_from, root_ + "/adapter");
  EXPECT_EQ(run->spec.model.tuning, (model::Tuning{{}, 4, 12, {"down_proj", "q_proj"}}));
  EXPECT_EQ(run->spec.model.context, 16U);
  EXPECT_TRUE(ParseCanonicalSpec(CanonicalSpec(run->spec)).ok());

  for (const char* fits : {"lora_rank = 4\n", "lora_alpha = 12\n",
                           "lora_targets = [\"q_proj\", \"mlp.down_proj\"]\n"}) {
    const auto same = Load(from + fits);
    ASSERT_TRUE(same.ok()) << same.error().ToString();
    EXPECT_EQ(model::ParameterShapes(same->spec.model), model::ParameterShapes(run->spec.model));
  }
  const std::vector<std::pair<std::string, std::vector<std::string>>> cases = {
      {"lora_rank = 8\n", {"run.toml:6", "tune.lora_rank = 8", "has 4", "leave it out"}},
      {"lora_rank = 0\n", {"tune.lora_rank = 0", "has 4"}},
      {"lora_alpha = 8\n", {"tune.lora_alpha = 8", "has 12"}},
      {"lora_targets = [\"q_proj\"]\n",
       {"tune.lora_targets = [\"q_proj\"]", "has [\"down_proj\", \"q_proj\"]"}},
      {"freeze = [\"*\"]\n", {"tune.freeze = [\"*\"]", "has []"}},
  };
  for (const auto& [key, says] : cases) {
    const std::string said = Refused(from + key);
    for (const std::string& part : says) EXPECT_NE(said.find(part), std::string::npos) << said;
  }
  EXPECT_NE(Refused("[tune]\nfrom = \"adapter\"\n").find("[model] from"), std::string::npos);
  const std::string nowhere = Refused("[model]\nfrom = \"model\"\n[tune]\nfrom = \"none\"\n");
  EXPECT_NE(nowhere.find("run.toml:4: tune.from: "), std::string::npos) << nowhere;
  EXPECT_NE(nowhere.find(root_ + "/none/adapter_config.json"), std::string::npos) << nowhere;
}

TEST_F(StartModelTest, ARunThatTunesIsWrittenAsItIs) {
  ExportAdapterFor({{}, 4, 12, {"q_proj", "down_proj"}});
  for (const char* tune : {"from = \"adapter\"\n", "lora_rank = 2\n", "freeze = [\"*norm*\"]\n"}) {
    const auto run = Load("[model]\nfrom = \"model\"\n[tune]\n" + std::string(tune));
    ASSERT_TRUE(run.ok()) << run.error().ToString();
    const auto again = Load(WriteRun(*run));
    ASSERT_TRUE(again.ok()) << again.error().ToString();
    EXPECT_EQ(CanonicalSpec(again->spec), CanonicalSpec(run->spec));
    EXPECT_EQ(again->tune_from, run->tune_from);
  }
}

TEST_F(StartModelTest, TheFirstWeightsAreTheAdaptersInAnyLayout) {
  ExportAdapterFor({{}, 4, 12, {"q_proj", "down_proj"}});
  auto run = Load("[model]\nfrom = \"model\"\n[tune]\nfrom = \"adapter\"\n");
  ASSERT_TRUE(run.ok()) << run.error().ToString();
  const auto grid = agreed::TileGrid::Make(model::ParameterShapes(run->spec.model), 256).value();
  agreed::FlatBuffer read(grid.flat_size());
  const StartFolders from{run->model_from, run->tune_from};
  const Status done = FirstWeights(run->spec, from, grid, read.span());
  ASSERT_TRUE(done.ok()) << done.error().ToString();
  ASSERT_EQ(grid.tensors(), adapter_grid_.tensors());
  for (std::size_t t = 0; t < grid.tensors().size(); ++t) {
    EXPECT_TRUE(std::equal(read.data() + grid.TensorOffset(t),
                           read.data() + grid.TensorOffset(t) + grid.tensors()[t].Numel(),
                           adapter_.data() + adapter_grid_.TensorOffset(t)))
        << grid.tensors()[t].name;
  }
  run->spec.model.tuning.lora_alpha = 3;
  const Status refused = FirstWeights(run->spec, from, grid, read.span());
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("other additions"), std::string::npos);
}

TEST_F(StartModelTest, WeightsAreThoseOfTheFolderAndOfNoOtherModel) {
  const agreed::TileGrid grid = model::MakeGrid(Small()).value();
  agreed::FlatBuffer read(weights_.size());
  ASSERT_TRUE(
      ReadStartWeights(root_ + "/model", model::ForContext(Small(), 16), grid, read.span()).ok());
  EXPECT_TRUE(std::equal(read.data(), read.data() + read.size(), weights_.data()));
  model::ModelConfig other = Small();
  other.rope_theta = 10000.0F;
  const Status refused = ReadStartWeights(root_ + "/model", other, grid, read.span());
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("rope_theta"), std::string::npos)
      << refused.error().message;
}

}  // namespace
}  // namespace loom::train
