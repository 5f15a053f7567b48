// The numbers of a round by hand: published outer-step fixtures, and the identity with plain
// training.
#include "collab/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "agreed/combine.h"
#include "collab/ledger.h"
#include "crypto/hash.h"

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
  Result<WorkDone> Gradient(const WorkOrder& order, std::span<float>, std::span<float> gradient,
                            float loss_scale) override {
    std::fill(gradient.begin(), gradient.end(), loss_scale * gradient_);
    WorkDone done;
    done.samples = done.tokens = CountSamples(order.ranges);
    done.steps = 1;
    return done;
  }
  void Reset() override {}
  Status SaveState(ByteSink&) const override { return {}; }
  Status RestoreState(ByteSource&) override { return {}; }

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
  /// Of sample s at element i: s + 1 times as steep as the pull, noisy in the last bits.
  Result<WorkDone> Gradient(const WorkOrder& order, std::span<float> weights,
                            std::span<float> gradient, float loss_scale) override {
    std::fill(gradient.begin(), gradient.end(), 0.0F);
    WorkDone done;
    for (const Range& r : order.ranges) {
      for (std::uint64_t s = r.first; s <= r.last; ++s) {
        for (std::size_t i = 0; i < gradient.size(); ++i) {
          gradient[i] += loss_scale * static_cast<float>(s + 1) *
                         (weights[i] - 0.001F * static_cast<float>(i % 97));
        }
      }
      done.samples += r.size();
    }
    done.tokens = done.samples;
    done.steps = 1;
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
  Status SaveState(ByteSink& out) const override { return out.Write(std::as_bytes(std::span(v_))); }
  Status RestoreState(ByteSource& in) override {
    v_.resize(in.left() / sizeof(float));
    return in.Read(std::as_writable_bytes(std::span(v_)));
  }

 private:
  std::vector<float> v_;
};

Engine MakeEngine(const SyncConfig& config, std::uint64_t elements, codec::CodecKind codec,
                  Engine::WorkerFactory factory) {
  return Engine::Make(agreed::TileGrid::Make({{"theta", {elements}}}, 256).value(), config, codec,
                      agreed::BestIsa(), std::move(factory))
      .value();
}

Bytes InnerOf(const Engine& engine) {
  BytesSink sink;
  EXPECT_TRUE(engine.SaveInner(0, sink).ok());
  return sink.bytes();
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
    ReduceInput input{1.0F / static_cast<float>(workers), 1, {}};
    for (std::size_t i = 0; i < layout.num_tiles(); ++i)
      input.tiles.push_back({blob, layout.Offset(i), layout.Size(i)});
    inputs.push_back(std::move(input));
  }
  auto reduced = engine.Reduce(0, layout.num_tiles(), inputs);
  ASSERT_TRUE(reduced.ok());
  const auto next = engine.Next(*reduced, {round, 0});
  ASSERT_TRUE(next.ok());
  ASSERT_TRUE(engine.Apply(*reduced, {round, 0}).ok());
  EXPECT_EQ(engine.Root(), next->root) << "the root voted for is the root reached";
  for (WorkerIndex w = 0; w < workers; ++w) engine.Settle(w, true);
}

TEST(EngineTest, TheCutIntoRangesChangesNoBit) {
  const auto backwards = [](std::size_t range) {
    return [range](std::size_t n, const agreed::RangeBody& body) {
      for (std::size_t end = n; end > 0; end -= std::min(range, end))
        body(end - std::min(range, end), end);
    };
  };
  std::vector<Hash> roots;
  for (const std::size_t range : {0U, 1U, 3U, 8U, 1000U}) {
    Engine engine = MakeEngine({}, 5000, codec::CodecKind::kInt8, [](WorkerIndex) {
      return Result<std::unique_ptr<Worker>>(std::make_unique<Pull>());
    });
    if (range > 0) engine.LendCores(backwards(range));
    for (std::size_t i = 0; i < 5000; ++i)
      engine.weights()[i] = std::sin(static_cast<float>(i));  // the same in each engine
    for (Round round = 1; round <= 2; ++round) OneRound(engine, round, 5, 2);
    roots.push_back(engine.Root());
  }
  EXPECT_EQ(roots, std::vector<Hash>(roots.size(), roots.front()));
}

