// The inner trainer: same inputs same bits, a cut leaves a prefix, moments survive a restart, and
// one worker alone is plain training. The loss of a split and the plan's sizes stand here too.
#include "train/trainer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <thread>

#include "codec/codec.h"
#include "tensor/runtime.h"
#include "train/evaluate.h"
#include "train/multiple_choice.h"
#include "train/plan.h"
#include "train/reference.h"

namespace loom::train {
namespace {

RunSpec TinySpec() {
  RunFile run = DefaultRun();
  RunSpec spec = run.spec;
  spec.model.vocab = 17;
  spec.model.layers = 2;
  spec.model.width = 16;
  spec.model.heads = 2;
  spec.model.kv_heads = 1;
  spec.model.head_dim = 8;
  spec.model.ffn = 24;
  spec.model.context = 8;
  spec.sync.batch = 3;
  spec.sync.inner_steps = 5;
  spec.sync.rounds = 4;
  spec.optim.schedule.total_tokens = 0;
  spec.optim.schedule.warmup_tokens = 0;
  const Status resolved = ResolveSpec(spec);
  EXPECT_TRUE(resolved.ok()) << resolved.error().ToString();
  return spec;
}

/// A text with some order in it: x' = 3x + (a counter) mod 17.
data::TokenStream TinyText(std::size_t size) {
  std::vector<std::int32_t> tokens(size);
  for (std::size_t i = 1; i < size; ++i) {
    tokens[i] = (3 * tokens[i - 1] + static_cast<std::int32_t>(i % 5)) % 17;
  }
  return data::TokenStream::FromTokens(std::move(tokens));
}

template <class T>
T Must(Result<T> result) {
  EXPECT_TRUE(result.ok()) << result.error().ToString();
  return std::move(result).value();
}

Bytes StateOf(const TrainWorker& worker) {
  BytesSink sink;
  EXPECT_TRUE(worker.SaveState(sink).ok());
  return sink.bytes();
}

class Trainer : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(tensor::ConfigureRuntime({.threads = 1, .deterministic = true}).ok());
    engine_ = EngineOf(spec_);
    start_ = agreed::FlatBuffer(engine_->grid().flat_size());
    theta_ = agreed::FlatBuffer(engine_->grid().flat_size());
    model::InitWeights(spec_.model, engine_->grid(), 5, start_.span());
  }

  collab::WorkOrder Order(std::uint64_t first, std::uint64_t samples) const {
    collab::WorkOrder order;
    order.batch = spec_.sync.batch;
    order.ranges = {{first, first + samples - 1}};
    order.tokens_per_step = TokensPerStep(spec_);
    return order;
  }
  std::vector<float> Theta() const { return {theta_.span().begin(), theta_.span().end()}; }

  static std::shared_ptr<StepEngine> EngineOf(const RunSpec& spec) {
    LocalConfig local;
    local.device = "cpu";
    return Must(StepEngine::Make(spec, local, TinyText(2000)));
  }
  std::shared_ptr<StepEngine> EngineWith(agreed::InnerKind kind) const {
    RunSpec spec = spec_;
    SetOptimizer(kind, spec.optim.inner);
    return EngineOf(spec);
  }

  const std::atomic<bool> go_{false};
  RunSpec spec_ = TinySpec();
  std::shared_ptr<StepEngine> engine_;
  agreed::FlatBuffer start_, theta_;
};

