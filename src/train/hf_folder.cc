#include "train/hf_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>

#include "base/file.h"
#include "base/json.h"
#include "tensor/safetensors.h"

namespace loom::train {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kConfig = "config.json";
constexpr std::string_view kGeneration = "generation_config.json";
constexpr std::string_view kTokenizer = "tokenizer.json";
constexpr std::string_view kTokenizerConfig = "tokenizer_config.json";
constexpr std::string_view kWeights = "model.safetensors";
constexpr std::string_view kIndex = "model.safetensors.index.json";
constexpr std::size_t kMaxJsonBytes = 64 << 20;
constexpr std::size_t kMaxShards = 1000;
constexpr std::size_t kMaxListed = 5;

std::string In(const std::string& folder, std::string_view name) {
  return (fs::path(folder) / name).string();
}

// ---- export ----

bool IsExported(const fs::path& file) {
  const std::string name = file.filename().string();
  return name == kConfig || name == kGeneration || name == kTokenizer || name == kTokenizerConfig ||
         name == kWeights || name.ends_with(".json.tmp") || name.ends_with(".safetensors.tmp");
}

/// Removes a folder that holds nothing but what an export writes; leaves any other alone.
Status RemoveExport(const std::string& folder) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (!IsExported(entry.path())) {
      return MakeError(Code::kConflict,
                       fmt::format("'{}' holds '{}', which is no part of an exported model", folder,
                                   entry.path().filename().string()),
                       "choose another folder, or empty this one");
    }
  }
  if (!error) fs::remove_all(folder, error);
  if (error) {
    return MakeError(Code::kIo, fmt::format("cannot remove '{}': {}", folder, error.message()));
  }
  return {};
}

/// kConflict when an export must not take the place of what is there.
Status CheckReplaceable(const std::string& folder) {
  std::error_code error;
  if (!fs::exists(fs::symlink_status(folder, error))) return {};
  if (!fs::is_directory(folder, error)) {
    return MakeError(Code::kConflict, fmt::format("'{}' is not a folder", folder),
                     "choose another name for the model");
  }
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (!IsExported(entry.path())) {
      return MakeError(Code::kConflict,
                       fmt::format("'{}' exists and holds '{}', which is no part of an exported "
                                   "model",
                                   folder, entry.path().filename().string()),
                       "choose another folder");
    }
  }
  return {};
}

/// Makes `aside` stand at `folder` in one step; what was there is removed afterwards.
Status Publish(const std::string& aside, const std::string& folder) {
  std::error_code error;
  const bool replace = fs::exists(folder, error);
  const int done =
      replace ? ::renameat2(AT_FDCWD, aside.c_str(), AT_FDCWD, folder.c_str(), RENAME_EXCHANGE)
              : ::rename(aside.c_str(), folder.c_str());
  if (done != 0) {
    return MakeError(Code::kIo, fmt::format("cannot rename '{}' to '{}': {}", aside, folder,
                                            std::strerror(errno)));
  }
  const std::string parent = fs::path(folder).parent_path().string();
  LOOM_RETURN_IF_ERROR(SyncFolder(parent.empty() ? "." : parent));
  return replace ? RemoveExport(aside) : Status{};
}

std::vector<tensor::TensorView> WeightViews(const agreed::TileGrid& grid,
                                            std::span<const float> weights) {
  std::vector<tensor::TensorView> views;
  for (std::size_t t = 0; t < grid.tensors().size(); ++t) {
    const agreed::TensorShape& shape = grid.tensors()[t];
    views.push_back({shape.name, tensor::DType::kF32, shape.shape,
                     std::as_bytes(weights.subspan(grid.TensorOffset(t), shape.Numel()))});
  }
  return views;
}

Status WriteFiles(const std::string& folder, const model::ModelConfig& config,
                  const agreed::TileGrid& grid, std::span<const float> weights,
                  const data::Tokenizer& tokenizer) {
  const std::string tokenizer_config =
      json::Dump(json::Object{{"clean_up_tokenization_spaces", false},
                              {"model_max_length", config.context},
                              {"tokenizer_class", "PreTrainedTokenizerFast"}},
                 2) +
      "\n";
  const std::string generation =
      json::Dump(json::Object{{"_from_model_config", true}, {"use_cache", true}}, 2) + "\n";
  const std::pair<std::string_view, std::string> texts[] = {
      {kConfig, HfConfigJson(config)},
      {kGeneration, generation},
      {kTokenizer, tokenizer.ToJson()},
      {kTokenizerConfig, tokenizer_config},
  };
  for (const auto& [name, text] : texts) {
    LOOM_RETURN_IF_ERROR(WriteFileAtomic(In(folder, name), AsBytes(text)));
  }
  const std::pair<std::string, std::string> metadata[] = {{"format", "pt"}};
  return tensor::WriteSafetensors(In(folder, kWeights), WeightViews(grid, weights), metadata);
}

