// A run that starts from a model: the same first state whoever reads it, every file pinned, damage
// named, and a genesis record that asks for other files refused.
#include "node/run_start.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "agreed/random.h"
#include "agreed/state.h"
#include "base/file.h"
#include "collab/method.h"
#include "train/hf_adapter.h"
#include "train/start_model.h"

namespace loom::node {
namespace {

namespace fs = std::filesystem;

class RunStart : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = ::testing::TempDir() + "loom_run_start_" +
            ::testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(root_);
    fs::create_directories(root_);
    std::ofstream text(root_ + "/text.txt");
    for (int i = 0; i < 400; ++i) text << "line " << i << " of the text\n";
  }
  void TearDown() override { fs::remove_all(root_); }

  std::string Model() const { return root_ + "/model"; }
  std::string Dir(const std::string& name = "peer") const { return root_ + "/" + name; }

  /// A folder with a chat template, special tokens and weights in bf16.
  void ExportModel(bool tied, std::uint64_t seed = 1) {
    model::ModelConfig c;
    c.vocab = 256;
    c.layers = 2;
    c.width = 48;
    c.heads = 3;
    c.kv_heads = 1;
    c.head_dim = 16;
    c.ffn = 80;
    c.context = 64;
    c.tie_embeddings = tied;
    const auto grid = model::MakeGrid(c);
    ASSERT_TRUE(grid.ok());
    agreed::FlatBuffer weights(grid->flat_size());
    model::InitWeights(c, *grid, seed, weights.span());
    train::HfTexts texts;
    texts.files = {{"tokenizer.json", data::Tokenizer::Bytes()->ToJson()},
                   {"chat_template.jinja", "{{ messages }}"},
                   {"generation_config.json", R"({"eos_token_id": 3})"},
                   {"special_tokens_map.json", "{}"},
                   {"tokenizer_config.json", "{}"}};
    texts.token_ids = {{"eos_token_id", 3U}};
    const auto views = train::WeightViews(*grid, weights.span());
    const Status done = train::ExportHfFolder(
        Model(), {.config = c, .tensors = views, .texts = texts, .dtype = tensor::DType::kBF16});
    ASSERT_TRUE(done.ok()) << done.error().ToString();
  }
  std::string Adapter() const { return root_ + "/adapter"; }
  /// An adapter of that model, its weights in the layout of MakeGrid.
  agreed::FlatBuffer ExportAdapter() const {
    model::ModelConfig config = train::OpenStartModel(Model()).value().config;
    config.tuning = {{}, 3, 6, {"q_proj", "up_proj"}};
    const agreed::TileGrid grid = model::MakeGrid(config).value();
    agreed::FlatBuffer weights(grid.flat_size());
    for (std::size_t t = 0; t < grid.tensors().size(); ++t) {
      agreed::FillNormal(weights.span().subspan(grid.TensorOffset(t), grid.tensors()[t].Numel()), 7,
                         t, 0.5F);
    }
    const Status done =
        train::ExportAdapter(Adapter(), {config, grid, weights.span(), "/home/me/base"});
    EXPECT_TRUE(done.ok()) << done.error().ToString();
    return weights;
  }
  static constexpr std::string_view kTuned = "[tune]\nfrom = \"adapter\"\n";
  train::RunFile File(std::string_view tune = "") const {
    std::ofstream(root_ + "/run.toml") << "[model]\nfrom = \"model\"\ncontext = 16\n"
                                          "[data]\npaths = \"text.txt\"\n"
                                       << tune;
    auto file = train::LoadRun(root_ + "/run.toml");
    EXPECT_TRUE(file.ok()) << file.error().ToString();
    return *std::move(file);
  }
  node::Run Make(const std::string& dir) const { return Make(dir, File()); }
  node::Run Make(const std::string& dir, const train::RunFile& file) const {
    const auto owner = crypto::SigningKey::Generate();
    fs::create_directories(dir);
    auto run = MakeRun(file, dir, {"test", owner, owner.public_key(), 1});
    EXPECT_TRUE(run.ok()) << run.error().ToString();
    return run.ok() ? *std::move(run) : node::Run();
  }
  static void Flip(const std::string& path, std::uint64_t at) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(at));
    const char byte = static_cast<char>(file.get() ^ 1);
    file.seekp(static_cast<std::streamoff>(at));
    file.put(byte);
  }

  std::string root_;
};

