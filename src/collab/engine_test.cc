// The numbers of a round by hand: published outer-step fixtures, and the identity with plain
// training.
#include "collab/engine.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace loom::collab {
namespace {

/// One parameter or more with a constant gradient, plain SGD: θ falls by lr · gradient each step.
class ConstantGradient final : public Worker {
 public:
  ConstantGradient(float lr, float gradient) : lr_(lr), gradient_(gradient) {}
  Result<WorkDone> Work(const WorkOrder& order, std::span<const float> start,
                        std::span<float> theta, const std::atomic<bool>&) override {
    std::copy(start.begin(), start.end(), theta.begin());
    WorkDone done;
    for (const Range& r : order.ranges) done.samples += r.size();
    done.steps = static_cast<std::uint32_t>(done.samples / order.batch);
    for (std::uint32_t k = 0; k < done.steps; ++k) {
      for (float& x : theta) x -= lr_ * gradient_;
    }
    done.tokens = done.samples;
    return done;
  }
  void Reset() override {}
  Bytes SaveState() const override { return {}; }
  Status RestoreState(ByteView) override { return {}; }

 private:
  float lr_, gradient_;
};

/// θ pulled towards a point, so that the gradient depends on where it is. SGD with momentum.
class Pull final : public Worker {
 public:
  Result<WorkDone> Work(const WorkOrder& order, std::span<const float> start,
                        std::span<float> theta, const std::atomic<bool>&) override {
    std::copy(start.begin(), start.end(), theta.begin());
    if (v_.empty()) v_.assign(theta.size(), 0.0F);
    WorkDone done;
    for (const Range& r : order.ranges) done.samples += r.size();
    Steps(theta, static_cast<std::uint32_t>(done.samples / order.batch));
    done.tokens = done.samples;
    return done;
  }
  void Steps(std::span<float> theta, std::uint32_t steps) {
    if (v_.empty()) v_.assign(theta.size(), 0.0F);
    for (std::uint32_t k = 0; k < steps; ++k) {
      for (std::size_t i = 0; i < theta.size(); ++i) {
        v_[i] = 0.9F * v_[i] + (theta[i] - 0.001F * static_cast<float>(i));
        theta[i] -= 0.05F * v_[i];
      }
    }
  }
  void Reset() override { std::fill(v_.begin(), v_.end(), 0.0F); }
  Bytes SaveState() const override { return ToBytes(std::as_bytes(std::span(v_))); }
  Status RestoreState(ByteView) override { return {}; }