TEST_F(Trainer, SameOrderSameBits) {
  std::vector<std::vector<float>> results;
  for (int i = 0; i < 2; ++i) {
    const auto worker = Must(TrainWorker::Make(engine_));
    const auto done = Must(worker->Work(Order(10, 15), start_.span(), theta_.span(), go_));
    EXPECT_EQ(done.steps, 5u);
    EXPECT_EQ(done.samples, 15u);
    EXPECT_EQ(done.tokens, 15u * spec_.model.context);
    EXPECT_GT(done.loss_sum, 0);
    EXPECT_GT(done.grad_norm, 0);
    results.push_back(Theta());
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_NE(results[0], std::vector<float>(start_.span().begin(), start_.span().end()));
}

TEST_F(Trainer, LossFalls) {
  const auto worker = Must(TrainWorker::Make(engine_));
  const auto first = Must(worker->Work(Order(0, 3), start_.span(), theta_.span(), go_));
  const std::vector<float> begin = Theta();
  const auto later = Must(worker->Work(Order(3, 600), begin, theta_.span(), go_));
  EXPECT_LT(later.loss_sum / static_cast<double>(later.tokens),
            first.loss_sum / static_cast<double>(first.tokens) - 0.1);
}

TEST_F(Trainer, RangesAreUsedInOrderAndShortLastBatchCounts) {
  const auto a = Must(TrainWorker::Make(engine_));
  collab::WorkOrder split = Order(4, 2);
  split.ranges = {{4, 5}, {6, 6}, {20, 24}};
  const auto done = Must(a->Work(split, start_.span(), theta_.span(), go_));
  EXPECT_EQ(done.samples, 8u);
  EXPECT_EQ(done.steps, 3u);
  const std::vector<float> whole = Theta();
  // The same samples, batch by batch, in three calls.
  const auto b = Must(TrainWorker::Make(engine_));
  collab::WorkOrder part = Order(4, 3);
  std::vector<float> begin(start_.span().begin(), start_.span().end());
  for (const collab::Range range : {collab::Range{4, 6}, {20, 22}, {23, 24}}) {
    part.ranges = {range};
    Must(b->Work(part, begin, theta_.span(), go_));
    part.tokens_before += part.tokens_per_step;
    begin = Theta();
  }
  EXPECT_EQ(Theta(), whole) << "moments persist from call to call";
}

TEST_F(Trainer, CutLeavesAPrefix) {
  std::atomic<bool> cut{false};
  const auto worker = Must(TrainWorker::Make(engine_));
  std::thread cutter([&] { cut.store(true); });
  const auto done = Must(worker->Work(Order(0, 3000), start_.span(), theta_.span(), cut));
  cutter.join();
  EXPECT_EQ(done.samples, done.steps * spec_.sync.batch);
  EXPECT_LT(done.samples, 3000u);
  const std::vector<float> cut_weights = Theta();
  if (done.samples > 0) {
    const auto again = Must(TrainWorker::Make(engine_));
    Must(again->Work(Order(0, done.samples), start_.span(), theta_.span(), go_));
    EXPECT_EQ(Theta(), cut_weights);
  } else {
    EXPECT_EQ(cut_weights, std::vector<float>(start_.span().begin(), start_.span().end()));
  }
}

TEST_F(Trainer, SavedStateOfEveryOptimizerContinuesWithTheSameBits) {
  for (const auto kind :
       {agreed::InnerKind::kAdamW, agreed::InnerKind::kSgd, agreed::InnerKind::kMuon}) {
    SCOPED_TRACE(agreed::InnerKindName(kind));
    const auto engine = EngineWith(kind);
    const auto a = Must(TrainWorker::Make(engine));
    Must(a->Work(Order(0, 9), start_.span(), theta_.span(), go_));
    const std::vector<float> middle = Theta();
    const Bytes state = StateOf(*a);
    Must(a->Work(Order(9, 9), middle, theta_.span(), go_));
    const std::vector<float> expected = Theta();

    const auto b = Must(TrainWorker::Make(engine));
    ViewSource source(state);
    ASSERT_TRUE(b->RestoreState(source).ok());
    Must(b->Work(Order(9, 9), middle, theta_.span(), go_));
    EXPECT_EQ(Theta(), expected);
    EXPECT_EQ(StateOf(*a), StateOf(*b));

    b->Reset();
    Must(b->Work(Order(9, 9), middle, theta_.span(), go_));
    if (kind == agreed::InnerKind::kSgd) {
      EXPECT_EQ(Theta(), expected) << "plain SGD has no state";
    } else {
      EXPECT_NE(Theta(), expected) << "rule R22: zero moments after a reset";
    }
  }
}

TEST_F(Trainer, StateOfAnotherOptimizerIsRefusedByName) {
  const Bytes state = StateOf(*Must(TrainWorker::Make(EngineWith(agreed::InnerKind::kMuon))));
  ViewSource source(state);
  const Status restored = Must(TrainWorker::Make(engine_))->RestoreState(source);
  ASSERT_FALSE(restored.ok());
  EXPECT_EQ(restored.error().message, "inner state: of muon, the run has adamw");
}

TEST_F(Trainer, BadStateIsRefusedAndLeavesTheWorkerAsItWasOrReset) {
  const auto worker = Must(TrainWorker::Make(engine_));
  Must(worker->Work(Order(0, 9), start_.span(), theta_.span(), go_));
  const Bytes good = StateOf(*worker);
  const Bytes zero = StateOf(*Must(TrainWorker::Make(engine_)));
  std::vector<Bytes> bad = {
      {}, Bytes(good.begin(), good.begin() + 20), Bytes(good.begin(), good.end() - 1), good};
  bad.back().push_back(std::byte{0});
  // magic, version, kind of optimizer, number of values
  for (const std::size_t at : {std::size_t{0}, std::size_t{4}, std::size_t{6}, std::size_t{15}}) {
    bad.push_back(good);
    bad.back()[at] ^= std::byte{0xff};
  }
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float negative = -1;
  bad.push_back(good);
  std::memcpy(bad.back().data() + 23, &nan, sizeof nan);
  bad.push_back(good);
  std::memcpy(bad.back().data() + bad.back().size() - 4, &negative, sizeof negative);
  for (std::size_t i = 0; i < bad.size(); ++i) {
    ViewSource again(good);
    ASSERT_TRUE(worker->RestoreState(again).ok());
    ViewSource source(bad[i]);
    EXPECT_FALSE(worker->RestoreState(source).ok()) << i;
    const bool values = i + 2 >= bad.size();
    EXPECT_EQ(StateOf(*worker), values ? zero : good) << i;
  }
}

TEST_F(Trainer, AbsurdRangesAreRefused) {
  const auto worker = Must(TrainWorker::Make(engine_));
  collab::WorkOrder order = Order(0, 3);
  order.ranges = {{0, std::numeric_limits<std::uint64_t>::max()}};
  EXPECT_FALSE(worker->Work(order, start_.span(), theta_.span(), go_).ok());
  order.ranges = {{5, 4}};
  EXPECT_FALSE(worker->Work(order, start_.span(), theta_.span(), go_).ok());
}

// Identity of methods.md 8: one worker whose weights are taken over as they are is plain training.
TEST_F(Trainer, OneWorkerIsTheSynchronousReference) {
  std::vector<float> weights(start_.span().begin(), start_.span().end());
  const auto reference = Must(ReferenceTrainer::Make(engine_, weights));
  const auto worker = Must(TrainWorker::Make(engine_));
  std::vector<float> begin(start_.span().begin(), start_.span().end());
  const std::uint64_t per_round = spec_.sync.inner_steps * spec_.sync.batch;
  for (std::uint64_t round = 0; round < 3; ++round) {
    collab::WorkOrder order = Order(round * per_round, per_round);
    order.tokens_before = round * per_round * spec_.model.context;
    Must(worker->Work(order, begin, theta_.span(), go_));
    begin = Theta();
    const auto progress = Must(reference->Round(1, go_));
    EXPECT_EQ(progress.tokens, (round + 1) * per_round * spec_.model.context);
    ASSERT_EQ(weights, begin) << "round " << round;
  }
}

// Identity of methods.md 8: one SGD step on each of two workers and an outer SGD step of rate 1 is
// one SGD step on the mean gradient.
TEST_F(Trainer, OneSgdStepOnEachWorkerIsSynchronousSgd) {
  RunSpec spec = spec_;
  SetOptimizer(agreed::InnerKind::kSgd, spec.optim.inner);
  spec.optim.inner.clip_norm = 0;
  spec.optim.schedule = {.kind = agreed::ScheduleKind::kConstant, .peak = 0.5F};
  const auto engine = EngineOf(spec);
  std::vector<double> mean(theta_.size());
  for (std::uint64_t m = 0; m < 2; ++m) {
    const auto worker = Must(TrainWorker::Make(engine));
    Must(worker->Work(Order(m * spec.sync.batch, spec.sync.batch), start_.span(), theta_.span(),
                      go_));
    for (std::size_t i = 0; i < mean.size(); ++i) {
      mean[i] += double{start_.span()[i] - theta_.span()[i]} / 2;
    }
  }
  std::vector<float> together(start_.span().begin(), start_.span().end());
  const auto reference = Must(ReferenceTrainer::Make(engine, together));
  std::vector<std::vector<std::uint64_t>> samples(2);
  for (std::uint64_t i = 0; i < 2 * spec.sync.batch; ++i) {
    samples[i / spec.sync.batch].push_back(i);
  }
  Must(reference->RoundOn(samples, go_));
  float largest = 0;
  for (const float w : together) largest = std::max(largest, std::fabs(w));
  for (std::size_t i = 0; i < mean.size(); ++i) {
    ASSERT_NEAR(double{start_.span()[i]} - mean[i], together[i], 1e-6 * double{largest}) << i;
  }
}

TEST_F(Trainer, AccumulationChangesOnlyRounding) {
  const auto whole = Must(TrainWorker::Make(engine_));
  Must(whole->Work(Order(0, 6), start_.span(), theta_.span(), go_));
  const std::vector<float> expected = Theta();
  RunSpec spec = spec_;
  spec.optim.accumulation = 3;
  const auto parts = Must(TrainWorker::Make(EngineOf(spec)));
  Must(parts->Work(Order(0, 6), start_.span(), theta_.span(), go_));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(theta_.span()[i], expected[i], 2e-4) << i;
  }
}