TEST_F(RunStart, TheFirstStateIsTheModelsForWhoeverReadsIt) {
  for (const bool tied : {true, false}) {
    SCOPED_TRACE(tied);
    ExportModel(tied);
    const node::Run run = Make(Dir(tied ? "tied" : "untied"));
    const std::string dir = Dir(tied ? "tied" : "untied");
    EXPECT_EQ(model::NumPositions(run.spec.model), 64U);
    fs::remove_all(Model());  // from here on the run has its own

    const auto joined = ReadRun(run.genesis.Encode());
    ASSERT_TRUE(joined.ok()) << joined.error().ToString();
    EXPECT_EQ(joined->content.start, run.content.start);
    const auto grid = agreed::TileGrid::Make(model::ParameterShapes(joined->spec.model),
                                             joined->spec.sync.tile_elements);
    ASSERT_TRUE(grid.ok());
    auto state = agreed::State::Make(*grid, collab::MakeStepRule(joined->spec.sync)->num_slots());
    ASSERT_TRUE(state.ok());
    const Status read = ReadFirstWeights(*joined, dir, *grid, state->weights());
    ASSERT_TRUE(read.ok()) << read.error().ToString();
    EXPECT_EQ(agreed::StateRoot(*grid, std::as_const(*state).planes()), run.genesis.body.root);
    EXPECT_EQ(FirstRoot(joined->spec, *grid, state->weights()), run.genesis.body.root);
  }
}

TEST_F(RunStart, ExportsKeepWhatStoodBesideTheWeights) {
  ExportModel(true);
  const node::Run run = Make(Dir());
  const auto texts = ReadStartTexts(run, Dir());
  ASSERT_TRUE(texts.ok()) << texts.error().ToString();
  EXPECT_EQ(texts->files.at("chat_template.jinja"), "{{ messages }}");
  EXPECT_EQ(texts->files.at("generation_config.json"), R"({"eos_token_id": 3})");
  EXPECT_FALSE(texts->files.contains("tokenizer.json")) << "that is the run's";
  ASSERT_EQ(texts->token_ids.size(), 1U);
  EXPECT_EQ(*texts->token_ids[0].second.AsUnsigned(), 3U);
}

TEST_F(RunStart, AFlippedByteIsNamedAndMadeGoodFromTheModel) {
  ExportModel(true);
  const node::Run run = Make(Dir());
  auto whole = CheckData(run, Dir());
  ASSERT_TRUE(whole.ok());
  EXPECT_TRUE(whole->missing.empty());
  const std::string kept = Dir() + "/start/model.safetensors";
  Flip(kept, fs::file_size(kept) - 9);
  const auto damaged = CheckData(run, Dir());
  ASSERT_TRUE(damaged.ok());
  ASSERT_EQ(damaged->missing.size(), 1U);
  EXPECT_EQ(damaged->missing[0].name, "start/model.safetensors");
  const auto grid =
      agreed::TileGrid::Make(model::ParameterShapes(run.spec.model), run.spec.sync.tile_elements);
  agreed::FlatBuffer weights(grid->flat_size());
  const Status read = ReadFirstWeights(run, Dir(), *grid, weights.span());
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code, Code::kCorrupt);
  EXPECT_NE(read.error().message.find(kept), std::string::npos) << read.error().message;

  const train::RunFile file = File();
  fs::rename(Model(), Model() + ".away");
  auto rebuilt = RebuildData(damaged->missing, file, Dir());
  ASSERT_FALSE(rebuilt.ok());
  EXPECT_NE(rebuilt.error().message.find(kept), std::string::npos) << rebuilt.error().message;
  EXPECT_NE(rebuilt.error().message.find("config.json"), std::string::npos);
  ExportModel(true, 2);
  rebuilt = RebuildData(damaged->missing, file, Dir());
  ASSERT_FALSE(rebuilt.ok());
  EXPECT_NE(rebuilt.error().message.find("another one"), std::string::npos);
  fs::remove_all(Model());
  fs::rename(Model() + ".away", Model());
  rebuilt = RebuildData(damaged->missing, file, Dir());
  ASSERT_TRUE(rebuilt.ok()) << rebuilt.error().ToString();
  EXPECT_EQ(*rebuilt, std::vector<std::string>{kept});
  whole = CheckData(run, Dir());
  ASSERT_TRUE(whole.ok());
  EXPECT_TRUE(whole->missing.empty());
}

