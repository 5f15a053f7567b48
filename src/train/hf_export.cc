// Writing a model folder: texts, weights in one file or several, and the rename that publishes all.
#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "base/utf8.h"
#include "train/hf_folder.h"
#include "train/hf_texts.h"
#include "train/hf_weights.h"

namespace loom::train {

namespace fs = std::filesystem;

namespace {

/// "model-00002-of-00007.safetensors"
std::string ShardName(std::size_t shard, std::size_t shards) {
  return fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, shards);
}

bool IsShardName(std::string_view name) {
  const std::string_view form = "model-00000-of-00000.safetensors";
  return name.size() == form.size() && std::ranges::equal(name, form, [](char c, char f) {
           return f == '0' ? c >= '0' && c <= '9' : c == f;
         });
}

bool IsExported(const fs::path& file) {
  const std::string name = file.filename().string();
  const auto known = [](std::string_view plain) {
    return plain == kHfConfig || plain == kHfWeights || plain == kHfIndex || IsShardName(plain) ||
           std::ranges::find(kHfTextFiles, plain, &HfTextFile::name) != kHfTextFiles.end();
  };
  return known(name.ends_with(".tmp") ? std::string_view(name).substr(0, name.size() - 4) : name);
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

std::string DefaultText(std::string_view name, const model::ModelConfig& config) {
  json::Object out;
  if (name == kHfTokenizerConfig) {
    out = {{"clean_up_tokenization_spaces", false},
           {"model_max_length", model::NumPositions(config)},
           {"tokenizer_class", "PreTrainedTokenizerFast"}};
  } else {
    out = {{"_from_model_config", true}, {"use_cache", true}};
  }
  return json::Dump(std::move(out), 2) + "\n";
}

tensor::DType TypeOf(const HfExport& content, const tensor::TensorView& view) {
  return content.dtype.value_or(view.dtype);
}

Status WriteTexts(const std::string& folder, const HfExport& content) {
  const tensor::DType dtype = content.dtype.value_or(MostCommonType(content.tensors));
  auto files = content.texts.files;
  files.emplace(kHfConfig, HfConfigJson(content.config, dtype, content.texts.token_ids));
  files.emplace(kHfGeneration, DefaultText(kHfGeneration, content.config));
  if (files.contains(kHfTokenizer))
    files.emplace(kHfTokenizerConfig, DefaultText(kHfTokenizerConfig, content.config));
  for (const auto& [name, text] : files)
    LOOM_RETURN_IF_ERROR(WriteFileAtomic(InFolder(folder, name), AsBytes(text)));
  return {};
}

/// Neighbours that go into one file each: as many as fit, at least one.
std::vector<std::span<const tensor::TensorView>> CutIntoShards(const HfExport& content) {
  std::vector<std::span<const tensor::TensorView>> shards;
  std::size_t first = 0;
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < content.tensors.size(); ++i) {
    const tensor::TensorView& view = content.tensors[i];
    const std::uint64_t size = view.Numel() * tensor::DTypeSize(TypeOf(content, view));
    if (i > first && bytes + size > content.shard_bytes) {
      shards.push_back(content.tensors.subspan(first, i - first));
      first = i;
      bytes = 0;
    }
    bytes += size;
  }
  shards.push_back(content.tensors.subspan(first));
  return shards;
}

Status WriteShards(const std::string& folder, const HfExport& content) {
  const std::pair<std::string, std::string> metadata[] = {{"format", "pt"}};
  const auto shards = CutIntoShards(content);
  if (shards.size() == 1)
    return tensor::WriteWeights(InFolder(folder, kHfWeights), shards[0], content.dtype, metadata);
  json::Object weight_map;
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string name = ShardName(i, shards.size());
    LOOM_RETURN_IF_ERROR(
        tensor::WriteWeights(InFolder(folder, name), shards[i], content.dtype, metadata));
    for (const tensor::TensorView& view : shards[i]) {
      weight_map.emplace_back(view.name, name);
      total += view.Numel() * tensor::DTypeSize(TypeOf(content, view));
    }
  }
  std::ranges::sort(weight_map, {}, &json::Member::first);
  const json::Object index{{"metadata", json::Object{{"total_size", total}}},
                           {"weight_map", std::move(weight_map)}};
  const std::string text = json::Dump(index, 2) + "\n";
  return WriteFileAtomic(InFolder(folder, kHfIndex), AsBytes(text));
}

