// A worker's round: copy the agreed weights, then for each batch of samples zero, accumulate, clip,
// step. The learning rate depends on the tokens of the whole run, never on local steps.
#include "train/trainer.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "agreed/combine.h"
#include "agreed/random.h"
#include "agreed/schedule.h"
#include "crypto/hash.h"
#include "wire/bytes_io.h"

namespace loom::train {
namespace {

constexpr std::uint32_t kStateMagic = 0x54534C57;  // "WLST"
constexpr std::uint16_t kStateVersion = 2;
constexpr std::size_t kStateHeadBytes = 4 + 2 + 1 + 8 + 8;

Result<model::ModelOptions> OptionsOf(const RunSpec& spec, const LocalConfig& local) {
  model::ModelOptions options;
  LOOM_ASSIGN(options.device, tensor::ParseDevice(local.device));
  LOOM_ASSIGN(options.compute, tensor::ParseComputeType(local.compute));
  options.checkpointing = local.checkpointing;
  options.z_loss = spec.optim.z_loss;
  return options;
}

static_assert(data::kNoLoss == model::kIgnoreToken);

/// The part of drawn tokens that has a loss, on average. Above 0 when any token has one.
double LossFraction(const data::TokenStream& train, std::span<const data::MixPart> mix) {
  const data::MixPart whole{0, train.size(), data::kMixBlock};
  double fraction = 0;
  for (const data::MixPart& part : mix.empty() ? std::span(&whole, 1) : mix) {
    const std::uint64_t targets = train.CountTargets(part.first, part.tokens);
    fraction += static_cast<double>(part.share) / data::kMixBlock * static_cast<double>(targets) /
                static_cast<double>(part.tokens);
  }
  return fraction;
}

/// All tokens of samples count as work, so that schedules, rates and weights follow it.
void Count(const model::LossSum& loss, std::uint64_t tokens, collab::WorkDone& done) {
  done.tokens += tokens;
  done.targets += loss.tokens;
  done.loss_sum += loss.nll;
}

}  // namespace

StepEngine::StepEngine(const RunSpec& spec, data::TokenStream train, data::Sampler sampler)
    : spec_(spec), train_(std::move(train)), sampler_(sampler) {}

Result<std::unique_ptr<StepEngine>> StepEngine::Make(const RunSpec& spec, const LocalConfig& local,
                                                     data::TokenStream train,
                                                     std::span<const data::MixPart> mix,
                                                     FrozenWeights frozen) {
  LOOM_ASSIGN(data::Sampler sampler,
              mix.empty() ? data::Sampler::Make(train.size(), spec.model.context, spec.data.seed)
                          : data::Sampler::Make(mix, spec.model.context, spec.data.seed));
  if (train.num_targets() == 0) {
    return MakeError(Code::kInvalid, "no token of the training split has a loss",
                     "check data.loss, or use more conversations");
  }
  std::unique_ptr<StepEngine> engine(new StepEngine(spec, std::move(train), sampler));
  if (engine->train_.num_targets() != engine->train_.size()) {
    engine->tokens_per_target_ = static_cast<float>(1 / LossFraction(engine->train_, mix));
  }
  engine->frozen_ = std::move(frozen);
  LOOM_ASSIGN(engine->options_, OptionsOf(spec, local));
  LOOM_ASSIGN(engine->grid_,
              agreed::TileGrid::Make(model::ParameterShapes(spec.model), spec.sync.tile_elements));
  return engine;
}

Status StepEngine::Bind(std::span<float> weights, std::span<float> gradients) {
  if (model_ != nullptr && weights.data() == weights_.data() &&
      gradients.data() == gradients_.data()) {
    model_->WeightsChanged();
    return {};
  }
  model_.reset();  // its copies on a device make room for those of the next
  LOOM_ASSIGN(model_, model::Model::Create(spec_.model, grid_, options_, weights, gradients,
                                           SpanOf(frozen_)));
  weights_ = weights;
  gradients_ = gradients;
  return {};
}

Status StepEngine::Bind(std::span<float> weights) {
  if (own_gradients_.size() == 0) {
    LOOM_ASSIGN(own_gradients_, agreed::FlatBuffer::Allocate(grid_.flat_size(), "the gradients"));
  }
  return Bind(weights, own_gradients_.span());
}

void StepEngine::WeightsChanged() { model_->WeightsChanged(); }

void StepEngine::ZeroGradients() { optim::ZeroGradients(gradients_); }

std::uint64_t StepEngine::CountTargets(std::span<const std::uint64_t> samples) const {
  return data::CountTargets(train_, sampler_, samples);
}

Result<model::LossSum> StepEngine::AddGradient(std::span<const std::uint64_t> samples,
                                               float loss_scale) {
  const std::size_t micro = std::max<std::size_t>(1, spec_.sync.batch / spec_.optim.accumulation);
  model::LossSum total;
  while (!samples.empty()) {
    const auto some = samples.first(std::min(micro, samples.size()));
    const data::SampleRows rows = data::ReadSamples(train_, sampler_, some);
    const model::Batch batch{rows.inputs, rows.targets, some.size(), spec_.model.context};
    LOOM_ASSIGN(const model::LossSum part, model_->ForwardBackward(batch, loss_scale));
    if (const std::uint64_t targets = CountTargets(some); part.tokens != targets) {
      return MakeError(Code::kInternal, fmt::format("loss over {} targets, the samples have {}",
                                                    part.tokens, targets));
    }
    total.nll += part.nll;
    total.tokens += part.tokens;
    samples = samples.subspan(some.size());
  }
  return total;
}

Result<std::vector<std::uint64_t>> SamplesOf(std::span<const collab::Range> ranges,
                                             std::uint64_t limit) {
  std::vector<std::uint64_t> samples;
  for (const collab::Range& range : ranges) {
    if (range.last < range.first || range.last - range.first >= limit - samples.size()) {
      return MakeError(Code::kLimit,
                       fmt::format("work on samples {}..{} after {} others: the limit is {}",
                                   range.first, range.last, samples.size(), limit));
    }
    for (std::uint64_t n = range.first; n <= range.last; ++n) samples.push_back(n);
  }
  return samples;
}

TrainWorker::TrainWorker(std::shared_ptr<StepEngine> engine,
                         std::optional<optim::InnerOptimizer> optimizer)
    : engine_(std::move(engine)), optimizer_(std::move(optimizer)) {}

Result<std::unique_ptr<TrainWorker>> TrainWorker::Make(std::shared_ptr<StepEngine> engine) {
  std::optional<optim::InnerOptimizer> optimizer;
  if (engine->spec().sync.method == collab::Method::kDiloco) {
    LOOM_ASSIGN(optimizer, optim::InnerOptimizer::Make(engine->grid(), engine->spec().optim.inner));
  }
  return std::unique_ptr<TrainWorker>(new TrainWorker(std::move(engine), std::move(optimizer)));
}

Result<collab::WorkDone> TrainWorker::Work(const collab::WorkOrder& order,
                                           std::span<const float> start, std::span<float> theta,
                                           const std::atomic<bool>& cut) {
  const std::uint64_t flat = engine_->grid().flat_size();
  if (start.size() != flat || theta.size() != flat || order.batch == 0 || !optimizer_) {
    return MakeError(Code::kInternal,
                     fmt::format("work on {} and {} values in batches of {}, the model has {}",
                                 start.size(), theta.size(), order.batch, flat));
  }
  LOOM_ASSIGN(const std::vector<std::uint64_t> samples, SamplesOf(order.ranges));
  std::copy(start.begin(), start.end(), theta.begin());
  LOOM_RETURN_IF_ERROR(engine_->Bind(theta));

  collab::WorkDone done;
  for (std::size_t at = 0; at < samples.size() && !cut.load(std::memory_order_relaxed);
       at += order.batch) {
    const auto batch =
        std::span(samples).subspan(at, std::min<std::size_t>(order.batch, samples.size() - at));
    const auto targets =
        static_cast<float>(std::max<std::uint64_t>(1, engine_->CountTargets(batch)));
    engine_->ZeroGradients();
    LOOM_ASSIGN(const model::LossSum loss, engine_->AddGradient(batch, 1.0F / targets));
    const float lr =
        agreed::LearningRate(engine_->spec().optim.schedule,
                             order.tokens_before + (done.steps + 1) * order.tokens_per_step);
    LOOM_ASSIGN(const optim::StepReport step, optimizer_->Step(theta, engine_->gradients(), lr));
    engine_->WeightsChanged();
    done.samples += batch.size();
    Count(loss, batch.size() * engine_->spec().model.context, done);
    done.grad_norm = static_cast<float>(step.grad_norm);
    done.learning_rate = lr;
    ++done.steps;
  }
  return done;
}

Result<collab::WorkDone> TrainWorker::Gradient(const collab::WorkOrder& order,
                                               std::span<float> weights, std::span<float> gradient,
                                               float loss_scale) {
  const std::uint64_t flat = engine_->grid().flat_size();
  if (weights.size() != flat || gradient.size() != flat) {
    return MakeError(Code::kInternal,
                     fmt::format("a gradient of {} values at {} weights, the model has {}",
                                 gradient.size(), weights.size(), flat));
  }
  LOOM_ASSIGN(const std::vector<std::uint64_t> samples, SamplesOf(order.ranges));
  LOOM_RETURN_IF_ERROR(engine_->Bind(weights, gradient));
  engine_->ZeroGradients();
  // The scale counts every token of the step; of how many a loss is taken is known on average, so
  // that a sample's gradient does not depend on the others.
  LOOM_ASSIGN(const model::LossSum loss,
              engine_->AddGradient(samples, loss_scale * engine_->tokens_per_target()));
  collab::WorkDone done;
  done.samples = samples.size();
  Count(loss, samples.size() * engine_->spec().model.context, done);
  done.grad_norm = static_cast<float>(std::sqrt(agreed::SumSquares(gradient)));
  done.learning_rate = agreed::LearningRate(engine_->spec().optim.schedule,
                                            order.tokens_before + order.tokens_per_step);
  done.steps = 1;
  return done;
}

Result<Hash> ProbeKernels(const RunSpec& spec, const LocalConfig& local) {
  const std::uint64_t unit = spec.sync.batch / spec.optim.accumulation;
  const agreed::Philox random(spec.sync.seed, 0x70726F6265);
  std::vector<std::int32_t> tokens((unit + 1) * spec.model.context + 1);
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<std::int32_t>(random.Below(i, spec.model.vocab));
  LOOM_ASSIGN(FrozenWeights frozen, DrawFrozen(spec.model, spec.sync.seed));
  LOOM_ASSIGN(const auto engine,
              StepEngine::Make(spec, local, data::TokenStream::FromTokens(std::move(tokens)), {},
                               std::move(frozen)));
  LOOM_ASSIGN(agreed::FlatBuffer weights, agreed::FlatBuffer::Allocate(engine->grid().flat_size()));
  model::InitWeights(spec.model, engine->grid(), spec.sync.seed, weights.span());
  LOOM_RETURN_IF_ERROR(engine->Bind(weights.span()));
  std::vector<std::uint64_t> samples(unit);
  std::iota(samples.begin(), samples.end(), 0U);
  LOOM_ASSIGN(const model::LossSum loss, engine->AddGradient(samples, 1.0F));
  (void)loss;
  return crypto::Sha256(std::as_bytes(engine->gradients()));
}

void TrainWorker::Reset() {
  if (optimizer_) optimizer_->Reset();
}

// u32 magic, u16 version, u8 kind of optimizer, u64 step, u64 n, n values of its state (fp32,
// little-endian).
Status TrainWorker::SaveState(ByteSink& out) const {
  if (!optimizer_) return {};
  wire::Writer head;
  head.Int(kStateMagic);
  head.Int(kStateVersion);
  head.Int(static_cast<std::uint8_t>(optimizer_->config().kind));
  head.Int(optimizer_->step());
  head.Int(std::uint64_t{optimizer_->state().size()});
  LOOM_RETURN_IF_ERROR(out.Write(head.bytes()));
  return out.Write(AsBytes(optimizer_->state()));
}

Status TrainWorker::RestoreState(ByteSource& in) {
  if (!optimizer_) {
    return in.left() == 0 ? Status()
                          : MakeError(Code::kCorrupt, "inner state of a worker that has none");
  }
  std::array<std::byte, kStateHeadBytes> raw{};
  if (Status read = in.Read(raw); !read) return std::move(read).error().Context("inner state");
  wire::Reader head(raw);
  const auto magic = head.Int<std::uint32_t>();
  const auto version = head.Int<std::uint16_t>();
  if (magic != kStateMagic || version != kStateVersion) {
    return MakeError(Code::kCorrupt,
                     fmt::format("inner state: magic {:08x} version {}, expected {:08x} version {}",
                                 magic, version, kStateMagic, kStateVersion));
  }
  const auto kind = head.Int<std::uint8_t>();
  const auto step = head.Int<std::uint64_t>();
  const auto count = head.Int<std::uint64_t>();
  const agreed::InnerKind own = optimizer_->config().kind;
  if (kind != static_cast<std::uint8_t>(own)) {
    return MakeError(Code::kCorrupt,
                     fmt::format("inner state: of {}, the run has {}",
                                 agreed::InnerKindName(static_cast<agreed::InnerKind>(kind)),
                                 agreed::InnerKindName(own)));
  }
  const std::size_t expected = optimizer_->state().size();
  if (count != expected || in.left() != expected * sizeof(float)) {
    return MakeError(Code::kCorrupt,
                     fmt::format("inner state: {} values in {} bytes, the model's {} has {}", count,
                                 in.left(), agreed::InnerKindName(own), expected));
  }
  return optimizer_->Restore(
      step, [&](std::span<float> state) { return in.Read(std::as_writable_bytes(state)); });
}

}  // namespace loom::train