// ---- import ----

/// A file name out of an index, which may not lead out of the folder.
Status CheckShardName(const std::string& name) {
  const bool plain = std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  });
  if (plain && name.ends_with(".safetensors") && !name.starts_with(".") && name.size() < 200) {
    return {};
  }
  return MakeError(Code::kInvalid, fmt::format("{}: '{}' is no name of a weights file", kIndex,
                                               name.substr(0, 100)));
}

// All tensors of a folder, by name, over its one or several files.
class FolderWeights {
 public:
  static Result<FolderWeights> Open(const std::string& folder) {
    FolderWeights out;
    std::error_code error;
    if (fs::exists(In(folder, kIndex), error)) {
      LOOM_RETURN_IF_ERROR(out.OpenIndexed(folder));
    } else {
      LOOM_RETURN_IF_ERROR(out.Add(In(folder, kWeights)));
    }
    return out;
  }

  std::map<std::string, const tensor::TensorView*> tensors;

 private:
  Status Add(const std::string& path) {
    LOOM_ASSIGN(auto file, tensor::SafetensorsFile::Open(path));
    files_.push_back(std::make_unique<tensor::SafetensorsFile>(std::move(file)));
    for (const tensor::TensorView& view : files_.back()->content().tensors) {
      if (!tensors.emplace(view.name, &view).second) {
        return MakeError(Code::kInvalid,
                         fmt::format("'{}': tensor '{}' is in another file too", path, view.name));
      }
    }
    return {};
  }

  Status OpenIndexed(const std::string& folder) {
    LOOM_ASSIGN(const std::string text, ReadFile(In(folder, kIndex), kMaxJsonBytes));
    auto index = json::Parse(text);
    if (!index) return std::move(index).error().Context(In(folder, kIndex));
    const json::Value* map = index->Find("weight_map");
    if (map == nullptr || map->AsObject() == nullptr) {
      return MakeError(Code::kInvalid, fmt::format("{} has no weight_map", kIndex));
    }
    std::map<std::string, std::size_t> names;
    for (const auto& [name, file] : *map->AsObject()) {
      if (file.AsString() == nullptr) {
        return MakeError(Code::kInvalid, fmt::format("{}: '{}' maps to no text", kIndex, name));
      }
      LOOM_RETURN_IF_ERROR(CheckShardName(*file.AsString()));
      ++names[*file.AsString()];
      if (names.size() > kMaxShards) {
        return MakeError(Code::kLimit,
                         fmt::format("{} names more than {} files", kIndex, kMaxShards));
      }
    }
    for (const auto& [name, count] : names) LOOM_RETURN_IF_ERROR(Add(In(folder, name)));
    for (const auto& [name, file] : *map->AsObject()) {
      if (!tensors.contains(name)) {
        return MakeError(Code::kInvalid,
                         fmt::format("{} promises tensor '{}', which is in no file", kIndex, name));
      }
    }
    return {};
  }

  std::vector<std::unique_ptr<tensor::SafetensorsFile>> files_;
};

