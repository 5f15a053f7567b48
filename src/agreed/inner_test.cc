// SGD and Muon against PyTorch, by hand, and by what they must equal; and which tensor takes which
// step.
#include "agreed/inner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "agreed/combine.h"
#include "agreed/matmul.h"
#include "agreed/outer.h"
#include "agreed/random.h"
#include "agreed/step.h"

namespace loom::agreed {
namespace {

struct Golden {
  InnerKind kind;
  std::size_t rows, columns;
  float lr, momentum;
  bool nesterov;
  float weight_decay;
  MuonScale scale;
  std::vector<float> after;  ///< three steps
};
const std::vector<Golden>& Goldens() {
  static const std::vector<Golden> goldens = {
#include "agreed/inner_golden.inc"
  };
  return goldens;
}

/// The formula of make_optim_golden.py: n numbers in [-1, 1).
std::vector<float> Hashed(std::size_t n, std::uint64_t salt) {
  std::vector<float> out(n);
  for (std::size_t i = 0; i < n; ++i) {
    auto h = static_cast<std::uint32_t>((i + 1) * 2654435761U + salt * 40503U);
    h = (h ^ (h >> 15)) * 2246822519U;
    h ^= h >> 13;
    out[i] = static_cast<float>((h >> 9) / 4194304.0 - 1.0);
  }
  return out;
}

std::vector<float> Normal(std::size_t n, std::uint64_t stream) {
  std::vector<float> x(n);
  FillNormal(x, 23, stream, 1.0F);
  return x;
}

/// Multiples of 1/8 in [-1, 1): sums and products with such factors stay exact in fp32.
std::vector<float> Dyadic(std::size_t n, std::uint64_t stream) {
  const Philox philox(29, stream);
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i) {
    x[i] = (static_cast<float>(philox.Below(i, 16)) - 8.0F) / 8.0F;
  }
  return x;
}

TEST(InnerStep, EqualsPyTorch) {
  ASSERT_EQ(Goldens().size(), 8u);
  for (const Golden& golden : Goldens()) {
    const std::size_t n = golden.rows * golden.columns;
    const TileGrid grid = TileGrid::Make({{"w", {golden.rows, golden.columns}}}).value();
    InnerConfig config;
    config.kind = golden.kind;
    config.momentum = golden.momentum;
    config.nesterov = golden.nesterov;
    config.muon_scale = golden.scale;
    config.adamw.weight_decay = golden.weight_decay;
    ASSERT_TRUE(Validate(config).ok());
    const InnerPlan plan = PlanInner(grid, config);
    std::vector<float> w(grid.flat_size()), state(plan.state_size()), scratch(plan.scratch);
    std::ranges::copy(Hashed(n, 1), w.begin());
    for (std::uint64_t step = 1; step <= 3; ++step) {
      std::vector<float> g(grid.flat_size());
      std::ranges::copy(Hashed(n, 1 + step), g.begin());
      InnerStep(plan, config, w, g, state, scratch, golden.lr, step, 1.0F);
    }
    const double tolerance = golden.kind == InnerKind::kMuon ? 1e-4 : 1e-6;
    for (std::size_t i = 0; i < n; ++i) {
      EXPECT_NEAR(w[i], golden.after[i], tolerance)
          << InnerKindName(golden.kind) << " " << golden.rows << " " << golden.columns << " " << i;
    }
  }
}

TEST(Sgd, ComesOutExactlyByHand) {
  // From w = 1 with decay 1/2 and rate 1/4: d = g + w/2.
  const auto run = [](float momentum, bool nesterov) {
    std::vector<float> w{1.0F}, b(momentum == 0 ? 0 : 1);
    std::vector<float> after;
    for (const float g : {2.0F, -1.0F, 0.0F}) {
      SgdStep(w, std::vector{g}, b, {momentum, nesterov, 0.5F}, 0.25F, 1.0F);
      after.push_back(w[0]);
    }
    return after;
  };
  // d: 2.5, -0.8125, 0.2890625
  EXPECT_EQ(run(0, false), (std::vector{0.375F, 0.578125F, 0.505859375F}));
  // b: 2.5, 0.4375, 0.3515625; d: 2.5, -0.8125, 0.1328125
  EXPECT_EQ(run(0.5F, false), (std::vector{0.375F, 0.265625F, 0.177734375F}));
  // b: 2.5, 0.28125, 0.275390625; d + b / 2: 3.75, -0.828125, 0.2724609375
  EXPECT_EQ(run(0.5F, true), (std::vector{0.0625F, 0.26953125F, 0.201416015625F}));
}

TEST(Sgd, GradScaleIsAScaledGradient) {
  const auto g = Normal(333, 1);
  std::vector<float> half(g);
  for (float& x : half) x *= 0.5F;
  auto w1 = Normal(333, 2), w2 = w1;
  std::vector<float> b1(333), b2(333);
  SgdStep(w1, g, b1, {0.9F, true, 0.1F}, 1e-2F, 0.5F);
  SgdStep(w2, half, b2, {0.9F, true, 0.1F}, 1e-2F, 1.0F);
  EXPECT_EQ(w1, w2);
  EXPECT_EQ(b1, b2);
}

/// Gradient of |A w - target|^2 / 2 with A diagonal, of worker m at step t; dyadic like its inputs.
std::vector<float> ToyGradient(const std::vector<float>& w, std::uint64_t m, std::uint64_t t) {
  const auto a = Dyadic(w.size(), 100 + m);
  const auto target = Dyadic(w.size(), 1000 + 10 * t + m);
  std::vector<float> g(w.size());
  for (std::size_t i = 0; i < w.size(); ++i) g[i] = a[i] * (a[i] * w[i] - target[i]);
  return g;
}

// Two identities of methods.md 8, exact on dyadic numbers: H = 1 with SGD inside and outside is
// synchronous SGD on the mean gradient; one worker with outer SGD of rate 1 is its inner optimizer.
TEST(Sgd, OneInnerStepOfFourWorkersIsOneStepOnTheMeanGradient) {
  constexpr std::size_t kCount = 500;
  const auto mean = [](const std::vector<std::vector<float>>& parts) {
    std::vector<double> sum(kCount);
    for (const auto& part : parts) {
      AddScaled(std::span<double>(sum), part, 1.0F / static_cast<float>(parts.size()));
    }
    std::vector<float> out(kCount);
    Round(sum, out);
    return out;
  };
  std::vector<float> swarm = Dyadic(kCount, 1), together = swarm, no_momentum(kCount);
  for (std::uint64_t t = 0; t < 2; ++t) {
    std::vector<std::vector<float>> deltas, gradients;
    for (std::uint64_t m = 0; m < 4; ++m) {
      gradients.push_back(ToyGradient(together, m, t));
      std::vector<float> local = swarm;
      SgdStep(local, ToyGradient(swarm, m, t), {}, {}, 0.25F, 1.0F);
      std::vector<float> delta(kCount);
      Subtract(swarm, local, delta);
      deltas.push_back(delta);
    }
    OuterStep(swarm, no_momentum, mean(deltas), {OuterKind::kSgd, 1.0F, 0.0F}, swarm, no_momentum);
    SgdStep(together, mean(gradients), {}, {}, 0.25F, 1.0F);
    ASSERT_EQ(swarm, together) << "step " << t;
  }
}

TEST(Sgd, OneWorkerWithOuterRateOneIsTheInnerOptimizer) {
  constexpr std::size_t kCount = 500;
  std::vector<float> swarm = Dyadic(kCount, 1), alone = swarm, no_momentum(kCount);
  std::vector<float> b_swarm(kCount), b_alone(kCount);
  const SgdConfig config{0.5F, true, 0.0F};
  for (std::uint64_t round = 0; round < 2; ++round) {
    std::vector<float> local = swarm;
    SgdStep(local, ToyGradient(local, 0, round), b_swarm, config, 0.25F, 1.0F);
    std::vector<float> delta(kCount);
    Subtract(swarm, local, delta);
    OuterStep(swarm, no_momentum, delta, {OuterKind::kSgd, 1.0F, 0.0F}, swarm, no_momentum);
    SgdStep(alone, ToyGradient(alone, 0, round), b_alone, config, 0.25F, 1.0F);
    ASSERT_EQ(swarm, alone) << "round " << round;
    ASSERT_EQ(b_swarm, b_alone) << "round " << round;
  }
}

/// X from w' = w - rate X, with w = 0.
std::vector<float> MuonDirection(const std::vector<float>& g, MatrixSize size) {
  std::vector<float> w(g.size()), b(g.size()), scratch(MuonScratch(size));
  MuonConfig config;
  config.momentum = 0;
  config.weight_decay = 0;
  MuonStep(w, g, b, size, config, 1.0F, 1.0F, scratch);
  const float scale =
      std::sqrt(std::max(1.0F, static_cast<float>(size.rows) / static_cast<float>(size.columns)));
  for (float& x : w) x /= -scale;
  return w;
}

TEST(Muon, DirectionIsNearlyOrthogonalWhicheverWayTheMatrixLies) {
  for (const MatrixSize size : {MatrixSize{8, 30}, {30, 8}, {20, 20}}) {
    const auto x = MuonDirection(Normal(size.rows * size.columns, 3), size);
    const std::size_t small = std::min(size.rows, size.columns);
    MatrixView view = RowMajor(x, size.rows, size.columns);
    if (size.rows > size.columns) view = view.Transposed();
    std::vector<float> gram(small * small);
    Matmul(view, view.Transposed(), gram);
    // Five iterations bring singular values of a random matrix to between .6 and 1.3.
    double trace = 0;
    for (std::size_t i = 0; i < small; ++i) trace += double{gram[i * small + i]};
    EXPECT_NEAR(trace / static_cast<double>(small), 0.85, 0.35) << size.rows;
    for (std::size_t i = 0; i < small; ++i) {
      for (std::size_t j = 0; j < i; ++j)
        EXPECT_LT(std::fabs(gram[i * small + j]), 0.5) << size.rows;
    }
  }
}

TEST(Muon, DirectionDoesNotDependOnTheGradientsSize) {
  const MatrixSize size{6, 11};
  const auto g = Normal(66, 4);
  std::vector<float> large(g);
  for (float& x : large) x *= 1024.0F;
  const auto a = MuonDirection(g, size), b = MuonDirection(large, size);
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-5);
  const auto none = MuonDirection(std::vector<float>(66), size);
  EXPECT_EQ(std::ranges::count(none, 0.0F), 66);
}

