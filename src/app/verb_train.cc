// loom train: one machine, a swarm of one through the same objects as many; the folder goes on
// where it was, bit for bit. With --one-process it is the plain synchronous loop, the yardstick
// that a swarm is compared with; --dry-run prints the plan and trains nothing.
#include <fmt/core.h>

#include <algorithm>
#include <memory>

#include "app/folders.h"
#include "app/interrupt.h"
#include "app/model_source.h"
#include "app/one_process.h"
#include "app/output.h"
#include "app/passive_wait.h"
#include "app/peer_folder_source.h"
#include "app/peer_process.h"
#include "app/plan_output.h"
#include "app/print.h"
#include "app/verbs.h"
#include "data/dataset.h"
#include "train/hf_folder.h"
#include "train/spec.h"
#include "train/start_model.h"

namespace loom::app {
namespace {

struct Options {
  std::string run_toml;
  std::string dir;
  bool dry_run = false;
  bool one_process = false;
  std::uint64_t workers = 1;
  std::uint64_t peers = 1;
  bool json = false;
};

/// What stands beside the weights: of a model that the run starts from, what stood there.
Result<train::HfTexts> TextsOf(const train::RunFile& run, const data::Tokenizer& tokenizer) {
  train::HfTexts texts;
  if (!run.model_from.empty()) {
    LOOM_ASSIGN(const train::HfFolder folder, train::HfFolder::Open(run.model_from));
    texts = folder.texts;
  }
  texts.files.insert_or_assign("tokenizer.json", tokenizer.ToJson());
  return texts;
}

Status TrainHere(const Options& options, train::RunFile run) {
  Output out(options.json);
  const std::atomic<bool>& cut = InterruptFlag();
  const std::string dir =
      ChooseFolder(options.dir.empty() ? run.local.dir : options.dir, options.run_toml);
  if (IsPeerFolder(dir)) {
    return MakeError(Code::kConflict, fmt::format("{} is a peer's folder", dir),
                     "give another --dir; without --one-process loom train goes on with that one");
  }
  LOOM_RETURN_IF_ERROR(MakeFolder(dir));
  LOOM_RETURN_IF_ERROR(ConfigureCompute(run.spec.determinism, run.local));
  LOOM_ASSIGN(const data::DataReport report, data::BuildDataset(run.spec.data, dir + "/data"));
  if (const std::string odd = report.Complaints(); !odd.empty()) out.Say("corpus: {}", odd);
  LOOM_ASSIGN(const data::Dataset dataset, data::OpenDataset(dir + "/data"));
  LOOM_RETURN_IF_ERROR(train::FitTokenizer(run, *dataset.tokenizer));
  out.Say("{} training and {} validation tokens in {}", HumanCount(dataset.train.size()),
          HumanCount(dataset.val.size()), dir);

  OneProcessOptions one{.spec = run.spec,
                        .local = run.local,
                        .workers = static_cast<std::uint32_t>(options.workers),
                        .rounds = run.spec.sync.rounds,
                        .samples = {},
                        .mix = dataset.mix,
                        .from = {run.model_from, run.tune_from},
                        .metrics_path = dir + "/metrics.jsonl"};
  LOOM_ASSIGN(OneProcessResult result, TrainOneProcess(one, dataset.train, cut, out));
  LOOM_ASSIGN(const train::HfTexts texts, TextsOf(run, *dataset.tokenizer));
  model::ModelConfig whole = run.spec.model;
  whole.tuning = {};
  LOOM_ASSIGN(const agreed::TileGrid grid, model::MakeGrid(whole));
  LOOM_ASSIGN(
      const agreed::FlatBuffer network,
      train::WholeNetwork(run.spec.model, result.grid, result.weights.span(), result.frozen));
  const auto views = train::WeightViews(grid, network.span());
  LOOM_RETURN_IF_ERROR(
      train::ExportHfFolder(dir + "/model", {.config = whole, .tensors = views, .texts = texts}));
  double val_loss = 0;
  if (dataset.val.size() >= 2) {
    LOOM_ASSIGN(val_loss, LossOf(run.spec, run.local, result.grid, result.weights.span(),
                                 result.frozen, dataset.val));
  }
  out.Event({{"event", json::Value("done")},
             {"rounds", json::Value(result.rounds)},
             {"tokens", json::Value(result.tokens)},
             {"loss", json::Value(result.train_loss)},
             {"val_loss", json::Value(val_loss)},
             {"seconds", json::Value(result.seconds)},
             {"export_dir", json::Value(dir + "/model")}});
  out.Say(
      "{} after {} rounds and {} tokens: loss {:.3f}, validation {:.3f}\nnext: loom generate "
      "{}",
      result.interrupted ? "stopped" : "done", result.rounds, HumanCount(result.tokens),
      result.train_loss, val_loss, ShellWord(dir + "/model"));
  return {};
}

/// A swarm of one: no port, no invite, the same rounds.
Status TrainAlone(const Options& options, const train::RunFile& run) {
  PeerProcess process;
  process.json = options.json;
  process.node.local = run.local;
  process.node.dir =
      ChooseFolder(options.dir.empty() ? run.local.dir : options.dir, options.run_toml);
  const std::string dir = process.node.dir;
  process.node.final_loss = true;
  process.node.resume_with =
      fmt::format("loom train {} --dir {}", ShellWord(options.run_toml), ShellWord(dir));
  const auto prepare = [&](node::Node& node) -> Status {
    if (!node.has_run()) return node.Host(run, NameOfRun(options.run_toml));
    LOOM_RETURN_IF_ERROR(CheckSameRun(run, node, dir));
    node.RebuildDataFrom(run);
    return {};
  };
  return RunPeer(std::move(process), prepare, {});
}

Status Train(const Options& options) {
  LOOM_ASSIGN(train::RunFile run, LoadRunOf(options.run_toml, options.dir));
  WaitPassively(ComputeThreads(run.spec.determinism, run.local));
  LOOM_RETURN_IF_ERROR(CheckRange("--workers", options.workers, 1, 1024));
  LOOM_RETURN_IF_ERROR(CheckRange("--peers", options.peers, 1, 1024));
  if (options.workers != 1 && !options.one_process) {
    return MakeError(Code::kInvalid,
                     fmt::format("--workers {} goes with --one-process", options.workers),
                     "the workers of a run are [sync] workers in run.toml");
  }
  if (options.dry_run) {
    const PlanOptions plan{.peers = static_cast<std::uint32_t>(options.peers), .measure = true};
    return PrintPlan(run, plan, options.json);
  }
  if (options.one_process && run.spec.sync.rounds == 0) {
    return MakeError(Code::kInvalid,
                     fmt::format("{}: sync.rounds = 0 has no end in one process", options.run_toml),
                     "set rounds below [sync]");
  }
  return options.one_process ? TrainHere(options, std::move(run)) : TrainAlone(options, run);
}

}  // namespace

Verb TrainVerb() {
  auto options = std::make_shared<Options>();
  return {.name = "train",
          .summary = "Train on this machine alone",
          .example = "loom train run.toml --dir here --dry-run",
          .declare =
              [options](Args& args) {
                args.Positional("run.toml", options->run_toml,
                                "Settings of the run (loom init writes one)");
                args.Option("--dir", "DIR", options->dir,
                            "Folder of the run; default: the first free ./loom-RUN-k");
                args.Flag("--dry-run", options->dry_run,
                          "Print memory, traffic and time; train nothing");
                args.Option("--peers", "N", options->peers, "How many peers --dry-run counts with");
                args.Flag("--one-process", options->one_process,
                          "Plain synchronous training, one optimizer step on the mean gradient");
                args.Option("--workers", "M", options->workers, "Logical workers of --one-process");
                args.Flag("--json", options->json, "NDJSON events on stdout");
              },
          .run = [options] { return Train(*options); }};
}

}  // namespace loom::app
