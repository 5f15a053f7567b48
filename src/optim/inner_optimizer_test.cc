// The inner optimizer's guarantees, and that it makes a model learn.
#include "optim/inner_optimizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>
#include <vector>

#include "agreed/flat_buffer.h"
#include "model/config.h"
#include "model/model.h"
#include "tensor/runtime.h"

namespace loom::optim {
namespace {

agreed::TileGrid SmallGrid() {
  return agreed::TileGrid::Make({{"matrix", {3, 5}}, {"vector", {7}}, {"last", {2, 9}}}).value();
}
std::vector<float> Copy(std::span<const float> x) { return {x.begin(), x.end()}; }

InnerConfig Clipped(float norm) {
  InnerConfig config;
  config.clip_norm = norm;
  return config;
}

struct Rig {
  Rig() : grid(SmallGrid()), w(grid.flat_size()), g(grid.flat_size()) {
    for (const agreed::Tile& tile : grid.tiles()) {
      for (std::uint32_t i = 0; i < tile.size; ++i) {
        w.data()[tile.offset + i] = 1.0f + static_cast<float>(i);
        g.data()[tile.offset + i] = i % 2 == 0 ? 0.5f : -0.25f;
      }
    }
  }
  agreed::TileGrid grid;
  agreed::FlatBuffer w, g;
};

TEST(InnerOptimizerTest, DecaysMatricesOnlyAndLeavesPaddingZero) {
  Rig rig;
  std::fill_n(rig.g.data(), rig.g.size(), 0.0f);
  const auto before = Copy(rig.w.span());
  InnerConfig config;
  config.adamw.weight_decay = 0.5f;
  auto optimizer = InnerOptimizer::Make(rig.grid, config).value();
  EXPECT_EQ(optimizer.Step(rig.w.span(), rig.g.span(), 0.1f).value().step, 1u);
  for (std::size_t i = 0; i < before.size(); ++i) {
    const bool vector = i >= rig.grid.TensorOffset(1) && i < rig.grid.TensorOffset(2);
    EXPECT_FLOAT_EQ(rig.w.data()[i], vector ? before[i] : before[i] * 0.95f) << i;
  }
}

TEST(InnerOptimizerTest, FirstStepMovesByTheLearningRateAgainstTheGradient) {
  Rig rig;
  InnerConfig config;
  config.adamw.weight_decay = 0;
  config.clip_norm = 0;
  const auto before = Copy(rig.w.span());
  auto optimizer = InnerOptimizer::Make(rig.grid, config).value();
  const StepReport report = optimizer.Step(rig.w.span(), rig.g.span(), 0.01f).value();
  EXPECT_EQ(report.grad_scale, 1.0f);
  for (std::size_t i = 0; i < before.size(); ++i) {
    const float g = rig.g.data()[i];
    const float move = g > 0 ? -0.01f : g < 0 ? 0.01f : 0.0f;
    EXPECT_NEAR(rig.w.data()[i], before[i] + move, 2e-6) << i;
  }
}

TEST(InnerOptimizerTest, ClippingScalesTheGradientToTheNorm) {
  Rig a, b;
  auto clipped = InnerOptimizer::Make(a.grid, Clipped(0.5f)).value();
  auto free = InnerOptimizer::Make(b.grid, Clipped(0)).value();
  const StepReport report = clipped.Step(a.w.span(), a.g.span(), 0.01f).value();
  EXPECT_GT(report.grad_norm, 0.5);
  EXPECT_NEAR(report.grad_scale * report.grad_norm, 0.5, 1e-6);
  (void)free.Step(b.w.span(), b.g.span(), 0.01f).value();
  for (std::size_t i = 0; i < a.w.size(); ++i) {
    EXPECT_NEAR(clipped.state()[i], report.grad_scale * free.state()[i], 1e-8) << "first moment";
  }
}

TEST(InnerOptimizerTest, AGradientThatIsNotFiniteTakesNoStepAndIsNamed) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Rig rig;
    auto optimizer = InnerOptimizer::Make(rig.grid, {}).value();
    (void)optimizer.Step(rig.w.span(), rig.g.span(), 0.01f).value();
    const auto w = Copy(rig.w.span());
    const auto state = Copy(optimizer.state());
    rig.g.data()[rig.grid.TensorOffset(1) + 2] = bad;
    const auto result = optimizer.Step(rig.w.span(), rig.g.span(), 0.01f);
    ASSERT_FALSE(result.ok());
    EXPECT_NE(result.error().message.find("step 2: the gradient of vector"), std::string::npos);
    EXPECT_EQ(w, Copy(rig.w.span()));
    EXPECT_EQ(state, Copy(optimizer.state()));
    EXPECT_EQ(optimizer.step(), 1u);
  }
  Rig rig;
  auto optimizer = InnerOptimizer::Make(rig.grid, {}).value();
  EXPECT_FALSE(optimizer.Step(rig.w.span(), rig.g.span(), NAN).ok());
}

InnerConfig ConfigOf(agreed::InnerKind kind, float momentum) {
  InnerConfig config;
  config.kind = kind;
  config.momentum = momentum;
  return config;
}
const InnerConfig kConfigs[] = {
    ConfigOf(agreed::InnerKind::kAdamW, 0), ConfigOf(agreed::InnerKind::kSgd, 0),
    ConfigOf(agreed::InnerKind::kSgd, 0.9f), ConfigOf(agreed::InnerKind::kMuon, 0.95f)};

using Fill = std::function<Status(std::span<float>)>;
Fill From(std::span<const float> values) {
  return [values](std::span<float> state) -> Status {
    EXPECT_EQ(state.size(), values.size());
    std::ranges::copy(values, state.begin());
    return {};
  };
}