TEST_F(Trainer, AGradientDependsOnSamplesAndWeightsAlone) {
  const auto worker = Must(TrainWorker::Make(engine_));
  std::vector<float> first(start_.size()), again(start_.size()), scaled(start_.size());
  const std::vector<float> before(start_.span().begin(), start_.span().end());
  const auto done = Must(worker->Gradient(Order(4, 3), start_.span(), first, 1.0F / 24));
  EXPECT_EQ(done.samples, 3U);
  EXPECT_EQ(done.tokens, 24U);
  EXPECT_GT(done.loss_sum, 0);
  Must(worker->Work(Order(0, 9), start_.span(), theta_.span(), go_));
  Must(worker->Gradient(Order(50, 3), start_.span(), again, 1.0F / 24));
  EXPECT_NE(again, first);
  Must(worker->Gradient(Order(4, 3), start_.span(), again, 1.0F / 24));
  EXPECT_EQ(again, first) << "neither moments nor what was computed between take part";
  EXPECT_TRUE(std::equal(before.begin(), before.end(), start_.span().begin()));
  Must(worker->Gradient(Order(4, 3), start_.span(), scaled, 2.0F / 24));
  for (std::size_t i = 0; i < first.size(); ++i) ASSERT_EQ(scaled[i], 2 * first[i]) << i;
}

