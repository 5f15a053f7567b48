// Timings on made-up data, long enough to mean something and short enough to wait for.
#include "app/measure.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "app/model_source.h"
#include "base/time.h"
#include "codec/codec.h"
#include "crypto/hash.h"
#include "store/file_system.h"
#include "train/trainer.h"

namespace loom::app {
namespace {

constexpr std::uint64_t kMeasuredParameters = 30'000'000;
constexpr double kMeasuredFlops = 2e11;  ///< some seconds on a slow machine
constexpr std::size_t kValues = 1 << 22;
constexpr int kRepeats = 5;

/// The least of several: what the machine can do when nothing else disturbs it.
template <typename Work>
Result<double> LeastSeconds(Work work) {
  double least = 0;
  for (int i = 0; i < kRepeats; ++i) {
    const Time began = SystemClock().Now();
    LOOM_RETURN_IF_ERROR(work());
    const double seconds = std::max(1e-9, Seconds(SystemClock().Now() - began));
    least = i == 0 ? seconds : std::min(least, seconds);
  }
  return least;
}

/// A spec whose steps take as long as a slow machine's user waits.
Result<train::RunSpec> Affordable(train::RunSpec spec) {
  if (spec.model.vocab == 0) spec.model.vocab = 256;
  if (model::ParameterCount(spec.model) > kMeasuredParameters) {
    const std::uint32_t vocab = spec.model.vocab;
    LOOM_ASSIGN(spec.model, model::Preset("loom-10m"));
    spec.model.vocab = std::min(vocab, 8192U);
    spec.sync.batch = 1;
    spec.optim.accumulation = 1;
  }
  const auto work = [&] {  // of all samples that are timed
    return model::TrainFlopsPerToken(spec.model, spec.model.context) *
           static_cast<double>(spec.model.context) * 5 * spec.sync.batch;
  };
  if (work() > kMeasuredFlops) spec.optim.accumulation = 1;
  while (work() > kMeasuredFlops && spec.sync.batch > 1) spec.sync.batch /= 2;
  while (work() > kMeasuredFlops && spec.model.context > 16) spec.model.context /= 2;
  spec.sync.context = spec.model.context;
  return spec;
}

}  // namespace

Result<double> MeasureTraining(const train::RunSpec& wanted, const train::LocalConfig& local) {
  LOOM_ASSIGN(const train::RunSpec spec, Affordable(wanted));
  LOOM_RETURN_IF_ERROR(ConfigureCompute(spec.determinism, local));
  const std::uint64_t num_samples = std::uint64_t{spec.sync.batch} * 4;
  std::vector<std::int32_t> tokens((num_samples + 2) * spec.model.context);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<std::int32_t>(i * 2654435761U % spec.model.vocab);
  }
  LOOM_ASSIGN(const train::FrozenWeights frozen, train::DrawFrozen(spec.model, 0));
  LOOM_ASSIGN(auto engine,
              train::StepEngine::Make(spec, local, data::TokenStream::FromTokens(std::move(tokens)),
                                      {}, frozen));
  const std::shared_ptr<train::StepEngine> shared = std::move(engine);
  LOOM_ASSIGN(const auto worker, train::TrainWorker::Make(shared));
  const std::uint64_t flat = shared->grid().flat_size();
  LOOM_ASSIGN(agreed::FlatBuffer start, agreed::FlatBuffer::Allocate(flat));
  LOOM_ASSIGN(agreed::FlatBuffer theta, agreed::FlatBuffer::Allocate(flat));
  model::InitWeights(spec.model, shared->grid(), 0, start.span());
  const std::atomic<bool> cut{false};
  const bool local_steps = spec.sync.method == collab::Method::kDiloco;
  const auto work = [&](std::uint64_t samples) -> Result<std::uint64_t> {
    collab::WorkOrder order;
    order.batch = spec.sync.batch;
    std::uint64_t tokens_done = 0;
    for (std::uint64_t at = 0; at < samples; at = order.ranges[0].last + 1) {
      order.ranges = {{at, local_steps ? samples - 1 : at + spec.sync.batch - 1}};
      auto done = local_steps ? worker->Work(order, start.span(), theta.span(), cut)
                              : worker->Gradient(order, start.span(), theta.span(), 1.0F);
      if (!done) return std::move(done).error();
      tokens_done += done->tokens;
    }
    return tokens_done;
  };
  LOOM_RETURN_IF_ERROR(work(spec.sync.batch));
  const Time before = SystemClock().Now();
  LOOM_ASSIGN(const std::uint64_t tokens_done, work(num_samples));
  const double rate = static_cast<double>(tokens_done) / Seconds(SystemClock().Now() - before);
  return rate * model::TrainFlopsPerToken(spec.model, spec.model.context) /
         model::TrainFlopsPerToken(wanted.model, wanted.model.context);
}

Result<CodecSpeed> MeasureCodec(codec::CodecKind kind) {
  const auto codec = codec::MakeCodec(kind);
  std::vector<float> values(kValues);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(i * 2654435761U % 65536) / 65536.0F - 0.5F;
  }
  Bytes encoded(codec->EncodedSize(values.size()));
  const double bytes = static_cast<double>(values.size() * sizeof(float));
  LOOM_ASSIGN(const double encode, LeastSeconds([&] { return codec->Encode(values, encoded); }));
  LOOM_ASSIGN(const double decode, LeastSeconds([&] { return codec->Decode(encoded, values); }));
  return CodecSpeed{bytes / encode, bytes / decode};
}

Result<double> MeasureHash() {
  const Bytes block(kValues * sizeof(float), std::byte{1});
  LOOM_ASSIGN(const double seconds, LeastSeconds([&]() -> Status {
                (void)crypto::Sha256(block);
                return {};
              }));
  return static_cast<double>(block.size()) / seconds;
}

Result<double> MeasureDisk(const std::string& dir) {
  constexpr std::size_t kBlock = 4U << 20;
  constexpr double kMostSeconds = 3;
  store::PosixFileSystem disk;
  const std::string path = fmt::format("{}/.loom-speed-{}", dir, ::getpid());
  const auto measure = [&]() -> Result<double> {
    LOOM_ASSIGN(const auto file,
                disk.Open(path, store::OpenMode::kCreate, store::Access::kPrivate));
    const Bytes block(kBlock, std::byte{1});
    std::size_t written = 0;
    const Time began = SystemClock().Now();
    while (written < kDiskMeasureBytes && Seconds(SystemClock().Now() - began) < kMostSeconds) {
      LOOM_RETURN_IF_ERROR(file->Append(block));
      written += kBlock;
    }
    LOOM_RETURN_IF_ERROR(file->Sync());
    return static_cast<double>(written) / std::max(1e-6, Seconds(SystemClock().Now() - began));
  };
  auto rate = measure();
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
  if (rate) return rate;
  Error error = rate.error();
  if (error.hint.empty())
    error.hint =
        fmt::format("give a folder with --dir that you may write to and that has {} MB free",
                    kDiskMeasureBytes >> 20);
  return error;
}

}  // namespace loom::app