TEST_F(RunStart, AModelThatCannotBeStartedFromBeginsNoRun) {
  ExportModel(true);
  train::RunFile file = File();
  const auto owner = crypto::SigningKey::Generate();
  file.spec.data.tokenizer = "chars";
  fs::create_directories(Dir());
  auto run = MakeRun(file, Dir(), {"test", owner, owner.public_key(), 1});
  ASSERT_FALSE(run.ok());
  EXPECT_NE(run.error().message.find("data.tokenizer"), std::string::npos) << run.error().message;

  file = File();
  const std::string weights = Model() + "/model.safetensors";
  std::fstream broken(weights, std::ios::in | std::ios::out | std::ios::binary);
  broken.seekp(-2, std::ios::end);
  broken.write("\x80\x7f", 2);  // infinity in bf16
  broken.close();
  run = MakeRun(file, Dir(), {"test", owner, owner.public_key(), 1});
  ASSERT_FALSE(run.ok());
  EXPECT_NE(run.error().message.find("model.norm.weight"), std::string::npos)
      << run.error().message;
}

TEST_F(RunStart, AnAdapterIsPinnedKeptAndTheFirstState) {
  ExportModel(true);
  const agreed::FlatBuffer first = ExportAdapter();
  const train::RunFile file = File(kTuned);
  const node::Run run = Make(Dir(), file);
  ASSERT_TRUE(StartsFromAdapter(run.content));
  fs::rename(Adapter(), Adapter() + ".away");  // from here on the run has its own
  const auto joined = ReadRun(run.genesis.Encode());
  ASSERT_TRUE(joined.ok()) << joined.error().ToString();
  EXPECT_EQ(joined->content.start, run.content.start);
  const auto grid =
      agreed::TileGrid::Make(model::ParameterShapes(run.spec.model), run.spec.sync.tile_elements)
          .value();
  agreed::FlatBuffer weights(grid.flat_size());
  const Status read = ReadFirstWeights(*joined, Dir(), grid, weights.span());
  ASSERT_TRUE(read.ok()) << read.error().ToString();
  const agreed::TileGrid of_file = model::MakeGrid(run.spec.model).value();
  for (std::size_t t = 0; t < grid.tensors().size(); ++t) {
    EXPECT_TRUE(std::equal(weights.data() + grid.TensorOffset(t),
                           weights.data() + grid.TensorOffset(t) + grid.tensors()[t].Numel(),
                           first.data() + of_file.TensorOffset(t)));
  }
  EXPECT_EQ(FirstRoot(joined->spec, grid, weights.span()), run.genesis.body.root);
  EXPECT_TRUE(ReadStartTexts(run, Dir()).ok()) << "an adapter's files are no texts of a model";

  const std::string kept = Dir() + "/adapter/adapter_model.safetensors";
  Flip(kept, fs::file_size(kept) - 9);
  const auto damaged = CheckData(run, Dir());
  ASSERT_TRUE(damaged.ok());
  ASSERT_EQ(damaged->missing.size(), 1U);
  EXPECT_EQ(damaged->missing[0].name, "adapter/adapter_model.safetensors");
  const Status refused = ReadFirstWeights(run, Dir(), grid, weights.span());
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find(kept), std::string::npos) << refused.error().message;
  auto rebuilt = RebuildData(damaged->missing, file, Dir());
  ASSERT_FALSE(rebuilt.ok());
  EXPECT_NE(rebuilt.error().hint.find("bring back the adapter"), std::string::npos);
  fs::rename(Adapter() + ".away", Adapter());
  fs::remove_all(Model());  // not needed for it
  rebuilt = RebuildData(damaged->missing, file, Dir());
  ASSERT_TRUE(rebuilt.ok()) << rebuilt.error().ToString();
  EXPECT_EQ(*rebuilt, std::vector<std::string>{kept});
}