TEST(EngineTest, OfSeveralErrorsTheFirstTilesIsTold) {
  Engine engine = MakeEngine({}, 5000, codec::CodecKind::kFp32, nullptr);
  Bytes reduced(engine.layout().total());
  for (const std::size_t element : {4000U, 700U, 2000U}) {
    const float bad = std::numeric_limits<float>::infinity();
    std::memcpy(reduced.data() + element * sizeof bad, &bad, sizeof bad);
  }
  const std::string alone = engine.Next(reduced, {1, 0}).error().message;
  engine.LendCores([](std::size_t n, const agreed::RangeBody& body) {
    for (std::size_t i = n; i-- > 0;) body(i, i + 1);
  });
  EXPECT_EQ(engine.Next(reduced, {1, 0}).error().message, alone);
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
  const Bytes before = InnerOf(kept);
  ASSERT_TRUE(kept.Work(order, std::atomic<bool>(false)).ok());
  kept.Settle(0, false);
  const Bytes after = InnerOf(kept);
  // The residual, which stands first, did not change; the inner state behind it moved on.
  ASSERT_EQ(before.size(), after.size());
  const std::size_t end = 20 + kept.grid().flat_size() * sizeof(float);
  EXPECT_TRUE(std::ranges::equal(ByteView(before).first(end), ByteView(after).first(end)));
  EXPECT_NE(before, after);
}

TEST(EngineTest, InnerStateComesBackAndWhatIsNotThatOfTheModelIsRefused) {
  SyncConfig config;
  const auto factory = [](WorkerIndex) {
    return Result<std::unique_ptr<Worker>>(std::make_unique<Pull>());
  };
  Engine engine = MakeEngine(config, 500, codec::CodecKind::kInt8, factory);
  OneRound(engine, 1, 3, 1);
  const Bytes saved = InnerOf(engine);
  Engine again = MakeEngine(config, 500, codec::CodecKind::kInt8, factory);
  std::ranges::copy(engine.weights(), again.weights().begin());
  ViewSource source(saved);
  ASSERT_TRUE(again.RestoreInner(0, source).ok());
  EXPECT_EQ(InnerOf(again), saved);
  WorkOrder order;
  order.ranges = {{3, 7}};
  order.batch = 1;
  const auto one = engine.Work(order, std::atomic<bool>(false));
  const auto other = again.Work(order, std::atomic<bool>(false));
  ASSERT_TRUE(one.ok() && other.ok());
  EXPECT_EQ(one->hashes, other->hashes);

  const auto refused = [&](Bytes bytes) {
    Engine fresh = MakeEngine(config, 500, codec::CodecKind::kInt8, factory);
    ViewSource in(bytes);
    const Status status = fresh.RestoreInner(0, in);
    return status.ok() ? std::string() : status.error().message;
  };
  EXPECT_NE(refused(Bytes(saved.begin(), saved.begin() + 12)), "");
  Bytes bad = saved;
  bad[8] = std::byte{1};
  EXPECT_NE(refused(bad).find("version 1, expected"), std::string::npos) << refused(bad);
  bad = saved;
  bad[12] ^= std::byte{4};
  EXPECT_EQ(refused(bad), "the error feedback is of another model");
  bad = saved;
  std::fill_n(bad.begin() + 20, 4, std::byte{0xff});
  EXPECT_EQ(refused(bad), "the error feedback holds a value that is not finite");
  EXPECT_NE(refused(Bytes(saved.begin(), saved.begin() + 100)), "");
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
  TileClaim claim;
  claim.hashes = work->hashes;
  EXPECT_TRUE(engine.CheckPart(claim, *work->encoded).ok());
  Bytes flipped = *work->encoded;
  flipped[9] ^= std::byte{1};
  const Status bad = engine.CheckPart(claim, flipped);
  ASSERT_FALSE(bad.ok());
  EXPECT_NE(bad.error().message.find("tile 0"), std::string::npos);
  EXPECT_FALSE(engine.CheckPart(claim, ByteView(*work->encoded).first(100)).ok());
  for (const float value : {0x1p60F, -0x1p127F}) {  // finite, and the step might not be
    Bytes huge = *work->encoded;
    std::memcpy(huge.data() + 8, &value, sizeof value);
    TileClaim honest = claim;
    honest.hashes[0] = crypto::Sha256(engine.layout().View(huge, 0));
    const Status refused = engine.CheckPart(honest, huge);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("2^60"), std::string::npos);
  }
  config.max_norm = 1.0F;
  Engine strict = MakeEngine(config, 600, codec::CodecKind::kFp32, nullptr);
  EXPECT_EQ(strict.CheckPart(claim, *work->encoded).error().code, Code::kLimit);
}