TEST_F(Trainer, R27TheProbeIsAFunctionOfTheSpec) {
  LocalConfig local;
  local.device = "cpu";
  const Hash probe = Must(ProbeKernels(spec_, local));
  EXPECT_EQ(Must(ProbeKernels(spec_, local)), probe);
  RunSpec other = spec_;
  ++other.sync.seed;
  EXPECT_NE(Must(ProbeKernels(other, local)), probe);
  local.compute = "bf16";
  EXPECT_NE(Must(ProbeKernels(spec_, local)), probe) << "other kernels";
}

TEST_F(Trainer, ZLossMovesTheWeightsAndNoReportedLoss) {
  const collab::WorkOrder one_step = Order(0, spec_.sync.batch);
  const auto without = Must(TrainWorker::Make(engine_));
  const auto plain = Must(without->Work(one_step, start_.span(), theta_.span(), go_));
  const std::vector<float> plain_weights = Theta();
  RunSpec spec = spec_;
  spec.optim.z_loss = 0.1F;
  const auto with = Must(TrainWorker::Make(EngineOf(spec)));
  const auto pulled = Must(with->Work(one_step, start_.span(), theta_.span(), go_));
  EXPECT_EQ(pulled.loss_sum, plain.loss_sum);
  EXPECT_NE(Theta(), plain_weights);
}