TEST(InnerOptimizerTest, RestoreContinuesWithTheSameBits) {
  for (const InnerConfig& config : kConfigs) {
    SCOPED_TRACE(agreed::InnerKindName(config.kind));
    Rig a;
    auto whole = InnerOptimizer::Make(a.grid, config).value();
    for (int i = 0; i < 3; ++i) (void)whole.Step(a.w.span(), a.g.span(), 0.01f).value();
    Rig b;
    auto first = InnerOptimizer::Make(b.grid, config).value();
    (void)first.Step(b.w.span(), b.g.span(), 0.01f).value();
    auto second = InnerOptimizer::Make(b.grid, config).value();
    ASSERT_TRUE(second.Restore(first.step(), From(first.state())).ok());
    for (int i = 0; i < 2; ++i) (void)second.Step(b.w.span(), b.g.span(), 0.01f).value();
    EXPECT_EQ(Copy(a.w.span()), Copy(b.w.span()));
    EXPECT_EQ(Copy(whole.state()), Copy(second.state()));
    second.Reset();
    EXPECT_EQ(second.step(), 0u);
    EXPECT_TRUE(std::ranges::all_of(second.state(), [](float x) { return x == 0; }));
  }
}

TEST(InnerOptimizerTest, RestoreRefusesBadValuesAndForgetsThem) {
  Rig rig;
  auto optimizer = InnerOptimizer::Make(rig.grid, {}).value();
  (void)optimizer.Step(rig.w.span(), rig.g.span(), 0.01f).value();
  const auto good = Copy(optimizer.state());
  auto nan = good, negative = good;
  nan[3] = std::numeric_limits<float>::quiet_NaN();
  negative[good.size() / 2 + 1] = -1;
  const auto fails = [](std::span<float> state) -> Status {
    state[0] = 1;
    return MakeError(Code::kIo, "read");
  };
  for (const auto& bad : {From(nan), From(negative), Fill(fails)}) {
    ASSERT_TRUE(optimizer.Restore(7, From(good)).ok());
    EXPECT_FALSE(optimizer.Restore(8, bad).ok());
    EXPECT_EQ(Copy(optimizer.state()), std::vector<float>(good.size()));
    EXPECT_EQ(optimizer.step(), 0u);
  }
}

TEST(InnerOptimizerTest, SettingsOutOfRangeAreNamed) {
  const auto grid = SmallGrid();
  InnerConfig config;
  config.adamw.beta1 = 1.0f;
  const auto result = InnerOptimizer::Make(grid, config);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().message, "optim.beta1 is 1, allowed are 0 to below 1");
  config = {};
  config.adamw.eps = 0;
  EXPECT_FALSE(InnerOptimizer::Make(grid, config).ok());
  EXPECT_FALSE(InnerOptimizer::Make(grid, Clipped(NAN)).ok());
}

/// Loss of a tiny batch before and after 80 steps; the padding of the weights must stay zero.
std::pair<double, double> Overfit(const InnerConfig& inner, float lr, bool tie) {
  model::ModelConfig config;
  config.vocab = 17, config.layers = 2, config.width = 32, config.heads = 4, config.kv_heads = 2;
  config.head_dim = 8, config.ffn = 64, config.context = 16;
  config.tie_embeddings = tie;
  const agreed::TileGrid grid = model::MakeGrid(config).value();
  agreed::FlatBuffer w(grid.flat_size()), g(grid.flat_size());
  model::InitWeights(config, grid, 1, w.span());
  model::ModelOptions options;
  options.device = tensor::Device::kCpu;
  const auto model = model::Model::Create(config, grid, options, w.span(), g.span()).value();
  auto optimizer = InnerOptimizer::Make(grid, inner).value();
  std::vector<std::int32_t> ids;
  for (int i = 0; i < 2 * 17; ++i) ids.push_back((i * i + 3 * i) % 17);
  double first = 0, last = 0;
  for (int step = 0; step < 160; ++step) {
    ZeroGradients(g.span());
    last = model->ForwardBackward(ids, 2, 16, 1.0f / 32).value().nll / 32;
    if (step == 0) first = last;
    (void)optimizer.Step(w.span(), g.span(), lr).value();
    model->WeightsChanged();
  }
  for (std::size_t t = 0; t + 1 < grid.tensors().size(); ++t) {
    const std::uint64_t end = grid.TensorOffset(t) + grid.tensors()[t].Numel();
    for (std::uint64_t i = end; i < grid.TensorOffset(t + 1); ++i) EXPECT_EQ(w.data()[i], 0.0f);
  }
  return {first, last};
}

TEST(InnerOptimizerTest, OverfitsATinyBatch) {
  ASSERT_TRUE(tensor::ConfigureRuntime({1, true}).ok());
  const float rates[] = {1e-2f, 0.7f, 0.15f, 1e-2f};  // far from where they diverge
  for (std::size_t i = 0; i < std::size(kConfigs); ++i) {
    SCOPED_TRACE(agreed::InnerKindName(kConfigs[i].kind));
    for (const bool tie : {true, false}) {
      InnerConfig config = kConfigs[i];
      config.adamw.weight_decay = config.kind == agreed::InnerKind::kSgd ? 0.0f : 0.1f;
      const auto [first, last] = Overfit(config, rates[i], tie);
      EXPECT_NEAR(first, std::log(17.0), 0.2);
      EXPECT_LT(last, 0.05);
    }
  }
}

}  // namespace
}  // namespace loom::optim
