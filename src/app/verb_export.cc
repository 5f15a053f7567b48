// loom export: a model as a Hugging Face folder.
#include <fmt/core.h>

#include <memory>
#include <optional>
#include <span>

#include "app/model_source.h"
#include "app/output.h"
#include "app/verbs.h"
#include "base/human.h"
#include "train/hf_folder.h"

namespace loom::app {
namespace {

struct Options {
  std::string model;
  std::string out;
  std::string dtype = "keep";
  std::uint64_t shard_bytes = 5'000'000'000;
  bool adapter = false;
  std::string base;
  std::string merge;
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

void Told(const Options& options, std::uint64_t parameters, const std::string& of_round,
          const std::string& next) {
  Output out(options.json);
  out.Event({{"export_dir", json::Value(options.out)}, {"parameters", json::Value(parameters)}});
  if (options.json) return;
  out.Say("wrote {} ({} parameters{}){}", options.out, HumanCount(parameters), of_round,
          next.empty() ? "" : "\nnext: " + next);
}

std::string OfRound(const OpenedModel& model) {
  return model.round ? fmt::format(", the state after round {}", *model.round) : "";
}

/// The additions of a run that trains LoRA, in PEFT's format.
Status ExportAdapterOf(const Options& options, tensor::DType dtype) {
  LOOM_ASSIGN(const OpenedModel model, OpenModel(options.model, "cpu", 1));
  if (!model.adapter) {
    return MakeError(Code::kInvalid, fmt::format("{} trains no adapter", options.model),
                     "runs with lora_rank below [tune] do; leave --adapter out for a whole model");
  }
  const train::Adapter& adapter = *model.adapter;
  LOOM_RETURN_IF_ERROR(train::ExportAdapter(
      options.out, {adapter.config, adapter.grid, adapter.weights.span(), options.base, dtype}));
  Told(options, adapter.grid.num_elements(), OfRound(model), "");
  return {};
}

Status WriteModel(const Options& options, std::optional<tensor::DType> dtype,
                  const model::ModelConfig& config, std::span<const tensor::TensorView> tensors,
                  const train::HfTexts& texts) {
  return train::ExportHfFolder(options.out, {.config = config,
                                             .tensors = tensors,
                                             .texts = texts,
                                             .dtype = dtype,
                                             .shard_bytes = options.shard_bytes});
}

/// A folder with an adapter added into its weights.
Status ExportMerged(const Options& options, std::optional<tensor::DType> dtype) {
  LOOM_ASSIGN(train::HfModel base, train::ImportHfFolder(options.model));
  LOOM_ASSIGN(const train::Adapter adapter, train::ReadAdapter(options.merge, base.config));
  LOOM_RETURN_IF_ERROR(train::MergeAdapter(adapter.config, adapter.grid, adapter.weights.span(),
                                           base.weights.span()));
  const auto views = train::WeightViews(base.grid, base.weights.span());
  LOOM_RETURN_IF_ERROR(WriteModel(options, dtype, base.config, views, base.texts));
  Told(options, base.grid.num_elements(), "", "loom generate " + ShellWord(options.out));
  return {};
}

Status CheckCombination(const Options& options) {
  if (options.adapter && !options.merge.empty()) {
    return MakeError(Code::kInvalid, "--adapter and --merge stand beside each other",
                     "--adapter writes additions alone, --merge a whole model");
  }
  if (!options.base.empty() && !options.adapter)
    return MakeError(Code::kInvalid, "--base goes with --adapter", "leave it out");
  if (!options.merge.empty() && !IsHfFolder(options.model)) {
    return MakeError(Code::kInvalid,
                     fmt::format("--merge needs a Hugging Face folder, {} is none", options.model),
                     "a run's own additions are merged into its model when it is exported");
  }
  return {};
}

Status Export(const Options& options) {
  LOOM_RETURN_IF_ERROR(CheckCombination(options));
  LOOM_ASSIGN(const auto dtype, ParseType(options.dtype));
  LOOM_RETURN_IF_ERROR(CheckRange("--shard-size", options.shard_bytes, 1, std::uint64_t{1} << 50));
  if (options.adapter) return ExportAdapterOf(options, dtype.value_or(tensor::DType::kF32));
  if (!options.merge.empty()) return ExportMerged(options, dtype);
  std::uint64_t parameters = 0;
  std::string of_round;
  if (IsHfFolder(options.model)) {  // from file to file: it need not fit into memory
    LOOM_ASSIGN(const train::HfFolder folder, train::HfFolder::Open(options.model));
    LOOM_RETURN_IF_ERROR(WriteModel(options, dtype, folder.config, folder.tensors, folder.texts));
    parameters = folder.grid.num_elements();
  } else {
    LOOM_ASSIGN(const OpenedModel model, OpenModel(options.model, "cpu", 1));
    const train::HfModel& source = model.source;
    const auto views = train::WeightViews(source.grid, source.weights.span());
    LOOM_RETURN_IF_ERROR(WriteModel(options, dtype, source.config, views, source.texts));
    parameters = source.grid.num_elements();
    of_round = OfRound(model);
  }
  Told(options, parameters, of_round, "loom generate " + ShellWord(options.out));
  return {};
}

}  // namespace

Verb ExportVerb() {
  auto options = std::make_shared<Options>();
  return {.name = "export",
          .summary = "Write a model as a Hugging Face folder, or a run's LoRA adapter",
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
                args.Flag("--adapter", options->adapter,
                          "Of a run that trains LoRA: the adapter alone, in PEFT's format");
                args.Option("--base", "NAME", options->base,
                            "With --adapter: where its users find the model it belongs to");
                args.Option("--merge", "ADAPTER", options->merge,
                            "Add an adapter of PEFT's into the weights of a Hugging Face folder");
                args.Flag("--json", options->json, "One object: export_dir, parameters");
              },
          .run = [options] { return Export(*options); }};
}

}  // namespace loom::app