SyncConfig ExactConfig() {
  SyncConfig config;
  config.method = Method::kAllReduce;
  config.exact = true;
  config.codec = "fp32";
  config.workers = 6;
  config.batch = 4;
  config.accumulation = 2;
  config.context = 1;
  config.optimizer.schedule.kind = agreed::ScheduleKind::kConstant;
  config.optimizer.inner.clip_norm = 1.0F;
  return config;
}

/// One step in which hosts sum the workers of each group, in the order given.
Bytes ExactStep(Engine& engine, const SyncConfig& config, Round round, const Bounds& bounds,
                const std::vector<std::vector<WorkerIndex>>& groups) {
  std::vector<ReduceInput> inputs;
  const TileLayout& layout = engine.layout();
  for (const auto& group : groups) {
    std::vector<WorkOrder> orders;
    for (const WorkerIndex w : group) {
      WorkOrder order;
      order.worker = w;
      const std::uint64_t first = ((round - 1) * config.workers + w) * config.batch;
      order.ranges = {{first, first + 1}, {first + 2, first + 3}};
      orders.push_back(order);
    }
    const auto work = engine.SumUnits(orders, bounds, std::atomic<bool>(false));
    EXPECT_TRUE(work.ok() && work->encoded != nullptr);
    const std::uint64_t units = group.size() * config.accumulation;
    ReduceInput input{0, units, {}};
    for (std::size_t i = 0; i < layout.num_tiles(); ++i)
      input.tiles.push_back({work->encoded, kWide * layout.Offset(i), kWide * layout.Size(i)});
    TileClaim claim{0, work->hashes, units, work->exponents, bounds};
    EXPECT_TRUE(engine.CheckPart(claim, *work->encoded).ok());
    inputs.push_back(std::move(input));
  }
  return engine.Reduce(0, layout.num_tiles(), inputs, bounds).value();
}

TEST(EngineTest, R25BoundsAreOfEveryTensorWhateverARecordCounts) {
  const std::vector<Exponent> last = {3, agreed::kMaxExponent};
  EXPECT_EQ(BoundsAfter(last, 2), (Bounds{3 + kRoom, agreed::kMaxExponent}));
  EXPECT_EQ(BoundsAfter(last, 3), Bounds(3, kFirstBound));
  EXPECT_EQ(BoundsAfter({}, 1), Bounds(1, kFirstBound));
}

TEST(EngineTest, R25TheSumOfAStepDoesNotDependOnWhoSummedWhat) {
  const SyncConfig config = ExactConfig();
  const auto factory = [](WorkerIndex) {
    return Result<std::unique_ptr<Worker>>(std::make_unique<Pull>());
  };
  const std::vector<std::vector<std::vector<WorkerIndex>>> groupings = {
      {{0, 1, 2, 3, 4, 5}},
      {{3, 4, 5}, {0, 1, 2}},
      {{5}, {4}, {3}, {2}, {1}, {0}},
      {{1, 4}, {0, 2, 3, 5}}};
  std::vector<Hash> roots;
  for (const auto& groups : groupings) {
    Engine engine = MakeEngine(config, 700, codec::CodecKind::kFp32, factory);
    Bounds bounds = BoundsAfter({}, 1);
    for (Round round = 1; round <= 5; ++round) {
      const Bytes reduced = ExactStep(engine, config, round, bounds, groups);
      const agreed::StepClock clock{round, round * 24};
      const auto next = engine.Next(reduced, clock);
      ASSERT_TRUE(next.ok());
      ASSERT_TRUE(engine.Apply(reduced, clock).ok());
      ASSERT_EQ(engine.Root(), next->root);
    }
    roots.push_back(engine.Root());
  }
  for (const Hash& root : roots) EXPECT_EQ(root, roots[0]);
}

TEST(EngineTest, R25AUnitThatBreaksItsBoundLeavesNothingToSend) {
  const SyncConfig config = ExactConfig();
  Engine engine = MakeEngine(config, 300, codec::CodecKind::kFp32, [](WorkerIndex) {
    return Result<std::unique_ptr<Worker>>(std::make_unique<ConstantGradient>(1.0F, 3e6F));
  });
  WorkOrder order;
  order.ranges = {{0, 3}};
  const std::atomic<bool> cut{false};
  const auto broken = engine.SumUnits(std::span(&order, 1), BoundsAfter({}, 1), cut);
  ASSERT_TRUE(broken.ok());
  EXPECT_EQ(broken->encoded, nullptr);
  EXPECT_TRUE(broken->hashes.empty());
  ASSERT_EQ(broken->exponents.size(), 1U);
  EXPECT_EQ(broken->exponents[0], 17);  // 3e6 / 24 < 2^17
  const auto again = engine.SumUnits(std::span(&order, 1), broken->exponents, cut);
  ASSERT_TRUE(again.ok());
  EXPECT_NE(again->encoded, nullptr);
  EXPECT_EQ(BoundsOfStep({}, broken->exponents), broken->exponents);
  const Bounds calm{-3};
  EXPECT_EQ(BoundsOfStep({}, calm), Bounds{kFirstBound});
  EXPECT_EQ(BoundsOfStep(calm, Bounds{5}), Bounds{-3 + kRoom});
  EXPECT_EQ(BoundsOfStep(calm, Bounds{6}), Bounds{6});
}