/// TinyText with a loss on some tokens only.
data::TokenStream MarkedText(std::size_t size, const std::function<bool(std::size_t)>& loss) {
  const data::TokenStream text = TinyText(size);
  std::vector<std::int32_t> ids(size);
  text.Read(0, ids);
  std::vector<bool> marks(size);
  for (std::size_t i = 0; i < size; ++i) marks[i] = loss(i);
  return data::TokenStream::FromTokens(std::move(ids), marks);
}

TEST_F(Trainer, ALossOnEveryTokenIsNoMark) {
  LocalConfig local;
  local.device = "cpu";
  const auto worker = Must(TrainWorker::Make(engine_));
  const auto plain = Must(worker->Work(Order(0, 9), start_.span(), theta_.span(), go_));
  const std::vector<float> weights = Theta();
  const auto marked = Must(TrainWorker::Make(
      Must(StepEngine::Make(spec_, local, MarkedText(2000, [](std::size_t) { return true; })))));
  const auto done = Must(marked->Work(Order(0, 9), start_.span(), theta_.span(), go_));
  EXPECT_EQ(Theta(), weights);
  EXPECT_EQ(done.loss_sum, plain.loss_sum);
}

TEST_F(Trainer, TokensWithoutALossAreWorkAndTeachNothing) {
  LocalConfig local;
  local.device = "cpu";
  const auto loss = [](std::size_t i) { return i % 7 < 2; };
  const data::TokenStream text = MarkedText(2000, loss);
  const std::shared_ptr<StepEngine> engine = Must(StepEngine::Make(spec_, local, text));
  const std::vector<std::uint64_t> samples{0, 1, 2};
  const std::uint64_t targets = engine->CountTargets(samples);
  EXPECT_GT(targets, 3U);
  EXPECT_LT(targets, 12U);

  // The mean over the targets with a loss, of the loss and of the gradient.
  std::vector<float> gradient(start_.size()), by_hand(start_.size());
  const auto worker = Must(TrainWorker::Make(engine));
  const auto done = Must(worker->Gradient(Order(0, 3), start_.span(), gradient, 1.0F / 24));
  EXPECT_EQ(done.tokens, 24U) << "all tokens of the samples";
  const auto sampler = Must(data::Sampler::Make(2000, spec_.model.context, spec_.data.seed));
  data::SampleRows rows = data::ReadSamples(TinyText(2000), sampler, samples);
  for (std::size_t i = 0; i < rows.targets.size(); ++i) {
    const std::uint64_t start = sampler.At(samples[i / 8]).start;
    if (!loss(start + i % 8 + 1)) rows.targets[i] = model::kIgnoreToken;
  }
  const auto network = Must(model::Model::Create(
      spec_.model, engine_->grid(), {.device = tensor::Device::kCpu}, start_.span(), by_hand));
  const float scale = 1.0F / 24 * engine->tokens_per_target();
  const model::LossSum sum =
      Must(network->ForwardBackward(model::Batch{rows.inputs, rows.targets, 3, 8}, scale));
  EXPECT_EQ(sum.tokens, targets);
  EXPECT_EQ(gradient, by_hand);
  EXPECT_EQ(done.targets, targets);
  EXPECT_EQ(done.loss_sum, sum.nll);
  EXPECT_NEAR(engine->tokens_per_target(), 3.5, 0.01);

  // The reference counts alike.
  std::vector<float> weights(start_.span().begin(), start_.span().end());
  const auto reference = Must(ReferenceTrainer::Make(engine, weights));
  const auto fresh = Must(TrainWorker::Make(engine));
  const std::uint64_t per_round = spec_.sync.inner_steps * spec_.sync.batch;
  const auto round = Must(fresh->Work(Order(0, per_round), start_.span(), theta_.span(), go_));
  const auto progress = Must(reference->Round(1, go_));
  EXPECT_EQ(weights, Theta());
  EXPECT_EQ(progress.tokens, per_round * spec_.model.context);
  EXPECT_EQ(round.tokens, progress.tokens);

  const model::LossSum whole = Must(EvaluateLoss(*network, text));
  EXPECT_EQ(whole.tokens, text.CountTargets(1, 1999));
  const auto nothing = MarkedText(100, [](std::size_t) { return false; });
  EXPECT_FALSE(EvaluateLoss(*network, nothing).ok());
  EXPECT_FALSE(StepEngine::Make(spec_, local, nothing).ok());
}

