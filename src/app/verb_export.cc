// loom export: a model as a Hugging Face folder.
#include <fmt/core.h>

#include <memory>
#include <optional>
#include <span>

#include "app/model_source.h"
#include "app/output.h"
#include "app/verbs.h"
#include "train/hf_folder.h"

namespace loom::app {
namespace {

struct Options {
  std::string model;
  std::string out;
  std::string dtype = "keep";
  std::uint64_t shard_bytes = 5'000'000'000;
  bool json = false;
};

Result<std::optional<tensor::DType>> ParseType(const std::string& name) {
  if (name == "keep") return std::optional<tensor::DType>();
  if (name == "fp32") return std::optional(tensor::DType::kF32);
  if (name == "bf16") return std::optional(tensor::DType::kBF16);
  if (name == "fp16") return std::optional(tensor::DType::kF16);
  return MakeError(Code::kInvalid, fmt::format("--dtype '{:.40}' is not known", name),
                   "it is keep, fp32, bf16 or fp16");
}

Status Export(const Options& options) {
  LOOM_ASSIGN(const auto dtype, ParseType(options.dtype));
  LOOM_RETURN_IF_ERROR(CheckRange("--shard-size", options.shard_bytes, 1, std::uint64_t{1} << 50));
  const auto write = [&](const model::ModelConfig& config,
                         std::span<const tensor::TensorView> tensors, const train::HfTexts& texts) {
    return train::ExportHfFolder(options.out, {.config = config,
                                               .tensors = tensors,
                                               .texts = texts,
                                               .dtype = dtype,
                                               .shard_bytes = options.shard_bytes});
  };
  std::uint64_t parameters = 0;
  std::string of_round;
  if (IsHfFolder(options.model)) {  // from file to file: it need not fit into memory
    LOOM_ASSIGN(const train::HfFolder folder, train::HfFolder::Open(options.model));
    LOOM_RETURN_IF_ERROR(write(folder.config, folder.tensors, folder.texts));
    parameters = folder.grid.num_elements();
  } else {
    LOOM_ASSIGN(const OpenedModel model, OpenModel(options.model, "cpu", 1));
    const train::HfModel& source = model.source;
    const auto views = train::WeightViews(source.grid, source.weights.span());
    LOOM_RETURN_IF_ERROR(write(source.config, views, source.texts));
    parameters = source.grid.num_elements();
    if (model.round) of_round = fmt::format(", the state after round {}", *model.round);
  }
  Output out(options.json);
  out.Event({{"export_dir", json::Value(options.out)}, {"parameters", json::Value(parameters)}});
  if (!options.json) {
    out.Say("wrote {} ({} parameters{})\nnext: loom generate {} --prompt \"It was\"", options.out,
            HumanCount(parameters), of_round, options.out);
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
                args.Option("--dtype", "NAME", options->dtype,
                            "fp32, bf16, fp16, or keep: as the model is");
                args.Size("--shard-size", options->shard_bytes,
                          "Largest weights file in bytes, also as 5G; more make several");
                args.Flag("--json", options->json, "One object: export_dir, parameters");
              },
          .run = [options] { return Export(*options); }};
}

}  // namespace loom::app
