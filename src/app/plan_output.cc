// What a run takes, as a table for people or one object for programs.
#include "app/plan_output.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>

#include "app/measure.h"
#include "app/output.h"
#include "base/memory.h"
#include "data/byte_input.h"
#include "data/dataset.h"
#include "train/plan.h"
#include "train/start_model.h"

namespace loom::app {
namespace {

/// A token is a byte at least, so that a corpus can be too short for a context before it is read.
Status CheckLength(const train::RunSpec& spec) {
  LOOM_ASSIGN(const std::vector<data::CorpusFile> files, data::ListCorpus(spec.data));
  std::uint64_t bytes = 0;
  for (const data::CorpusFile& file : files) {
    // What a packed one holds shows only when it is read.
    if (data::UnpackedName(file.path) != file.path) return {};
    std::error_code error;
    const std::uint64_t size = std::filesystem::file_size(file.path, error);
    if (!error) bytes += size;
  }
  const auto most =
      static_cast<std::uint64_t>(static_cast<double>(bytes) * (1 - spec.data.val_fraction));
  return train::CheckTrainTokens(spec, most, " at most");
}

}  // namespace

Status PrintPlan(train::RunFile run, const PlanOptions& options, bool json) {
  LOOM_RETURN_IF_ERROR(CheckLength(run.spec));
  LOOM_ASSIGN(const auto tokenizer, data::MakeTokenizer(run.spec.data));
  LOOM_RETURN_IF_ERROR(train::FitTokenizer(run, *tokenizer));
  train::PlanInput input{.peers = options.peers};
  input.link_up = static_cast<double>(run.local.max_up);
  input.link_down = static_cast<double>(run.local.max_down);
  LOOM_ASSIGN(train::RunPlan plan, train::PlanRun(run.spec, run.local, input));
  const std::uint64_t available = AvailableMemory();
  const bool fits = plan.total - plan.base <= available;
  if (options.measure && fits) {
    LOOM_ASSIGN(input.tokens_per_second, MeasureTraining(run.spec, run.local));
    LOOM_ASSIGN(plan, train::PlanRun(run.spec, run.local, input));
  }
  Output out(json);
  out.Event({{"parameters", json::Value(plan.parameters)},
             {"frozen", json::Value(plan.frozen)},
             {"weights", json::Value(plan.weights)},
             {"gradients", json::Value(plan.gradients)},
             {"inner", json::Value(plan.inner)},
             {"outer", json::Value(plan.outer)},
             {"encoded", json::Value(plan.encoded)},
             {"activations", json::Value(plan.activations)},
             {"base", json::Value(plan.base)},
             {"total", json::Value(plan.total)},
             {"fits", json::Value(fits)},
             {"bytes_up_per_round", json::Value(plan.bytes_up_per_round)},
             {"bytes_down_per_round", json::Value(plan.bytes_down_per_round)},
             {"tokens_per_round", json::Value(plan.tokens_per_round)},
             {"tokens_per_second", json::Value(input.tokens_per_second)},
             {"eta_s", json::Value(plan.eta_s)}});
  if (json) return {};
  const auto bytes = [](std::uint64_t n) { return HumanBytes(static_cast<double>(n)); };
  out.Say("{} parameters{}, {}", HumanCount(plan.parameters),
          plan.frozen > 0
              ? fmt::format(" of {} are trained", HumanCount(plan.parameters + plan.frozen))
              : "",
          Counted(options.peers, "peer"));
  out.Say(
      "memory       weights {}, gradients {}, inner {}, outer {}, encoded {}, activations {}, "
      "base {}: total {}",
      bytes(plan.weights), bytes(plan.gradients), bytes(plan.inner), bytes(plan.outer),
      bytes(plan.encoded), bytes(plan.activations), bytes(plan.base), bytes(plan.total));
  if (!fits) {
    out.Say(
        "             more than this machine has left ({}): a smaller batch, accumulation, fewer "
        "workers or a smaller model",
        bytes(available));
  }
  out.Say("per round    {} up, {} down, {} tokens", bytes(plan.bytes_up_per_round),
          bytes(plan.bytes_down_per_round), HumanCount(plan.tokens_per_round));
  if (input.tokens_per_second > 0) {
    out.Say("speed        {:.0f} tokens/s a worker, {} a round", input.tokens_per_second,
            HumanSeconds(plan.seconds_per_round));
  } else if (options.measure && !fits) {
    out.Say("speed        not measured: it does not fit into the memory of this machine");
  }
  if (plan.eta_s > 0)
    out.Say("whole run    {} rounds, {}", run.spec.sync.rounds, HumanSeconds(plan.eta_s));
  return {};
}

}  // namespace loom::app