TEST_F(Trainer, AMixtureIsDrawnFromItsParts) {
  LocalConfig local;
  local.device = "cpu";
  const std::vector<data::MixPart> mix{{0, 1500, 3072}, {1500, 500, 1024}};
  const auto worker =
      Must(TrainWorker::Make(Must(StepEngine::Make(spec_, local, TinyText(2000), mix))));
  const auto done = Must(worker->Work(Order(0, 9), start_.span(), theta_.span(), go_));
  EXPECT_EQ(done.samples, 9U);
  const std::vector<data::MixPart> small{{0, 1995, 3072}, {1995, 5, 1024}};
  EXPECT_FALSE(StepEngine::Make(spec_, local, TinyText(2000), small).ok());
}

TEST_F(Trainer, LossOfASplitCountsEveryTargetOnce) {
  const auto network = Must(model::Model::Create(
      spec_.model, engine_->grid(), {.device = tensor::Device::kCpu}, start_.span(), {}));
  for (const std::size_t size : {2u, 8u, 9u, 10u, 17u, 100u}) {
    const data::TokenStream text = TinyText(size);
    const model::LossSum sum = Must(EvaluateLoss(*network, text));
    EXPECT_EQ(sum.tokens, size - 1);
    double by_hand = 0;
    for (std::size_t at = 0; at + 1 < size; at += spec_.model.context) {
      const std::size_t targets = std::min<std::size_t>(spec_.model.context, size - 1 - at);
      std::vector<std::int32_t> window(targets + 1);
      text.Read(at, window);
      by_hand += Must(network->Loss(window, 1, targets)).nll;
    }
    EXPECT_NEAR(sum.nll, by_hand, 1e-4 * by_hand) << size;
  }
  const std::atomic<bool> cut{true};
  const auto interrupted = EvaluateLoss(*network, TinyText(100), cut);
  ASSERT_FALSE(interrupted.ok());
  EXPECT_EQ(interrupted.error().code, Code::kRefused);
  const auto too_short = EvaluateLoss(*network, TinyText(1));
  ASSERT_FALSE(too_short.ok());
  EXPECT_NE(too_short.error().message.find("there are 1"), std::string::npos);
}

TEST_F(Trainer, AChoiceIsAsLikelyAsItsTokensBehindTheQuery) {
  RunSpec spec = spec_;
  spec.model.vocab = 256;
  const agreed::TileGrid grid = Must(model::MakeGrid(spec.model));
  agreed::FlatBuffer weights(grid.flat_size());
  model::InitWeights(spec.model, grid, 5, weights.span());
  const auto network = Must(
      model::Model::Create(spec.model, grid, {.device = tensor::Device::kCpu}, weights.span(), {}));
  const auto loss = [&](std::string_view text) {
    const std::vector<std::int32_t> ids = Must(data::Tokenizer::Bytes()->Encode(text));
    return ids.size() < 2 ? 0.0 : Must(network->Loss(ids, 1, ids.size() - 1)).nll;
  };
  const auto bytes = data::Tokenizer::Bytes();
  const data::Question question{"abc ", {"de", "fghi"}, 1};
  const auto likelihoods = Must(ChoiceLikelihoods(*network, *bytes, question));
  EXPECT_NEAR(likelihoods[0], loss("abc") - loss("abc de"), 1e-4);
  EXPECT_NEAR(likelihoods[1], loss("abc") - loss("abc fghi"), 1e-4);
  // Of a longer text its last 8 inputs count.
  const auto long_query =
      Must(ChoiceLikelihoods(*network, *bytes, {"0123456789abcdef", {"gh", "x"}, 0}));
  EXPECT_NEAR(long_query[0], loss("9abcdef") - loss("9abcdefgh"), 1e-4);
  EXPECT_FALSE(ChoiceLikelihoods(*network, *bytes, {"a", {"123456789", "b"}, 0}).ok());
  ChoiceScore score;
  Count(question, {-4, -6}, score);
  EXPECT_EQ(score.right, 0U);
  EXPECT_EQ(score.right_normalized, 1U) << "6 nats over 4 characters";

  const data::TokenStream text = data::TokenStream::FromTokens(Must(bytes->Encode("some bytes")));
  EXPECT_EQ(TargetBytes(*bytes, text), 9U);
}

