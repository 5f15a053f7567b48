// Cached decoding against full logits, the sampler's cuts, and how a generation ends.
#include "model/generate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include "agreed/flat_buffer.h"
#include "model/config.h"

namespace loom::model {
namespace {

using Ids = std::vector<std::int32_t>;

struct Rig {
  explicit Rig(std::uint32_t kv_heads = 2, std::uint32_t context = 16,
               Family family = Family::kLlama) {
    config.family = family;
    config.vocab = 29, config.layers = 2, config.width = 16, config.heads = 4;
    config.kv_heads = kv_heads, config.head_dim = 4, config.ffn = 24, config.context = context;
    config.init_std = 0.6f;
    config.window = family == Family::kMistral ? 4 : 0;
    grid = MakeGrid(config).value();
    weights = agreed::FlatBuffer(grid.flat_size());
    InitWeights(config, grid, 9, weights.span());
    ModelOptions options;
    options.device = tensor::Device::kCpu;
    EXPECT_TRUE(tensor::ConfigureRuntime({1, true}).ok());
    model = Model::Create(config, grid, options, weights.span(), {}).value();
  }
  ModelConfig config;
  agreed::TileGrid grid;
  agreed::FlatBuffer weights;
  std::unique_ptr<Model> model;
};

const Ids kIds = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8};

TEST(GenerateTest, CachedLogitsEqualUncachedOnes) {
  const std::pair<std::uint32_t, Family> kinds[] = {
      {1, Family::kLlama}, {2, Family::kLlama}, {4, Family::kLlama}, {2, Family::kMistral},
      {2, Family::kQwen2}, {2, Family::kQwen3}, {4, Family::kGpt2}};
  for (const auto& [kv_heads, family] : kinds) {
    for (const std::size_t prompt : {std::size_t{1}, std::size_t{5}}) {
      Rig rig(kv_heads, 16, family);
      const auto decoder = rig.model->NewDecoder().value();
      std::size_t done = prompt;
      std::vector<float> cached = decoder->Feed(std::span(kIds).first(prompt)).value();
      while (true) {
        const auto full = rig.model->Logits(std::span(kIds).first(done)).value();
        ASSERT_EQ(full.size(), done * 29);
        for (std::size_t v = 0; v < 29; ++v) {
          EXPECT_NEAR(cached[v], full[(done - 1) * 29 + v], 1e-4) << done << " " << v;
        }
        if (done == kIds.size()) break;
        cached = decoder->Feed(std::span(kIds).subspan(done, 1)).value();
        ++done;
      }
      EXPECT_EQ(decoder->length(), kIds.size());
      EXPECT_FALSE(decoder->Feed(kIds).ok());  // 12 + 12 > 16
      decoder->Clear();
      EXPECT_TRUE(decoder->Feed(kIds).ok());
    }
  }
}

TEST(GenerateTest, GreedyFollowsTheFullLogits) {
  Rig rig;
  GenerateOptions options;
  options.greedy = true;
  options.max_new_tokens = 6;
  const Generated out = Generate(*rig.model, std::span(kIds).first(4), options).value();
  Ids ids(kIds.begin(), kIds.begin() + 4);
  for (int i = 0; i < 6; ++i) {
    const auto logits = rig.model->Logits(ids).value();
    ids.push_back(SampleToken(std::span(logits).last(29), options, 0));
  }
  EXPECT_EQ(out.ids, Ids(ids.begin() + 4, ids.end()));
  EXPECT_EQ(out.reason, StopReason::kLength);
}

TEST(GenerateTest, SameSeedSameTokensOtherSeedOtherTokens) {
  Rig rig;
  GenerateOptions options;
  options.max_new_tokens = 40;
  options.seed = 1;
  const Ids first = Generate(*rig.model, kIds, options).value().ids;
  EXPECT_EQ(first.size(), 40u);  // slides over the context of 16
  EXPECT_EQ(first, Generate(*rig.model, kIds, options).value().ids);
  options.seed = 2;
  EXPECT_NE(first, Generate(*rig.model, kIds, options).value().ids);
}

TEST(GenerateTest, EndsAtStopTokenContextOrCallback) {
  Rig rig;
  GenerateOptions options;
  options.greedy = true;
  options.max_new_tokens = 100;
  const Ids free = Generate(*rig.model, kIds, options).value().ids;
  options.stop_ids = {free[3]};
  const Generated stopped = Generate(*rig.model, kIds, options).value();
  EXPECT_EQ(stopped.reason, StopReason::kStopToken);
  EXPECT_LE(stopped.ids.size(), 3u);
  options.stop_ids.clear();
  options.at_context = AtContext::kStop;
  const Generated full = Generate(*rig.model, kIds, options).value();
  EXPECT_EQ(full.reason, StopReason::kContext);
  EXPECT_EQ(full.ids.size(), 16u - kIds.size() + 1);  // the last one is never fed
  int calls = 0;
  const Generated cut =
      Generate(*rig.model, kIds, options, [&](std::int32_t) { return ++calls < 2; }).value();
  EXPECT_EQ(cut.reason, StopReason::kCallback);
  EXPECT_EQ(cut.ids.size(), 2u);
}

TEST(GenerateTest, LongPromptAndContextOfOneWork) {
  Rig rig;
  GenerateOptions options;
  options.greedy = true;
  options.max_new_tokens = 1;
  Ids lengthy(100, 7);
  lengthy.insert(lengthy.end(), kIds.begin(), kIds.end());
  const Ids tail(lengthy.end() - 16, lengthy.end());
  EXPECT_EQ(Generate(*rig.model, lengthy, options).value().ids,
            Generate(*rig.model, tail, options).value().ids);
  Rig one(2, 1);
  options.max_new_tokens = 5;
  EXPECT_EQ(Generate(*one.model, kIds, options).value().ids.size(), 5u);
}

TEST(GenerateTest, TopKAndTopPCutTheTail) {
  const std::vector<float> logits = {0.0f, 2.0f, 1.0f, -1.0f, 2.0f};
  const auto drawn = [&](const GenerateOptions& options) {
    std::set<std::int32_t> seen;
    for (std::uint64_t i = 0; i < 2000; ++i) seen.insert(SampleToken(logits, options, i));
    return seen;
  };
  using Set = std::set<std::int32_t>;
  GenerateOptions options;
  EXPECT_EQ(drawn(options), (Set{0, 1, 2, 3, 4}));
  options.top_k = 1;
  EXPECT_EQ(drawn(options), (Set{1}));  // ties: the lower id
  options.top_k = 3;
  EXPECT_EQ(drawn(options), (Set{1, 2, 4}));
  options.top_k = 0;
  options.top_p = 0.5f;
  EXPECT_EQ(drawn(options), (Set{1, 4}));
  options.top_p = 1e-6f;
  EXPECT_EQ(drawn(options), (Set{1}));
  options.top_p = 1.0f;
  options.temperature = 0.01f;
  EXPECT_EQ(drawn(options), (Set{1, 4}));
}

TEST(GenerateTest, FrequenciesFollowTheSoftmax) {
  const std::vector<float> logits = {0.0f, std::log(3.0f)};
  int ones = 0;
  for (std::uint64_t i = 0; i < 20000; ++i) ones += SampleToken(logits, {}, i);
  EXPECT_NEAR(ones / 20000.0, 0.75, 0.015);
}

TEST(GenerateTest, BadOptionsAreErrors) {
  Rig rig;
  GenerateOptions options;
  EXPECT_FALSE(Generate(*rig.model, {}, options).ok());
  EXPECT_FALSE(Generate(*rig.model, Ids{29}, options).ok());
  options.temperature = 0;
  EXPECT_FALSE(Generate(*rig.model, kIds, options).ok());
  options.temperature = 1;
  options.top_p = NAN;
  EXPECT_FALSE(Generate(*rig.model, kIds, options).ok());
  options.top_p = 1;
  rig.weights.data()[0] = NAN;
  EXPECT_FALSE(Generate(*rig.model, Ids{0}, options).ok());
}

}  // namespace
}  // namespace loom::model
