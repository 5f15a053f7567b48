// The rate comes from timed inner steps of the very model on made-up tokens; a model above
// kMeasuredParameters, or steps above kMeasuredFlops, are scaled from a smaller one by its
// arithmetic.
#include "app/plan_output.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "app/model_source.h"
#include "app/output.h"
#include "base/time.h"
#include "data/dataset.h"
#include "train/plan.h"
#include "train/trainer.h"

namespace loom::app {
namespace {

constexpr std::uint64_t kMeasuredParameters = 30'000'000;
constexpr double kMeasuredFlops = 2e11;  ///< some seconds on a slow machine

/// A token is a byte at least, so that a corpus can be too short for a context before it is read.
Status CheckLength(const train::RunSpec& spec) {
  LOOM_ASSIGN(const std::vector<std::string> files, data::ListCorpus(spec.data));
  std::uint64_t bytes = 0;
  for (const std::string& file : files) {
    std::error_code error;
    const std::uint64_t size = std::filesystem::file_size(file, error);
    if (!error) bytes += size;
  }
  const auto most =
      static_cast<std::uint64_t>(static_cast<double>(bytes) * (1 - spec.data.val_fraction));
  return train::CheckTrainTokens(spec, most, " at most");
}

/// Tokens a second of one worker's inner steps.
Result<double> MeasureRate(const train::RunFile& run) {
  train::RunSpec spec = run.spec;
  if (spec.model.vocab == 0) spec.model.vocab = 256;
  const double wanted = model::TrainFlopsPerToken(spec.model, spec.model.context);
  if (model::ParameterCount(spec.model) > kMeasuredParameters) {
    const std::uint32_t vocab = spec.model.vocab;
    LOOM_ASSIGN(spec.model, model::Preset("loom-10m"));
    spec.model.vocab = std::min(vocab, 8192U);
    spec.sync.batch = 1;
    spec.optim.accumulation = 1;
  }
  const auto work = [&] {  // of all samples that are timed below
    return model::TrainFlopsPerToken(spec.model, spec.model.context) *
           static_cast<double>(spec.model.context) * 5 * spec.sync.batch;
  };
  if (work() > kMeasuredFlops) spec.optim.accumulation = 1;
  while (work() > kMeasuredFlops && spec.sync.batch > 1) spec.sync.batch /= 2;
  while (work() > kMeasuredFlops && spec.model.context > 16) spec.model.context /= 2;
  spec.sync.context = spec.model.context;
  LOOM_RETURN_IF_ERROR(ConfigureCompute(spec.determinism, run.local));
  const std::uint64_t num_samples = std::uint64_t{spec.sync.batch} * 4;
  std::vector<std::int32_t> tokens((num_samples + 2) * spec.model.context);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<std::int32_t>(i * 2654435761U % spec.model.vocab);
  }
  LOOM_ASSIGN(auto engine, train::StepEngine::Make(
                               spec, run.local, data::TokenStream::FromTokens(std::move(tokens))));
  const std::shared_ptr<train::StepEngine> shared = std::move(engine);
  LOOM_ASSIGN(const auto worker, train::TrainWorker::Make(shared));
  const std::uint64_t flat = shared->grid().flat_size();
  LOOM_ASSIGN(agreed::FlatBuffer start, agreed::FlatBuffer::Allocate(flat));
  LOOM_ASSIGN(agreed::FlatBuffer theta, agreed::FlatBuffer::Allocate(flat));
  model::InitWeights(spec.model, shared->grid(), 0, start.span());
  const std::atomic<bool> cut{false};
  collab::WorkOrder order;
  order.batch = spec.sync.batch;
  order.ranges = {{0, spec.sync.batch - 1}};
  LOOM_RETURN_IF_ERROR(worker->Work(order, start.span(), theta.span(), cut));
  order.ranges = {{0, num_samples - 1}};
  const Time before = SystemClock().Now();
  LOOM_ASSIGN(const collab::WorkDone done, worker->Work(order, start.span(), theta.span(), cut));
  const double rate = static_cast<double>(done.tokens) / Seconds(SystemClock().Now() - before);
  return rate * model::TrainFlopsPerToken(spec.model, spec.model.context) / wanted;
}

}  // namespace

Status PrintPlan(train::RunFile run, const PlanOptions& options, bool json) {
  LOOM_RETURN_IF_ERROR(CheckLength(run.spec));
  LOOM_ASSIGN(const auto tokenizer, data::MakeTokenizer(run.spec.data));
  LOOM_RETURN_IF_ERROR(
      train::FitVocab(run.spec, static_cast<std::uint32_t>(tokenizer->vocab_size())));
  train::PlanInput input{.peers = options.peers};
  input.link_up = static_cast<double>(run.local.max_up);
  input.link_down = static_cast<double>(run.local.max_down);
  if (options.measure) {
    LOOM_ASSIGN(input.tokens_per_second, MeasureRate(run));
  }
  LOOM_ASSIGN(const train::RunPlan plan, train::PlanRun(run.spec, run.local, input));
  Output out(json);
  out.Event({{"parameters", json::Value(plan.parameters)},
             {"weights", json::Value(plan.weights)},
             {"gradients", json::Value(plan.gradients)},
             {"inner", json::Value(plan.inner)},
             {"outer", json::Value(plan.outer)},
             {"encoded", json::Value(plan.encoded)},
             {"activations", json::Value(plan.activations)},
             {"total", json::Value(plan.total)},
             {"bytes_up_per_round", json::Value(plan.bytes_up_per_round)},
             {"bytes_down_per_round", json::Value(plan.bytes_down_per_round)},
             {"tokens_per_round", json::Value(plan.tokens_per_round)},
             {"tokens_per_second", json::Value(input.tokens_per_second)},
             {"eta_s", json::Value(plan.eta_s)}});
  if (json) return {};
  const auto bytes = [](std::uint64_t n) { return HumanBytes(static_cast<double>(n)); };
  out.Say("{} parameters, {} peer{}", HumanCount(plan.parameters), options.peers,
          options.peers == 1 ? "" : "s");
  out.Say(
      "memory       weights {}, gradients {}, inner {}, outer {}, encoded {}, activations {}: "
      "total {}",
      bytes(plan.weights), bytes(plan.gradients), bytes(plan.inner), bytes(plan.outer),
      bytes(plan.encoded), bytes(plan.activations), bytes(plan.total));
  out.Say("per round    {} up, {} down, {} tokens", bytes(plan.bytes_up_per_round),
          bytes(plan.bytes_down_per_round), HumanCount(plan.tokens_per_round));
  if (input.tokens_per_second > 0) {
    out.Say("speed        {:.0f} tokens/s a worker, {} a round", input.tokens_per_second,
            HumanSeconds(plan.seconds_per_round));
  }
  if (plan.eta_s > 0)
    out.Say("whole run    {} rounds, {}", run.spec.sync.rounds, HumanSeconds(plan.eta_s));
  return {};
}

}  // namespace loom::app