TEST_F(RunStart, AGenesisRecordAsksForAWholeAdapterAndOnlyWhereLoraIsTrained) {
  ExportModel(true);
  ExportAdapter();
  const node::Run run = Make(Dir(), File(kTuned));
  ASSERT_TRUE(CheckStart(run.content.start, run.spec.model).ok());
  model::ModelConfig untuned = run.spec.model;
  untuned.tuning = {};
  const Status plain = CheckStart(run.content.start, untuned);
  ASSERT_FALSE(plain.ok());
  EXPECT_NE(plain.error().message.find("no file of one"), std::string::npos);
  for (std::size_t i = 0; i < 2; ++i) {  // adapter_config.json and its weights come first
    auto without = run.content.start;
    const std::string name = without[i].name;
    EXPECT_TRUE(name.starts_with("adapter_")) << name;
    without.erase(without.begin() + static_cast<std::ptrdiff_t>(i));
    const Status part = CheckStart(without, run.spec.model);
    ASSERT_FALSE(part.ok());
    EXPECT_NE(part.error().message.find("it has no " + name), std::string::npos);
    auto huge = run.content.start;
    huge[i].ref.size = std::uint64_t{1} << 34;
    EXPECT_EQ(CheckStart(huge, run.spec.model).error().code, Code::kLimit);
  }
}

TEST_F(RunStart, AGenesisRecordMayAskForNothingElseThanAModelsFiles) {
  ExportModel(true);
  const node::Run run = Make(Dir());
  const std::vector<collab::NamedObject> good = run.content.start;
  const model::ModelConfig& config = run.spec.model;
  ASSERT_TRUE(CheckStart(good, config).ok());
  EXPECT_TRUE(CheckStart({}, config).ok());
  const auto refused = [&](const std::vector<collab::NamedObject>& start) {
    const Status checked = CheckStart(start, config);
    EXPECT_FALSE(checked.ok());
    return checked.ok() ? "" : checked.error().message;
  };
  for (const char* name : {"../keys/peer", "tokenizer.json", "a/b", "",
                           "model-00001-of-00002.safetensors", "\x1b[2J"}) {
    auto start = good;
    start.front().name = name;
    EXPECT_NE(refused(start).find("no file of one"), std::string::npos) << name;
  }
  auto twice = good;
  twice.push_back(good.back());
  EXPECT_NE(refused(twice).find("not in order"), std::string::npos);
  for (std::size_t i = 0; i < good.size(); ++i) {
    auto huge = good;
    huge[i].ref.size = std::uint64_t{1} << 34;
    EXPECT_NE(refused(huge).find("the limit is"), std::string::npos) << good[i].name;
    if (good[i].name != "config.json" && good[i].name != "model.safetensors") continue;
    auto without = good;
    without.erase(without.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_NE(refused(without).find("it has no " + good[i].name), std::string::npos);
  }
}

}  // namespace
}  // namespace loom::node
