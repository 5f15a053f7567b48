// loom bench: what this machine does in a second, and what a round of a run would spend here on
// work, encoding, hashes, the disk and the link; the longest of them is what a faster part mends.
#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <thread>

#include "app/measure.h"
#include "app/model_source.h"
#include "app/output.h"
#include "app/passive_wait.h"
#include "app/verbs.h"
#include "data/dataset.h"
#include "train/plan.h"
#include "train/start_model.h"

namespace loom::app {
namespace {

struct Options {
  std::string run_toml;
  std::string dir = ".";
  std::uint64_t peers = 2;
  bool json = false;
};

struct Rate {
  std::uint32_t threads = 0;
  double tokens_per_second = 0;
};

struct Figures {
  std::vector<Rate> training;  ///< the first with the run's own threads
  CodecSpeed int8, bf16;
  double hash = 0;  ///< bytes a second, as the next
  double disk = 0;
};

Result<train::RunFile> RunToMeasure(const std::string& path) {
  if (path.empty()) return train::ParseRun("[data]\npaths = [\".\"]\n", "the default run");
  LOOM_ASSIGN(train::RunFile run, train::LoadRun(path));
  WaitPassively(std::thread::hardware_concurrency());
  LOOM_ASSIGN(const auto tokenizer, data::MakeTokenizer(run.spec.data));
  LOOM_RETURN_IF_ERROR(train::FitTokenizer(run, *tokenizer));
  return run;
}

Result<Figures> Measure(const train::RunFile& run, const std::string& dir) {
  Figures figures;
  LOOM_ASSIGN(figures.disk, MeasureDisk(dir));
  LOOM_ASSIGN(figures.hash, MeasureHash());
  LOOM_ASSIGN(figures.int8, MeasureCodec(codec::CodecKind::kInt8));
  LOOM_ASSIGN(figures.bf16, MeasureCodec(codec::CodecKind::kBf16));
  const std::uint32_t agreed = run.spec.determinism.threads;
  const std::uint32_t own = run.local.threads != 0 ? run.local.threads : DefaultThreads();
  std::vector<std::uint32_t> tried{agreed != 0 ? agreed : own};
  if (agreed == 0) {
    for (const std::uint32_t n : {1U, std::max(1U, std::thread::hardware_concurrency())}) {
      if (std::find(tried.begin(), tried.end(), n) == tried.end()) tried.push_back(n);
    }
  }
  for (const std::uint32_t threads : tried) {
    train::LocalConfig local = run.local;
    local.threads = threads;
    LOOM_ASSIGN(const double rate, MeasureTraining(run.spec, local));
    figures.training.push_back({threads, rate});
  }
  return figures;
}

/// Seconds of a round of the run by what they are spent on, most first.
std::vector<std::pair<std::string, double>> RoundOf(const train::RunPlan& plan,
                                                    const train::RunFile& run,
                                                    const Figures& figures, std::uint64_t peers) {
  const double values = static_cast<double>(plan.parameters) * sizeof(float);
  const double tokens = static_cast<double>(plan.tokens_per_round) / static_cast<double>(peers);
  std::vector<std::pair<std::string, double>> spent{
      {"work", tokens / figures.training.front().tokens_per_second},
      {"hashes", (values + 2 * static_cast<double>(plan.payload)) / figures.hash},
      {"disk", static_cast<double>(plan.payload) / figures.disk}};
  if (run.spec.sync.codec == "int8" || run.spec.sync.codec == "bf16") {
    const CodecSpeed& speed = run.spec.sync.codec == "int8" ? figures.int8 : figures.bf16;
    spent.emplace_back("codec", values / speed.encode + 2 * values / speed.decode);
  }
  double link = 0;
  if (run.local.max_up != 0) {
    link += static_cast<double>(plan.bytes_up_per_round) / static_cast<double>(run.local.max_up);
  }
  if (run.local.max_down != 0) {
    link +=
        static_cast<double>(plan.bytes_down_per_round) / static_cast<double>(run.local.max_down);
  }
  if (link > 0) spent.emplace_back("link", link);
  std::sort(spent.begin(), spent.end(),
            [](const auto& a, const auto& b) { return a.second > b.second; });
  return spent;
}

Status Bench(const Options& options) {
  LOOM_RETURN_IF_ERROR(CheckRange("--peers", options.peers, 1, 1024));
  LOOM_ASSIGN(const train::RunFile run, RunToMeasure(options.run_toml));
  train::PlanInput input{.peers = static_cast<std::uint32_t>(options.peers)};
  LOOM_ASSIGN(const train::RunPlan plan, train::PlanRun(run.spec, run.local, input));
  LOOM_ASSIGN(const Figures figures, Measure(run, options.dir));
  const auto spent = RoundOf(plan, run, figures, options.peers);

  Output out(options.json);
  json::Array training;
  for (const Rate& rate : figures.training) {
    const json::Object row{{"threads", json::Value(std::uint64_t{rate.threads})},
                           {"tokens_per_second", json::Value(rate.tokens_per_second)}};
    training.emplace_back(row);
    out.Say("training  {} thread{}: {:.0f} tokens/s", rate.threads, rate.threads == 1 ? "" : "s",
            rate.tokens_per_second);
  }
  const auto speed = [](double bytes) { return HumanBytes(bytes) + "/s"; };
  out.Say("int8      {} in, {} out", speed(figures.int8.encode), speed(figures.int8.decode));
  out.Say("bf16      {} in, {} out", speed(figures.bf16.encode), speed(figures.bf16.decode));
  out.Say("sha-256   {}", speed(figures.hash));
  out.Say("disk      {} synced in {}", speed(figures.disk), options.dir);
  json::Object round;
  std::string line;
  for (const auto& [what, seconds] : spent) {
    round.emplace_back(what, json::Value(seconds));
    line += fmt::format("{}{} {:.3f} s", line.empty() ? "" : ", ", what, seconds);
  }
  out.Say("a round of {} peers with {} parameters: {}", options.peers, HumanCount(plan.parameters),
          line);
  if (run.local.max_up == 0 && run.local.max_down == 0 && options.peers > 1) {
    out.Say("          {} up and {} down go over the link; its speed is not measured here",
            HumanBytes(static_cast<double>(plan.bytes_up_per_round)),
            HumanBytes(static_cast<double>(plan.bytes_down_per_round)));
  }
  out.Event({{"training", json::Value(std::move(training))},
             {"int8_encode", json::Value(figures.int8.encode)},
             {"int8_decode", json::Value(figures.int8.decode)},
             {"bf16_encode", json::Value(figures.bf16.encode)},
             {"bf16_decode", json::Value(figures.bf16.decode)},
             {"sha256", json::Value(figures.hash)},
             {"disk", json::Value(figures.disk)},
             {"round", json::Value(std::move(round))}});
  return {};
}

}  // namespace

Verb BenchVerb() {
  auto options = std::make_shared<Options>();
  return {.name = "bench",
          .summary = "Measure what this machine does for a run",
          .example = "loom bench run.toml --peers 4",
          .declare =
              [options](Args& args) {
                args.Positional("run.toml", options->run_toml,
                                "Settings of the run; without it the default model",
                                Need::kOptional);
                args.Option("--dir", "DIR", options->dir, "Folder on the disk to measure");
                args.Option("--peers", "N", options->peers, "Peers that the round is shared by");
                args.Flag("--json", options->json,
                          "One object: tokens and bytes a second, seconds of a round");
              },
          .run = [options] { return Bench(*options); }};
}

}  // namespace loom::app
