// The loop around ReferenceTrainer: progress for people, one metrics line a round for programs.
#include "app/one_process.h"

#include <cstdio>
#include <memory>

#include "app/print.h"
#include "base/time.h"
#include "train/evaluate.h"
#include "train/reference.h"

namespace loom::app {
namespace {

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using FileHandle = std::unique_ptr<std::FILE, CloseFile>;

Result<FileHandle> OpenMetrics(const std::string& path) {
  if (path.empty()) return FileHandle();
  FileHandle file(std::fopen(path.c_str(), "we"));
  if (file == nullptr) return MakeError(Code::kIo, fmt::format("cannot write {}", path));
  return file;
}

void WriteMetrics(std::FILE* file, const train::ReferenceProgress& p, double tokens_per_second) {
  if (file == nullptr) return;
  const json::Object line{{"round", json::Value(p.round)},
                          {"step", json::Value(p.steps)},
                          {"tokens", json::Value(p.tokens)},
                          {"loss", json::Value(p.loss)},
                          {"lr", json::Value(p.learning_rate)},
                          {"grad_norm", json::Value(p.grad_norm)},
                          {"tokens_per_second", json::Value(tokens_per_second)},
                          {"bytes_sent", json::Value(0)},
                          {"bytes_received", json::Value(0)}};
  Print(file, "{}\n", json::Dump(line));
  std::fflush(file);
}

Result<train::ReferenceProgress> NextRound(train::ReferenceTrainer& trainer,
                                           const OneProcessOptions& options, std::uint64_t round,
                                           const std::atomic<bool>& cut) {
  if (options.samples.empty()) return trainer.Round(options.workers, cut);
  std::vector<std::vector<std::uint64_t>> samples;
  for (const auto& ranges : options.samples[round]) {
    LOOM_ASSIGN(auto own, train::SamplesOf(ranges));
    samples.push_back(std::move(own));
  }
  return trainer.RoundOn(samples, cut);
}

}  // namespace

Result<OneProcessResult> TrainOneProcess(const OneProcessOptions& options,
                                         const data::TokenStream& train,
                                         const std::atomic<bool>& cut, Output& out) {
  OneProcessResult result;
  if (!options.from.model.empty()) {
    LOOM_ASSIGN(result.frozen, train::ReadFrozen(options.from.model, options.spec.model));
  }
  LOOM_ASSIGN(auto made, train::StepEngine::Make(options.spec, options.local, train, options.mix,
                                                 result.frozen));
  const std::shared_ptr<train::StepEngine> engine = std::move(made);
  result.grid = engine->grid();
  LOOM_ASSIGN(result.weights, agreed::FlatBuffer::Allocate(result.grid.flat_size()));
  LOOM_RETURN_IF_ERROR(
      train::FirstWeights(options.spec, options.from, result.grid, result.weights.span()));
  LOOM_ASSIGN(auto trainer, train::ReferenceTrainer::Make(engine, result.weights.span()));
  LOOM_ASSIGN(const FileHandle metrics, OpenMetrics(options.metrics_path));

  const Time start = SystemClock().Now();
  const std::uint64_t rounds = options.samples.empty() ? options.rounds : options.samples.size();
  while (result.rounds < rounds && !cut.load()) {
    LOOM_ASSIGN(const train::ReferenceProgress p, NextRound(*trainer, options, result.rounds, cut));
    result.rounds = p.round;
    result.tokens = p.tokens;
    result.train_loss = p.loss;
    result.seconds = Seconds(SystemClock().Now() - start);
    const double rate = static_cast<double>(p.tokens) / result.seconds;
    const double left =
        result.seconds / static_cast<double>(p.round) * static_cast<double>(rounds - p.round);
    WriteMetrics(metrics.get(), p, rate);
    out.Event({{"event", json::Value("round")},
               {"round", json::Value(p.round)},
               {"loss", json::Value(p.loss)},
               {"tokens", json::Value(p.tokens)},
               {"tokens_per_second", json::Value(rate)}});
    out.Progress(fmt::format("round {}/{}  loss {:.3f}  {:.0f} tokens/s  norm {:.2f}  {} left",
                             p.round, rounds, p.loss, rate, p.grad_norm, HumanSeconds(left)));
  }
  result.interrupted = cut.load();
  return result;
}

Result<double> LossOf(const train::RunSpec& spec, const train::LocalConfig& local,
                      const agreed::TileGrid& grid, std::span<float> weights,
                      const train::FrozenWeights& frozen, const data::TokenStream& stream) {
  LOOM_ASSIGN(const model::LossSum sum,
              train::EvaluateLoss(spec, local, grid, weights, frozen, stream));
  return sum.nll / static_cast<double>(sum.tokens);
}

}  // namespace loom::app