TEST(StepRule, SgdAfterTheReduceIsTheStepOfAWorker) {
  for (const float momentum : {0.0F, 0.9F}) {
    InnerConfig config;
    config.kind = InnerKind::kSgd;
    config.momentum = momentum;
    config.clip_norm = 0;
    const auto rule = MakeOptimizerRule({config, {ScheduleKind::kConstant, 0.25F}});
    const TileGrid grid = TileGrid::Make({{"m", {20, 32}}}).value();
    const InnerPlan plan = PlanInner(grid, config);
    std::vector<float> inner = Normal(grid.flat_size(), 1), state(plan.state_size());
    std::vector<float> agreed = inner, slot(state.size());
    for (std::uint64_t step = 1; step <= 3; ++step) {
      const auto g = Normal(grid.flat_size(), 10 + step);
      InnerStep(plan, config, inner, g, state, {}, 0.25F, step, 1.0F);
      std::vector<std::span<float>> planes{agreed};
      if (rule->num_slots() > 0) planes.emplace_back(slot);
      rule->Step(planes, g, rule->Scalars({step, 0}, 0), true);
    }
    EXPECT_EQ(agreed, inner) << momentum;
    EXPECT_EQ(slot, state) << momentum;
  }
}

TEST(InnerPlan, MuonLeavesVectorsEmbeddingAndHeadToAdamW) {
  const auto kinds = [](bool tied) {
    std::vector<TensorShape> tensors = {{"model.embed_tokens.weight", {20, 8}},
                                        {"model.layers.0.self_attn.q_proj.weight", {8, 8}},
                                        {"model.layers.0.self_attn.q_proj.bias", {8}},
                                        {"model.layers.0.mlp.down_proj.weight", {8, 24}},
                                        {"model.norm.weight", {8}}};
    if (!tied) tensors.push_back({"lm_head.weight", {20, 8}});
    InnerConfig config;
    config.kind = InnerKind::kMuon;
    config.momentum = 0.95F;
    std::string out;
    for (const InnerPart& part : PlanInner(TileGrid::Make(tensors).value(), config).parts) {
      out += std::string(InnerKindName(part.kind)) + (part.decay ? "+ " : " ");
    }
    return out;
  };
  EXPECT_EQ(kinds(true), "adamw+ muon+ adamw muon+ adamw ");
  EXPECT_EQ(kinds(false), "adamw+ muon+ adamw muon+ adamw adamw+ ");
}