 private:
  std::vector<float> v_;
};

Engine MakeEngine(const SyncConfig& config, std::uint64_t elements, codec::CodecKind codec,
                  Engine::WorkerFactory factory) {
  return {agreed::TileGrid::Make({{"theta", {elements}}}, 256).value(), config, codec,
          agreed::BestIsa(), std::move(factory)};
}

void OneRound(Engine& engine, Round round, std::uint32_t steps, std::size_t workers) {
  std::vector<Blob> encoded;
  for (WorkerIndex w = 0; w < workers; ++w) {
    WorkOrder order;
    order.round = round;
    order.worker = w;
    order.ranges = {{0, steps - 1}};
    order.batch = 1;
    auto work = engine.Work(order, std::atomic<bool>(false));
    ASSERT_TRUE(work.ok());
    encoded.push_back(work->encoded);
  }
  std::vector<ReduceInput> inputs;
  const TileLayout& layout = engine.layout();
  for (const Blob& blob : encoded) {
    ReduceInput input{1.0F / static_cast<float>(workers), {}};
    for (std::size_t i = 0; i < layout.num_tiles(); ++i)
      input.tiles.push_back({blob, layout.Offset(i), layout.Size(i)});
    inputs.push_back(std::move(input));
  }
  auto reduced = engine.Reduce(0, layout.num_tiles(), inputs);
  ASSERT_TRUE(reduced.ok());
  const auto next = engine.Next(*reduced);
  ASSERT_TRUE(next.ok());
  ASSERT_TRUE(engine.Apply(*reduced).ok());
  EXPECT_EQ(engine.Root(), next->root) << "the root voted for is the root reached";
  for (WorkerIndex w = 0; w < workers; ++w) engine.Settle(w, true);
}

TEST(EngineTest, PublishedRowsComeOutExactly) {
  struct Row {
    OuterKind outer;
    float lr, momentum;
    std::array<float, 3> theta;
  };
  const Row rows[] = {{OuterKind::kSgd, 2.0F, 0.0F, {-23, -47, -71}},
                      {OuterKind::kNesterov, 0.5F, 0.5F, {-8, -18.5, -29.75}},
                      {OuterKind::kHeavyBall, 0.5F, 0.5F, {-5, -14, -24.5}}};
  for (const Row& row : rows) {
    for (const std::size_t workers : {1U, 2U, 4U}) {
      SyncConfig config;
      config.outer = row.outer;
      config.outer_lr = row.lr;
      config.outer_momentum = row.momentum;
      Engine engine = MakeEngine(config, 1, codec::CodecKind::kFp32, [](WorkerIndex) {
        return Result<std::unique_ptr<Worker>>(std::make_unique<ConstantGradient>(1.0F, 2.0F));
      });
      engine.weights()[0] = 1.0F;
      for (std::size_t r = 0; r < 3; ++r) {
        OneRound(engine, r + 1, 6, workers);
        EXPECT_EQ(engine.weights()[0], row.theta[r])
            << "round " << r + 1 << ", " << workers << " workers";
      }
    }
  }
}

TEST(EngineTest, OneWorkerWithoutOuterMomentumIsPlainTraining) {
  SyncConfig config;
  config.outer = OuterKind::kNesterov;
  config.outer_lr = 1.0F;
  config.outer_momentum = 0.0F;
  constexpr std::uint64_t kElements = 900;
  Engine engine = MakeEngine(config, kElements, codec::CodecKind::kFp32, [](WorkerIndex) {
    return Result<std::unique_ptr<Worker>>(std::make_unique<Pull>());
  });
  std::vector<float> plain(engine.grid().flat_size(), 0.0F);
  for (std::size_t i = 0; i < kElements; ++i) {
    plain[i] = engine.weights()[i] = 1.0F - 0.002F * static_cast<float>(i);
  }
  Pull trainer;
  for (Round r = 1; r <= 20; ++r) {
    OneRound(engine, r, 7, 1);
    trainer.Steps(plain, 7);
    for (std::size_t i = 0; i < kElements; ++i) {
      // θ + (W - θ) - W: two roundings a round, of values near one.
      ASSERT_NEAR(engine.weights()[i], plain[i], 4e-7F * static_cast<float>(r))
          << i << " in round " << r;
    }
  }
}

TEST(EngineTest, R21TheResidualOfWorkThatWasLeftOutIsThatOfBefore) {
  SyncConfig config;
  const auto factory = [](WorkerIndex) {
    return Result<std::unique_ptr<Worker>>(std::make_unique<Pull>());
  };
  Engine kept = MakeEngine(config, 500, codec::CodecKind::kInt8, factory);
  std::fill(kept.weights().begin(), kept.weights().end(), 0.3F);
  WorkOrder order;
  order.ranges = {{0, 4}};
  order.batch = 1;
  const auto first = kept.Work(order, std::atomic<bool>(false));
  ASSERT_TRUE(first.ok());
  kept.Settle(0, true);
  const Bytes before = kept.SaveInner().at(0);
  ASSERT_TRUE(kept.Work(order, std::atomic<bool>(false)).ok());
  kept.Settle(0, false);
  const Bytes after = kept.SaveInner().at(0);
  // The inner state moved on, the residual (the second half) did not.
  ASSERT_EQ(before.size(), after.size());
  const std::size_t half = before.size() - kept.grid().flat_size() * sizeof(float);
  EXPECT_TRUE(std::equal(before.begin() + static_cast<std::ptrdiff_t>(half), before.end(),
                         after.begin() + static_cast<std::ptrdiff_t>(half)));
}

TEST(EngineTest, R19PartsThatAreNotWhatWasCommittedToAreRefused) {
  SyncConfig config;
  Engine engine = MakeEngine(config, 600, codec::CodecKind::kFp32, [](WorkerIndex) {
    return Result<std::unique_ptr<Worker>>(std::make_unique<ConstantGradient>(1.0F, 2.0F));
  });
  WorkOrder order;
  order.ranges = {{0, 0}};
  order.batch = 1;
  auto work = engine.Work(order, std::atomic<bool>(false));
  ASSERT_TRUE(work.ok());
  EXPECT_TRUE(engine.CheckPart(0, *work->encoded, work->hashes).ok());
  Bytes flipped = *work->encoded;
  flipped[9] ^= std::byte{1};
  const Status bad = engine.CheckPart(0, flipped, work->hashes);
  ASSERT_FALSE(bad.ok());
  EXPECT_NE(bad.error().message.find("tile 0"), std::string::npos);
  config.max_norm = 1.0F;
  Engine strict = MakeEngine(config, 600, codec::CodecKind::kFp32, nullptr);
  EXPECT_EQ(strict.CheckPart(0, *work->encoded, work->hashes).error().code, Code::kLimit);
}

}  // namespace
}  // namespace loom::collab
