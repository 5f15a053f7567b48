#include "train/start_model.h"

#include <fmt/format.h>

#include <array>
#include <filesystem>

#include "base/file.h"
#include "train/hf_adapter.h"
#include "train/hf_folder.h"
#include "train/hf_texts.h"
#include "train/spec_keys.h"

namespace loom::train {
namespace {

Result<std::unique_ptr<data::Tokenizer>> ReadTokenizer(const std::string& path) {
  LOOM_ASSIGN(const std::string json, ReadFile(path, data::Tokenizer::kMaxJsonBytes));
  auto tokenizer = data::Tokenizer::FromJson(AsBytes(json));
  if (!tokenizer) return std::move(tokenizer).error().Context(path);
  return tokenizer;
}

/// kInvalid at the first id that means something else.
Status CheckSameIds(const data::Tokenizer& own, const data::Tokenizer& given) {
  const std::string hint =
      "leave data.tokenizer out: the model's own is taken, and no other fits its weights";
  if (given.vocab_size() != own.vocab_size()) {
    return MakeError(Code::kInvalid,
                     fmt::format("data.tokenizer has {} ids, the tokenizer of model.from {}",
                                 given.vocab_size(), own.vocab_size()),
                     hint);
  }
  for (std::uint32_t i = 0; i < own.vocab_size(); ++i) {
    const std::array id{static_cast<std::int32_t>(i)};
    if (given.Decode(id) == own.Decode(id)) continue;
    return MakeError(
        Code::kInvalid,
        fmt::format("data.tokenizer has another text for id {} than the tokenizer of model.from",
                    i),
        hint);
  }
  return {};
}

/// "model.layers is 4, the run has 6" of the first key that differs.
std::string FirstDifference(const model::ModelConfig& found, const model::ModelConfig& wanted) {
  RunFile a, b;
  a.spec.model = found;
  b.spec.model = wanted;
  for (const Key& key : Keys()) {
    if (key.table != "model" || FormatValue(key, a) == FormatValue(key, b)) continue;
    return fmt::format("model.{} is {}, the run has {}", key.name, FormatValue(key, a),
                       FormatValue(key, b));
  }
  return "it is another model";
}

Status ReadAdapterWeights(const std::string& folder, const model::ModelConfig& config,
                          const agreed::TileGrid& grid, std::span<float> weights) {
  LOOM_ASSIGN(const AdapterFolder opened, AdapterFolder::Open(folder));
  LOOM_ASSIGN(const model::ModelConfig found, opened.For(config));
  const bool same = found.tuning.lora_rank == config.tuning.lora_rank &&
                    found.tuning.lora_alpha == config.tuning.lora_alpha &&
                    model::ParameterShapes(found) == grid.tensors();
  if (!same) {
    return MakeError(Code::kInvalid,
                     fmt::format("adapter '{}' has other additions than the run trains", folder),
                     "the folder was changed since the run began");
  }
  return opened.ReadWeights(grid, weights);
}

}  // namespace

Result<StartModel> OpenStartModel(const std::string& folder) {
  const auto open = [&]() -> Result<StartModel> {
    LOOM_ASSIGN(const std::string text, ReadFile(InFolder(folder, kHfConfig), kMaxHfJsonBytes));
    StartModel model;
    LOOM_ASSIGN(model.config, ParseHfConfig(text));
    model.tokenizer = InFolder(folder, kHfTokenizer);
    return model;
  };
  auto model = open();
  if (!model) return std::move(model).error().Context(fmt::format("model folder '{}'", folder));
  return model;
}

Result<model::Tuning> OpenStartAdapter(const std::string& folder,
                                       const model::ModelConfig& network) {
  LOOM_ASSIGN(const AdapterFolder opened, AdapterFolder::Open(folder));
  LOOM_RETURN_IF_ERROR(opened.For(network));
  return opened.tuning;
}

Status FitTokenizer(RunFile& run, const data::Tokenizer& tokenizer) {
  if (run.model_from.empty()) return FitVocab(run.spec, tokenizer.vocab_size());
  const std::string path = InFolder(run.model_from, kHfTokenizer);
  if (run.spec.data.tokenizer != path) {
    LOOM_ASSIGN(const auto own, ReadTokenizer(path));
    LOOM_RETURN_IF_ERROR(CheckSameIds(*own, tokenizer));
  }
  if (tokenizer.vocab_size() <= run.spec.model.vocab) return {};
  return MakeError(Code::kInvalid,
                   fmt::format("{} has {} ids, its model {}", path, tokenizer.vocab_size(),
                               run.spec.model.vocab),
                   "the folder's tokenizer.json belongs to another model");
}

Status ReadStartWeights(const std::string& folder, const model::ModelConfig& config,
                        const agreed::TileGrid& grid, std::span<float> weights) {
  LOOM_ASSIGN(const HfFolder opened, HfFolder::Open(folder));
  const model::ModelConfig found = model::ForContext(opened.config, config.context);
  model::ModelConfig wanted = config;
  wanted.tuning = {};
  if (found != wanted) {
    return MakeError(Code::kInvalid,
                     fmt::format("model folder '{}': {}", folder, FirstDifference(found, wanted)),
                     "the folder was changed since the run began");
  }
  return opened.ReadWeights(grid, weights);
}

Status FirstWeights(const RunSpec& spec, const StartFolders& from, const agreed::TileGrid& grid,
                    std::span<float> weights) {
  if (!from.adapter.empty()) return ReadAdapterWeights(from.adapter, spec.model, grid, weights);
  if (!from.model.empty() && spec.model.tuning.lora_rank == 0)
    return ReadStartWeights(from.model, spec.model, grid, weights);
  model::InitWeights(spec.model, grid, spec.sync.seed, weights);
  return {};
}

}  // namespace loom::train