TEST(InnerPlan, StateIsNoLargerThanTheOptimizerNeeds) {
  const TileGrid grid =
      TileGrid::Make({{"embed_tokens.weight", {5, 5}}, {"m", {7, 9}}, {"v", {3}}}).value();
  InnerConfig config;
  EXPECT_EQ(PlanInner(grid, config).state_size(), 2 * grid.flat_size());
  config.kind = InnerKind::kSgd;
  EXPECT_EQ(PlanInner(grid, config).state_size(), 0u);
  config.momentum = 0.9F;
  EXPECT_EQ(PlanInner(grid, config).state_size(), grid.flat_size());
  config.kind = InnerKind::kMuon;
  const InnerPlan plan = PlanInner(grid, config);
  EXPECT_EQ(plan.first_size, grid.flat_size());
  EXPECT_EQ(plan.second_size, 32u + 16u) << "of the embedding and the vector";
  EXPECT_EQ(plan.scratch, 2u * 63 + 2 * 49);
}

TEST(InnerConfig, CombinationsWithoutSenseAreNamed) {
  InnerConfig config;
  EXPECT_TRUE(Validate(config).ok());
  config.momentum = 0.5F;
  EXPECT_NE(Validate(config).error().message.find("optim.momentum = 0.5"), std::string::npos);
  config.kind = InnerKind::kSgd;
  EXPECT_TRUE(Validate(config).ok());
  config.momentum = 0;
  config.nesterov = true;
  EXPECT_NE(Validate(config).error().message.find("optim.nesterov = true"), std::string::npos);
  config.nesterov = false;
  config.iterations = 0;
  EXPECT_EQ(Validate(config).error().message, "optim.newton_schulz is 0, allowed are 1 to 20");
  config.iterations = 5;
  config.momentum = std::nanf("");
  EXPECT_NE(Validate(config).error().message.find("optim.momentum is nan"), std::string::npos);
}

}  // namespace
}  // namespace loom::agreed
