// loom data check: what a model will see of a corpus, before anything is trained on it.
#include <fmt/core.h>

#include <memory>

#include "app/output.h"
#include "app/print.h"
#include "app/verbs.h"
#include "data/dataset.h"
#include "train/spec.h"

namespace loom::app {
namespace {

struct Options {
  std::vector<std::string> paths;
  std::string tokenizer;
  std::string chat;
  std::uint64_t context = 64;
  std::uint64_t samples = 3;
  bool json = false;
};

Status Check(const Options& options) {
  data::DataConfig config;
  config.tokenizer = "chars";
  std::uint64_t context = options.context;
  if (options.paths.size() == 1 && options.paths[0].ends_with(".toml")) {
    LOOM_ASSIGN(const train::RunFile run, train::LoadRun(options.paths[0]));
    config = run.spec.data;
    context = run.spec.model.context;
  } else {
    config.paths = options.paths;
  }
  if (!options.tokenizer.empty()) config.tokenizer = options.tokenizer;
  if (!options.chat.empty()) config.chat = options.chat;
  if (context < 1 || context > 1U << 20 || options.samples > 1000) {
    return MakeError(Code::kInvalid,
                     fmt::format("--context {} --samples {}: the limits are 1 .. 1048576 and 1000",
                                 context, options.samples));
  }
  Output out(options.json);
  const auto progress = [&](std::string_view doing, std::uint64_t done, std::uint64_t total) {
    if (total > 0) out.Progress(fmt::format("{}: {} %", doing, 100 * done / total));
    return Status();
  };
  LOOM_ASSIGN(const data::DataReport report,
              data::CheckData(config, static_cast<std::uint32_t>(context),
                              static_cast<std::uint32_t>(options.samples), {.progress = progress}));
  Print(stdout, "{}\n", options.json ? report.ToJson() : report.ToText());
  return {};
}

}  // namespace

Verb DataCheckVerb() {
  auto options = std::make_shared<Options>();
  return {.name = "data check",
          .summary = "Show what a model will see of a corpus: samples, counts, bad lines",
          .example = "loom data check book.txt --json",
          .declare =
              [options](Args& args) {
                args.Positional(
                    "paths", options->paths,
                    "Text or jsonl files, folders or patterns of these, or one run.toml");
                args.Option("--tokenizer", "KIND", options->tokenizer,
                            "chars, bytes, or a tokenizer.json");
                args.Option("--chat", "NAME", options->chat,
                            "Template of conversations: chatml, llama3, smollm, auto");
                args.Option("--context", "TOKENS", options->context, "Tokens of a sample");
                args.Option("--samples", "N", options->samples, "Decoded samples to show");
                args.Flag("--json", options->json, "One JSON object on stdout");
              },
          .run = [options] { return Check(*options); }};
}

}  // namespace loom::app