Status WriteFiles(const std::string& folder, const HfExport& content) {
  LOOM_RETURN_IF_ERROR(WriteTexts(folder, content));
  return WriteShards(folder, content);
}

}  // namespace

Status CheckHfText(std::string_view name, std::string_view text) {
  constexpr std::string_view kHint = "fetch the file again from where the model came";
  if (!name.ends_with(".json")) {
    const std::size_t bad = FindInvalidUtf8(text);
    if (bad == std::string_view::npos) return {};
    return MakeError(Code::kInvalid, fmt::format("{}: byte {} is no UTF-8", name, bad),
                     std::string(kHint));
  }
  if (name == kHfTokenizer) return {};  // data::Tokenizer reads it, and knows more
  auto parsed = json::Parse(text);
  if (!parsed) return std::move(parsed).error().Context(name);
  if (parsed->AsObject() != nullptr) return {};
  return MakeError(Code::kInvalid, fmt::format("{} is {}, not an object", name, parsed->KindName()),
                   std::string(kHint));
}

std::optional<std::uint64_t> MostBytesOfExported(std::string_view name,
                                                 const model::ModelConfig& config) {
  if (name == kHfConfig) return kMaxHfJsonBytes;
  if (name == kHfWeights)
    return sizeof(float) * model::ParameterCount(config) + tensor::kMaxSafetensorsHeader;
  const auto text = std::ranges::find(kHfTextFiles, name, &HfTextFile::name);
  if (text == kHfTextFiles.end()) return std::nullopt;
  return text->max_bytes;
}

tensor::DType MostCommonType(std::span<const tensor::TensorView> tensors) {
  std::map<tensor::DType, std::uint64_t> counts;
  for (const tensor::TensorView& view : tensors) counts[view.dtype] += view.Numel();
  LOOM_CHECK(!counts.empty());
  return std::ranges::max_element(counts, {}, [](const auto& count) { return count.second; })
      ->first;
}

std::vector<tensor::TensorView> WeightViews(const agreed::TileGrid& grid,
                                            std::span<const float> weights) {
  LOOM_CHECK(weights.size() == grid.flat_size(), "{} weights for a grid of {}", weights.size(),
             grid.flat_size());
  std::vector<tensor::TensorView> views;
  views.reserve(grid.tensors().size());
  for (std::size_t t = 0; t < grid.tensors().size(); ++t) {
    const agreed::TensorShape& shape = grid.tensors()[t];
    views.push_back({shape.name, tensor::DType::kF32, shape.shape,
                     std::as_bytes(weights.subspan(grid.TensorOffset(t), shape.Numel()))});
  }
  return views;
}

Status ExportHfFolder(const std::string& folder, const HfExport& content) {
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
  Status done = WriteFiles(aside, content);
  if (done) done = Publish(aside, target);
  if (!done) {
    if (fs::exists(aside, error)) (void)RemoveExport(aside);
    return std::move(done).error().Context(fmt::format("export to '{}'", target));
  }
  return {};
}

Status ExportHfFolder(const std::string& folder, const model::ModelConfig& config,
                      const agreed::TileGrid& grid, std::span<const float> weights,
                      const data::Tokenizer& tokenizer) {
  HfTexts texts;
  texts.files.emplace(kHfTokenizer, tokenizer.ToJson());
  const std::vector<tensor::TensorView> views = WeightViews(grid, weights);
  return ExportHfFolder(folder, {.config = config, .tensors = views, .texts = texts});
}

}  // namespace loom::train