TEST_F(Trainer, ASampleLongerThanTheCorpusIsNamed) {
  const auto engine = StepEngine::Make(spec_, {}, TinyText(8));
  ASSERT_FALSE(engine.ok());
  EXPECT_NE(engine.error().message.find("8"), std::string::npos) << engine.error().ToString();
}

TEST_F(Trainer, PlanIsWhatIsAllocated) {
  const RunPlan plan = Must(PlanRun(spec_, {}, {.peers = 4, .tokens_per_second = 100}));
  const std::uint64_t flat = engine_->grid().flat_size() * sizeof(float);
  EXPECT_EQ(plan.parameters, engine_->grid().num_elements());
  EXPECT_EQ(plan.gradients, flat);
  EXPECT_EQ(plan.weights, start_.span().size_bytes() + theta_.span().size_bytes());
  EXPECT_EQ(plan.inner, StateOf(*Must(TrainWorker::Make(engine_))).size() - 23);
  EXPECT_EQ(plan.outer, 2 * flat);
  const auto codec = codec::MakeCodec(codec::CodecKind::kInt8);
  std::uint64_t payload = 0;
  for (const auto& tile : engine_->grid().tiles()) payload += codec->EncodedSize(tile.size);
  EXPECT_EQ(plan.payload, payload);
  EXPECT_EQ(plan.encoded, 2 * payload + 2 * payload * 3 / 4) << "own, result, sent and received";
  EXPECT_EQ(plan.bytes_up_per_round, payload * 6 / 4) << "2 (M-1)/M payloads";
  EXPECT_EQ(plan.total, plan.weights + plan.gradients + plan.inner + plan.outer + plan.encoded +
                            plan.activations + plan.base);
  EXPECT_EQ(plan.tokens_per_round, 4u * 5 * 3 * 8);
  EXPECT_NEAR(plan.eta_s, 4 * 120 / 100.0, 1e-9);
  EXPECT_EQ(Must(PlanRun(spec_, {}, {.peers = 1})).bytes_up_per_round, 0u);
}

TEST_F(Trainer, PlanCountsTheStateOfEachOptimizer) {
  const std::uint64_t flat = engine_->grid().flat_size() * sizeof(float);
  const auto inner = [&](agreed::InnerKind kind) {
    RunSpec spec = spec_;
    SetOptimizer(kind, spec.optim.inner);
    return Must(PlanRun(spec, {}, {.peers = 1})).inner;
  };
  EXPECT_EQ(inner(agreed::InnerKind::kAdamW), 2 * flat);
  EXPECT_EQ(inner(agreed::InnerKind::kSgd), 0u);
  const std::uint64_t state =
      StateOf(*Must(TrainWorker::Make(EngineWith(agreed::InnerKind::kMuon)))).size() - 23;
  const std::uint64_t scratch = (2 * 24 * 16 + 2 * 16 * 16) * sizeof(float);
  EXPECT_EQ(inner(agreed::InnerKind::kMuon), state + scratch) << "of gate, up and down";
  EXPECT_LT(state, 2 * flat);
}

}  // namespace
}  // namespace loom::train
