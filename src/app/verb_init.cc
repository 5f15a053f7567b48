// loom init: writes a commented run.toml that runs as it is.
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "app/folders.h"
#include "app/output.h"
#include "app/print.h"
#include "app/verbs.h"
#include "base/file.h"
#include "data/corpus_pass.h"
#include "train/spec.h"

namespace loom::app {
namespace fs = std::filesystem;
namespace {

struct Options {
  std::string preset = "nano";
  std::string sync = "loom-short";
  std::vector<std::string> data;
  std::string tokenizer = "chars";
  std::string chat = "auto";
  bool skip_bad = false;
  std::uint64_t rounds = 20;
  std::uint64_t peers = 1;
  std::string out;
  bool force = false;
  bool keys = false;
};

Status Init(const Options& options) {
  if (options.keys) {
    Print(stdout, "{}", train::RunTomlReference());
    return {};
  }
  if (options.data.empty() || options.out.empty()) {
    return MakeError(Code::kInvalid, "--data and --out are needed",
                     "loom init --preset nano --data book.txt --out run.toml");
  }
  std::error_code ignored;
  data::DataConfig named;
  named.paths = options.data;
  if (const auto files = data::ListCorpus(named); !files) {
    return Error(files.error()).Context("--data");
  }
  if (!options.force && fs::exists(options.out, ignored)) {
    return MakeError(Code::kConflict, fmt::format("{} exists", options.out),
                     "choose another --out, or overwrite it with --force");
  }
  train::RunFile run = train::DefaultRun();
  LOOM_RETURN_IF_ERROR(train::ApplyModelPreset(options.preset, run));
  LOOM_RETURN_IF_ERROR(train::ApplySyncPreset(options.sync, run));
  run.spec.data.paths = options.data;
  run.spec.data.tokenizer = options.tokenizer;
  run.spec.data.chat = options.chat;
  run.spec.data.skip_bad = options.skip_bad;
  // What cannot be trained on is told now, not at the first start.
  LOOM_RETURN_IF_ERROR(data::RunFirstPass(run.spec.data));
  for (std::string& path : run.spec.data.paths) path = SeenFrom(options.out, path);
  if (options.tokenizer.ends_with(".json"))
    run.spec.data.tokenizer = SeenFrom(options.out, options.tokenizer);
  run.spec.sync.rounds = options.rounds;
  if (options.rounds == 0)  // a run without an end has no schedule that ends
    run.spec.optim.schedule.kind = agreed::ScheduleKind::kConstant;
  LOOM_RETURN_IF_ERROR(CheckRange("--peers", options.peers, 1, 1024));
  if (options.peers > 1 && options.rounds > 0) {
    // The schedule counts the tokens of everybody: with N peers the run uses N times as many.
    agreed::ScheduleConfig& schedule = run.spec.optim.schedule;
    schedule.total_tokens = options.peers * options.rounds * run.spec.sync.inner_steps *
                            run.spec.sync.batch * run.spec.model.context;
    schedule.warmup_tokens =
        std::min(schedule.warmup_tokens * options.peers, schedule.total_tokens / 10);
  }
  const std::string text = train::WriteRun(run);
  LOOM_RETURN_IF_ERROR(train::ParseRun(text, options.out));
  LOOM_RETURN_IF_ERROR(WriteFileAtomic(options.out, AsBytes(text)));
  Print(stdout,
        "wrote {}\nnext: loom train {} --dry-run    then: loom train {}    or share it: loom host "
        "{}\n",
        options.out, options.out, options.out, options.out);
  return {};
}

}  // namespace

Verb InitVerb() {
  auto options = std::make_shared<Options>();
  return {.name = "init",
          .summary = "Write a commented run.toml, the settings of a run",
          .example = "loom init --preset nano --data book.txt --out run.toml",
          .declare =
              [options](Args& args) {
                args.Option("--preset", "NAME", options->preset,
                            "Model sizes: nano, loom-10m, loom-125m, ...");
                args.Option("--sync", "NAME", options->sync,
                            "How peers train together: loom-short, diloco, ...");
                args.Option("--data", "PATH", options->data,
                            "Text or jsonl file, a folder or a pattern of these; repeatable");
                args.Option("--tokenizer", "KIND", options->tokenizer,
                            "chars, bytes, or a tokenizer.json");
                args.Option("--chat", "NAME", options->chat,
                            "Template of conversations: chatml, llama3, smollm, auto");
                args.Flag("--skip-bad", options->skip_bad,
                          "Leave out lines that cannot be read, instead of stopping");
                args.Option("--rounds", "N", options->rounds,
                            "Rounds of the run; 0 = until loom finish");
                args.Option("--peers", "N", options->peers,
                            "Peers expected on average; sizes the learning rate's schedule");
                args.Option("--out", "FILE", options->out, "File to write");
                args.Flag("--force", options->force, "Overwrite the file");
                args.Flag("--keys", options->keys,
                          "Print the reference of all keys instead (Markdown)");
              },
          .run = [options] { return Init(*options); }};
}

}  // namespace loom::app
