// loom import: what a published model's folder holds and whether a run can start from it; with
// --out a run.toml that does. Only pages of the mapped weights are read, whatever the size.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <optional>
#include <ranges>

#include "app/folders.h"
#include "app/import_adapter.h"
#include "app/model_source.h"
#include "app/output.h"
#include "app/verbs.h"
#include "base/file.h"
#include "base/toml.h"
#include "data/chat.h"
#include "data/corpus_pass.h"
#include "model/family.h"
#include "train/hf_adapter.h"
#include "train/hf_folder.h"
#include "train/start_model.h"

namespace loom::app {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t kFirstContext = 512;  ///< of a run.toml: fits most machines

struct Options {
  std::string folder;
  std::string out;
  std::vector<std::string> data;
  bool json = false;
};

/// What the folder says; `refused` is empty when a run can start from it.
struct Findings {
  train::HfFolder folder;
  std::unique_ptr<data::Tokenizer> tokenizer;  ///< null when it is refused
  std::string_view chat;                       ///< the template of its special tokens; "": of none
  std::vector<Error> refused;
};

Result<Findings> Look(const std::string& path) {
  LOOM_ASSIGN(train::HfFolder folder, train::HfFolder::Open(path));
  Findings found{std::move(folder), nullptr, {}, {}};
  if (auto tokenizer = found.folder.ReadTokenizer()) {
    found.tokenizer = std::move(*tokenizer);
    if (const auto chat = data::RecogniseChat(*found.tokenizer))
      found.chat = data::ChatTemplateName(*chat);
  } else {
    found.refused.push_back(std::move(tokenizer).error());
  }
  if (Status values = found.folder.CheckValues(); !values)
    found.refused.push_back(std::move(values).error());
  return found;
}

std::string_view TypeName(tensor::DType dtype) {
  if (dtype == tensor::DType::kBF16) return "bf16";
  return dtype == tensor::DType::kF16 ? "fp16" : "fp32";
}

/// The formats of the weights, that of most numbers first, and the bytes of all.
std::pair<std::string, std::uint64_t> TypesOf(const train::HfFolder& folder) {
  const tensor::DType most = train::MostCommonType(folder.tensors);
  std::string names(TypeName(most));
  std::uint64_t bytes = 0;
  for (const tensor::TensorView& view : folder.tensors) {
    bytes += view.data.size();
    const std::string_view name = TypeName(view.dtype);
    if (names.find(name) == std::string::npos) names += fmt::format(", {}", name);
  }
  return {names, bytes};
}

/// The text of the token that ends a document, where the tokenizer reads it as that one token.
std::optional<std::string> EndOfText(const Findings& found) {
  const auto& ids = found.folder.texts.token_ids;
  const auto eos = std::ranges::find(ids, "eos_token_id", &json::Member::first);
  if (eos == ids.end()) return std::nullopt;
  const json::Value* one = &eos->second;
  if (one->AsArray() != nullptr && !one->AsArray()->empty()) one = &one->AsArray()->front();
  if (one->AsUnsigned() == nullptr) return std::nullopt;
  const std::array id{static_cast<std::int32_t>(*one->AsUnsigned())};
  std::string text = found.tokenizer->Decode(id);
  if (found.tokenizer->SpecialId(text) != id[0]) return std::nullopt;
  return text;
}

void Explain(const std::string& path, const Findings& found, Output& out) {
  const train::HfFolder& folder = found.folder;
  const model::ModelConfig& config = folder.config;
  const auto [types, bytes] = TypesOf(folder);
  out.Say("{}: {}, {} parameters in {} ({})", path, model::Traits(config.family).name,
          HumanCount(folder.grid.num_elements()), types, HumanBytes(static_cast<double>(bytes)));
  out.Say("sizes      {} layers of width {}, {} heads, {}", config.layers, config.width,
          config.heads, config.tie_embeddings ? "tied embeddings" : "a head of its own");
  out.Say("context    up to {} tokens", config.context);
  if (found.tokenizer) {
    out.Say("tokenizer  {}, {} ids; the model has {}",
            data::TokenizerKindName(found.tokenizer->kind()),
            HumanCount(found.tokenizer->vocab_size()), HumanCount(config.vocab));
    out.Say("messages   {}", found.chat.empty()
                                 ? "of no template that loom writes: name one with data.chat"
                                 : fmt::format("become text as {} writes it", found.chat));
  }
  out.Say("kept       {}", fmt::join(folder.texts.files | std::views::keys, ", "));
  for (const Error& error : found.refused) out.Say("refused    {}", error.ToString());
}

json::Object ToJson(const std::string& path, const Findings& found) {
  const train::HfFolder& folder = found.folder;
  const model::ModelConfig& config = folder.config;
  const auto [types, bytes] = TypesOf(folder);
  json::Array kept, refused;
  for (const auto& [name, text] : folder.texts.files) kept.emplace_back(name);
  for (const Error& error : found.refused) {
    refused.emplace_back(json::Object{
        {"code", CodeName(error.code)}, {"message", error.message}, {"hint", error.hint}});
  }
  json::Object out{{"folder", path},
                   {"family", model::Traits(config.family).name},
                   {"parameters", folder.grid.num_elements()},
                   {"dtype", types},
                   {"bytes", bytes},
                   {"tied", config.tie_embeddings},
                   {"context", config.context},
                   {"vocab", config.vocab}};
  if (found.tokenizer) {
    out.emplace_back("tokenizer", data::TokenizerKindName(found.tokenizer->kind()));
    out.emplace_back("tokenizer_vocab", found.tokenizer->vocab_size());
    out.emplace_back("chat", found.chat);
  }
  out.emplace_back("files", std::move(kept));
  out.emplace_back("refused", std::move(refused));
  return out;
}

std::string RunToml(const Options& options, const Findings& found, const std::string& path) {
  const model::ModelConfig& config = found.folder.config;
  std::string paths;
  for (const std::string& data : options.data)
    paths += fmt::format("{}{}", paths.empty() ? "" : ", ", TomlQuote(SeenFrom(path, data)));
  std::string out = fmt::format(
      "# A run that starts from a published model: {}, {} parameters. Paths are meant from this\n"
      "# file's folder. `loom init --keys` explains every key; those not written here have their\n"
      "# defaults.\n\n"
      "[model]\n"
      "# Weights, tokenizer and all sizes are this model's. Keep the folder until the run has "
      "begun.\n"
      "from = {}\n"
      "# Tokens of a sample, up to {}. More takes more memory: loom train {} --dry-run\n"
      "context = {}\n\n"
      "[data]\n"
      "# {}Text, jsonl or chat files, folders or patterns (docs/data.md).\n"
      "paths = [{}]\n",
      model::Traits(config.family).name, HumanCount(found.folder.grid.num_elements()),
      TomlQuote(SeenFrom(path, options.folder)), config.context, path,
      std::min(config.context, kFirstContext), options.data.empty() ? "EDIT THIS. " : "", paths);
  if (const auto end = EndOfText(found)) {
    out += fmt::format("# Between two documents: the token that ends one.\nseparator = {}\n",
                       TomlQuote(*end));
  }
  return out +
         "\n# Trains low-rank additions (LoRA) alone, new ones or an adapter further "
         "(docs/models.md).\n"
         "# [tune]\n"
         "# lora_rank = 8\n"
         "# or: from = \"ADAPTER\"\n"
         "\n[optim]\n"
         "# Small steps, so that what the model knows stays.\n"
         "lr = 5e-5\n"
         "final_lr = 5e-6\n"
         "batch = 4\n\n"
         "[sync]\n"
         "# Rounds of 30 steps on every peer; more text wants more rounds.\n"
         "rounds = 20\n";
}

/// Writes run.toml into the folder --out; nothing that exists is touched.
Status WriteRunToml(const Options& options, const Findings& found, const std::string& path) {
  std::error_code error;
  if (fs::exists(fs::symlink_status(path, error))) {
    return MakeError(Code::kConflict, fmt::format("{} exists", path),
                     "choose another --out, or remove the file");
  }
  if (!options.data.empty()) {
    data::DataConfig named;
    named.paths = options.data;
    if (const auto files = data::ListCorpus(named); !files)
      return Error(files.error()).Context("--data");
  }
  LOOM_RETURN_IF_ERROR(MakeFolder(options.out));
  const std::string text = RunToml(options, found, path);
  train::OpenStart open;
  open.model = [&](const std::string&, const train::LocalConfig&) {
    return train::OpenStartModel(options.folder);
  };
  LOOM_RETURN_IF_ERROR(train::ParseRun(text, path, open));
  return WriteFileAtomic(path, AsBytes(text));
}

Status Import(const Options& options) {
  Output out(options.json);
  if (options.out.empty() && !options.data.empty())
    return MakeError(Code::kInvalid, "--data goes with --out", "name a folder with --out");
  if (!IsHfFolder(options.folder) && train::IsAdapterFolder(options.folder)) {
    if (options.out.empty()) return ImportAdapter(options.folder, options.json);
    return MakeError(
        Code::kInvalid,
        fmt::format("--out goes with a model's folder, {} is an adapter's", options.folder),
        "leave it out to see what the adapter is and how a run trains it further");
  }
  LOOM_ASSIGN(const Findings found, Look(options.folder));
  const bool writes = !options.out.empty() && found.refused.empty();
  const std::string run_toml = writes ? InFolder(options.out, "run.toml") : "";
  if (writes) LOOM_RETURN_IF_ERROR(WriteRunToml(options, found, run_toml));
  Explain(options.folder, found, out);
  json::Object event = ToJson(options.folder, found);
  if (writes) event.emplace_back("run_toml", run_toml);
  out.Event(event);
  if (!found.refused.empty()) return found.refused.front();
  if (!writes) {
    out.Say("next: loom import {} --out DIR writes a run.toml that starts from it", options.folder);
  } else if (options.data.empty()) {
    out.Say("wrote {}\nnext: set data.paths in it, then: loom train {}", run_toml, run_toml);
  } else {
    out.Say("wrote {}\nnext: loom train {}    or share it: loom host {}", run_toml, run_toml,
            run_toml);
  }
  return {};
}

}  // namespace

Verb ImportVerb() {
  auto options = std::make_shared<Options>();
  return {.name = "import",
          .summary = "Check a published model, and write a run.toml that starts from it",
          .example = "loom import SmolLM-135M --data my-texts/ --out tuned",
          .declare =
              [options](Args& args) {
                args.Positional("folder", options->folder,
                                "Model folder in Hugging Face's format (config.json, "
                                "model.safetensors, tokenizer.json), or an adapter's of PEFT's");
                args.Option("--out", "DIR", options->out, "Folder for the run.toml");
                args.Option("--data", "PATH", options->data,
                            "Text or jsonl file, a folder or a pattern of these; repeatable");
                args.Flag("--json", options->json, "One object: what the folder holds");
              },
          .run = [options] { return Import(*options); }};
}

}  // namespace loom::app
