// loom export: a model as a Hugging Face folder.
#include <fmt/core.h>

#include <memory>

#include "app/model_source.h"
#include "app/output.h"
#include "app/verbs.h"

namespace loom::app {
namespace {

struct Options {
  std::string model;
  std::string out;
  bool json = false;
};

Status Export(const Options& options) {
  LOOM_ASSIGN(OpenedModel model, OpenModel(options.model, "cpu", 1));
  const train::HfModel& source = model.source;
  LOOM_ASSIGN(const data::Tokenizer* tokenizer, model.Tokenizer());
  LOOM_RETURN_IF_ERROR(train::ExportHfFolder(options.out, source.config, source.grid,
                                             source.weights.span(), *tokenizer));
  Output out(options.json);
  out.Event({{"export_dir", json::Value(options.out)},
             {"parameters", json::Value(source.grid.num_elements())}});
  if (!options.json) {
    out.Say("wrote {} ({} parameters{})\nnext: loom generate {} --prompt \"It was\"", options.out,
            HumanCount(source.grid.num_elements()),
            model.round ? fmt::format(", the state after round {}", *model.round) : "",
            options.out);
  }
  return {};
}

}  // namespace

Verb ExportVerb() {
  auto options = std::make_shared<Options>();
  return {.name = "export",
          .summary = "Write a model as a Hugging Face folder",
          .example = "loom export loom-run-1 --out model",
          .declare =
              [options](Args& args) {
                args.Positional("model", options->model,
                                "A peer's folder or a Hugging Face folder");
                args.Option("--out", "DIR", options->out, "Folder to write", Need::kRequired);
                args.Flag("--json", options->json, "One object: export_dir, parameters");
              },
          .run = [options] { return Export(*options); }};
}

}  // namespace loom::app