TEST(EngineTest, R26AWorkerWithAUnitThatIsNotFiniteIsNamed) {
  const SyncConfig config = ExactConfig();
  Engine engine = MakeEngine(config, 300, codec::CodecKind::kFp32, [](WorkerIndex w) {
    return Result<std::unique_ptr<Worker>>(
        std::make_unique<ConstantGradient>(1.0F, w == 4 ? INFINITY : 1.0F));
  });
  std::vector<WorkOrder> orders(3);
  for (std::size_t k = 0; k < 3; ++k) {
    orders[k].worker = static_cast<WorkerIndex>(3 + k);
    orders[k].ranges = {{4 * k, 4 * k + 3}};
  }
  const auto work = engine.SumUnits(orders, BoundsAfter({}, 1), std::atomic<bool>(false));
  ASSERT_TRUE(work.ok());
  EXPECT_EQ(work->not_finite, std::vector<WorkerIndex>{4});
  EXPECT_EQ(work->encoded, nullptr);
}

TEST(EngineTest, R19SumsBeyondWhatTheirUnitsCanBeAreRefused) {
  const SyncConfig config = ExactConfig();
  Engine engine = MakeEngine(config, 256, codec::CodecKind::kFp32, nullptr);
  std::vector<std::int64_t> values(256, 1);
  const std::uint64_t each = (std::uint64_t{1} << 62) >> 4;  // twelve units count as sixteen
  values[7] = -static_cast<std::int64_t>(2 * each);
  const auto check = [&](std::uint64_t units) {
    const ByteView bytes = std::as_bytes(std::span(values));
    return engine.CheckPart({0, {crypto::Sha256(bytes)}, units, {0}, {0}}, bytes);
  };
  EXPECT_TRUE(check(2).ok());
  --values[7];
  EXPECT_FALSE(check(2).ok());
  EXPECT_TRUE(check(4).ok());
}

TEST(EngineTest, AnAllReduceStepIsAnOptimizerStepOnTheMeanGradient) {
  SyncConfig config = ExactConfig();
  config.exact = false;
  config.accumulation = 1;
  Engine engine = MakeEngine(config, 500, codec::CodecKind::kFp32, [](WorkerIndex) {
    return Result<std::unique_ptr<Worker>>(std::make_unique<Pull>());
  });
  std::vector<float> w(500), m(500), v(500), g(500);
  for (Round round = 1; round <= 3; ++round) {
    WorkOrder order;
    order.ranges = {{0, 3}};
    order.batch = 4;
    const auto work = engine.Work(order, std::atomic<bool>(false));
    ASSERT_TRUE(work.ok());
    ReduceInput input{1.0F, 1, {}};
    const TileLayout& layout = engine.layout();
    for (std::size_t i = 0; i < layout.num_tiles(); ++i)
      input.tiles.push_back({work->encoded, layout.Offset(i), layout.Size(i)});
    const Bytes reduced = engine.Reduce(0, layout.num_tiles(), std::span(&input, 1)).value();
    ASSERT_TRUE(engine.Apply(reduced, {round, 0}).ok());
    Pull pull;
    ASSERT_TRUE(pull.Gradient(order, w, g, 0.25F).ok());
    double squares = 0;  // tile by tile, as the engine adds them
    for (const std::size_t at : {0U, 256U})
      squares += agreed::SumSquares(std::span(g).subspan(at, std::min<std::size_t>(256, 500 - at)));
    agreed::AdamWStep(w, g, m, v, {}, config.optimizer.schedule.peak, round,
                      agreed::ClipScale(std::sqrt(squares), 1.0F), false);
    for (std::size_t i = 0; i < 500; ++i) ASSERT_EQ(engine.weights()[i], w[i]) << i;
  }
  EXPECT_TRUE(engine.InnerWorkers().empty());
}

}  // namespace
}  // namespace loom::collab