std::string ShapeText(const std::vector<std::uint64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::string FirstFew(const std::vector<std::string>& names) {
  std::string out;
  for (std::size_t i = 0; i < std::min(names.size(), kMaxListed); ++i) {
    out += fmt::format("{}'{}'", i == 0 ? "" : ", ", names[i]);
  }
  if (names.size() > kMaxListed) out += fmt::format(" and {} more", names.size() - kMaxListed);
  return out;
}

/// Buffers that older versions saved and that the model computes by itself.
bool IsDerived(std::string_view name) { return name.ends_with(".rotary_emb.inv_freq"); }

Status CheckNames(const agreed::TileGrid& grid, const model::ModelConfig& config,
                  const FolderWeights& weights) {
  std::vector<std::string> missing, unused;
  std::map<std::string, bool> wanted;
  for (const agreed::TensorShape& shape : grid.tensors()) {
    wanted[shape.name] = true;
    if (!weights.tensors.contains(shape.name)) missing.push_back(shape.name);
  }
  for (const auto& [name, view] : weights.tensors) {
    const bool tied_copy = config.tie_embeddings && name == "lm_head.weight";
    if (!wanted.contains(name) && !IsDerived(name) && !tied_copy) unused.push_back(name);
  }
  if (!missing.empty()) {
    return MakeError(Code::kInvalid, fmt::format("the weights lack {}", FirstFew(missing)),
                     "config.json and the weights do not belong together");
  }
  if (!unused.empty()) {
    return MakeError(Code::kInvalid,
                     fmt::format("the model of config.json has no place for {}", FirstFew(unused)),
                     "config.json and the weights do not belong together");
  }
  return {};
}

Status LoadTensor(const agreed::TensorShape& shape, const tensor::TensorView& view,
                  std::span<float> out) {
  if (view.shape != shape.shape) {
    return MakeError(Code::kInvalid,
                     fmt::format("tensor '{}' has shape {}, config.json asks for {}", shape.name,
                                 ShapeText(view.shape), ShapeText(shape.shape)));
  }
  LOOM_RETURN_IF_ERROR(tensor::ToFloat32(view, out));
  const auto bad = std::find_if(out.begin(), out.end(), [](float x) { return !std::isfinite(x); });
  if (bad != out.end()) {
    return MakeError(Code::kCorrupt, fmt::format("tensor '{}' has a value that is not finite at "
                                                 "element {}",
                                                 shape.name, bad - out.begin()));
  }
  return {};
}

/// A tied model's lm_head.weight, where a file has one, must be the embedding.
Status CheckTiedHead(const FolderWeights& weights) {
  const auto head = weights.tensors.find("lm_head.weight");
  const auto embed = weights.tensors.find("model.embed_tokens.weight");
  if (head == weights.tensors.end() || embed == weights.tensors.end()) return {};
  if (head->second->shape == embed->second->shape && head->second->dtype == embed->second->dtype &&
      std::ranges::equal(head->second->data, embed->second->data)) {
    return {};
  }
  return MakeError(Code::kInvalid,
                   "config.json ties the embeddings, but lm_head.weight differs from "
                   "model.embed_tokens.weight");
}

Result<HfModel> Import(const std::string& folder) {
  LOOM_ASSIGN(const std::string config_json, ReadFile(In(folder, kConfig), kMaxJsonBytes));
  HfModel out;
  LOOM_ASSIGN(out.config, ParseHfConfig(config_json));
  LOOM_ASSIGN(out.grid, model::MakeGrid(out.config));
  LOOM_ASSIGN(const FolderWeights weights, FolderWeights::Open(folder));
  LOOM_RETURN_IF_ERROR(CheckNames(out.grid, out.config, weights));
  if (out.config.tie_embeddings) LOOM_RETURN_IF_ERROR(CheckTiedHead(weights));
  LOOM_ASSIGN(out.weights, agreed::FlatBuffer::Allocate(out.grid.flat_size()));
  for (std::size_t t = 0; t < out.grid.tensors().size(); ++t) {
    const agreed::TensorShape& shape = out.grid.tensors()[t];
    LOOM_RETURN_IF_ERROR(
        LoadTensor(shape, *weights.tensors.at(shape.name),
                   out.weights.span().subspan(out.grid.TensorOffset(t), shape.Numel())));
  }
  std::error_code error;
  if (!fs::exists(In(folder, kTokenizer), error)) return out;
  LOOM_ASSIGN(const std::string tokenizer_json,
              ReadFile(In(folder, kTokenizer), data::Tokenizer::kMaxJsonBytes));
  LOOM_ASSIGN(out.tokenizer, data::Tokenizer::FromJson(AsBytes(tokenizer_json)));
  if (out.tokenizer->vocab_size() > out.config.vocab) {
    return MakeError(Code::kInvalid, fmt::format("the tokenizer has {} ids, the model {}",
                                                 out.tokenizer->vocab_size(), out.config.vocab));
  }
  return out;
}

}  // namespace

Status ExportHfFolder(const std::string& folder, const model::ModelConfig& config,
                      const agreed::TileGrid& grid, std::span<const float> weights,
                      const data::Tokenizer& tokenizer) {
  LOOM_CHECK(weights.size() == grid.flat_size(), "{} weights for a grid of {}", weights.size(),
             grid.flat_size());
  std::string target = fs::path(folder).lexically_normal().string();
  while (target.size() > 1 && target.ends_with('/')) target.pop_back();
  LOOM_RETURN_IF_ERROR(CheckReplaceable(target));
  const std::string aside = target + ".tmp";
  std::error_code error;
  if (fs::exists(aside, error)) LOOM_RETURN_IF_ERROR(RemoveExport(aside));
  fs::create_directories(aside, error);
  if (error) {
    return MakeError(Code::kIo, fmt::format("cannot create '{}': {}", aside, error.message()));
  }
  Status done = WriteFiles(aside, config, grid, weights, tokenizer);
  if (done) done = Publish(aside, target);
  if (!done) {
    if (fs::exists(aside, error)) (void)RemoveExport(aside);
    return std::move(done).error().Context(fmt::format("export to '{}'", target));
  }
  return {};
}

Result<HfModel> ImportHfFolder(const std::string& folder) {
  auto model = Import(folder);
  if (!model) return std::move(model).error().Context(fmt::format("model folder '{}'", folder));
  return model;
}

}  // namespace loom::train
