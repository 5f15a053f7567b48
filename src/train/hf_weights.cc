#include "train/hf_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "base/json.h"
#include "model/family.h"
#include "tensor/floats.h"
#include "train/hf_folder.h"
#include "train/hf_texts.h"

namespace loom::train {

namespace fs = std::filesystem;

namespace {

using Tensors = std::map<std::string, const tensor::TensorView*, std::less<>>;

constexpr std::string_view kHead = "lm_head.weight";
constexpr std::size_t kMaxIndexBytes = 64 << 20;
constexpr std::size_t kMaxShards = 1000;
constexpr std::size_t kMaxListed = 5;
constexpr std::string_view kFetchAgain = "fetch the folder again from where the model came";

Error BadIndex(std::string what) {
  return MakeError(Code::kInvalid, fmt::format("{}: {}", kHfIndex, what), std::string(kFetchAgain));
}

/// A file name out of an index, which may not lead out of the folder.
Status CheckShardName(const std::string& name) {
  const bool plain = std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  });
  if (plain && name.ends_with(".safetensors") && !name.starts_with(".") && name.size() < 200) {
    return {};
  }
  return BadIndex(fmt::format("'{}' is no name of a weights file", name.substr(0, 100)));
}

std::string ShapeText(const std::vector<std::uint64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

/// Buffers that older versions saved and that the model computes by itself.
bool IsDerived(std::string_view name, const model::FamilyTraits& family) {
  if (family.rotary) return name.ends_with(".rotary_emb.inv_freq");
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");  // the causal mask
}

/// The tensors under the names of model::ParameterShapes: a file of the bare network, without its
/// head, lacks their common first word.
Tensors WithFullNames(const Tensors& tensors, const model::FamilyTraits& family) {
  const auto full = [&](const auto& entry) { return entry.first.starts_with(family.prefix); };
  if (std::ranges::any_of(tensors, full)) return tensors;
  Tensors out;
  for (const auto& [name, view] : tensors)
    out.emplace(name == kHead ? name : std::string(family.prefix) + name, view);
  return out;
}

Status CheckNames(const agreed::TileGrid& grid, const model::ModelConfig& config,
                  const Tensors& tensors) {
  std::vector<std::string> missing, unused;
  std::set<std::string_view> wanted;
  for (const agreed::TensorShape& shape : grid.tensors()) {
    wanted.insert(shape.name);
    if (!tensors.contains(shape.name)) missing.push_back(shape.name);
  }
  for (const auto& [name, view] : tensors) {
    const bool tied_copy = config.tie_embeddings && name == kHead;
    if (!wanted.contains(name) && !IsDerived(name, model::Traits(config.family)) && !tied_copy)
      unused.push_back(name);
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

/// A tied model's lm_head.weight, where a file has one, must be the embedding.
Status CheckTiedHead(const Tensors& tensors, std::string_view embedding) {
  const auto head = tensors.find(kHead);
  const auto embed = tensors.find(embedding);
  if (head == tensors.end() || embed == tensors.end()) return {};
  if (head->second->shape == embed->second->shape && head->second->dtype == embed->second->dtype &&
      std::ranges::equal(head->second->data, embed->second->data)) {
    return {};
  }
  return MakeError(
      Code::kInvalid,
      fmt::format("config.json ties the embeddings, but {} differs from {}", kHead, embedding),
      "set tie_word_embeddings to false in config.json if the head is its own");
}

std::optional<std::size_t> FirstNotFinite(std::span<const float> values) {
  const auto bad = std::ranges::find_if_not(values, [](float x) { return std::isfinite(x); });
  if (bad == values.end()) return std::nullopt;
  return static_cast<std::size_t>(bad - values.begin());
}

Result<tensor::TensorView> MatchShape(const agreed::TensorShape& shape,
                                      const tensor::TensorView& found) {
  if (found.shape != shape.shape) {
    return MakeError(Code::kInvalid,
                     fmt::format("tensor '{}' has shape {}, config.json asks for {}", shape.name,
                                 ShapeText(found.shape), ShapeText(shape.shape)),
                     "config.json and the weights do not belong together");
  }
  LOOM_RETURN_IF_ERROR(tensor::CheckWeightType(found));
  tensor::TensorView out = found;
  out.name = shape.name;
  return out;
}

}  // namespace

std::string FirstFew(const std::vector<std::string>& names) {
  std::string out;
  for (std::size_t i = 0; i < std::min(names.size(), kMaxListed); ++i) {
    out += fmt::format("{}'{}'", i == 0 ? "" : ", ", names[i]);
  }
  if (names.size() > kMaxListed) out += fmt::format(" and {} more", names.size() - kMaxListed);
  return out;
}

Status ReadTensors(const agreed::TileGrid& layout, std::span<const tensor::TensorView> tensors,
                   std::span<float> weights) {
  LOOM_CHECK(weights.size() == layout.flat_size(), "{} weights for a grid of {}", weights.size(),
             layout.flat_size());
  std::map<std::string_view, const tensor::TensorView*> found;
  for (const tensor::TensorView& view : tensors) found.emplace(view.name, &view);
  for (std::size_t t = 0; t < layout.tensors().size(); ++t) {
    const agreed::TensorShape& shape = layout.tensors()[t];
    const auto view = found.find(shape.name);
    if (view == found.end()) continue;
    const std::span<float> out = weights.subspan(layout.TensorOffset(t), shape.Numel());
    LOOM_RETURN_IF_ERROR(tensor::ToFloat32(*view->second, out));
    if (const auto bad = FirstNotFinite(out)) return tensor::NotFiniteError(shape.name, *bad);
  }
  return {};
}

Result<HfWeights> HfWeights::Open(const std::string& folder) {
  HfWeights out;
  std::error_code error;
  if (fs::exists(InFolder(folder, kHfIndex), error)) {
    LOOM_RETURN_IF_ERROR(out.OpenIndexed(folder));
  } else {
    LOOM_RETURN_IF_ERROR(out.Add(InFolder(folder, kHfWeights)));
  }
  return out;
}

Status HfWeights::Add(const std::string& path) {
  LOOM_ASSIGN(auto file, tensor::SafetensorsFile::Open(path));
  files_.push_back(std::make_unique<tensor::SafetensorsFile>(std::move(file)));
  for (const tensor::TensorView& view : files_.back()->content().tensors) {
    if (!tensors_.emplace(view.name, &view).second) {
      return MakeError(Code::kInvalid,
                       fmt::format("'{}': tensor '{}' is in another file too", path, view.name),
                       std::string(kFetchAgain));
    }
  }
  return {};
}

Status HfWeights::OpenIndexed(const std::string& folder) {
  LOOM_ASSIGN(const std::string text, ReadFile(InFolder(folder, kHfIndex), kMaxIndexBytes));
  auto index = json::Parse(text);
  if (!index) return std::move(index).error().Context(InFolder(folder, kHfIndex));
  const json::Value* map = index->Find("weight_map");
  if (map == nullptr || map->AsObject() == nullptr)
    return BadIndex("it has no weight_map of tensors to files");
  std::set<std::string> names;
  for (const auto& [name, file] : *map->AsObject()) {
    if (file.AsString() == nullptr) return BadIndex(fmt::format("'{}' maps to no text", name));
    LOOM_RETURN_IF_ERROR(CheckShardName(*file.AsString()));
    names.insert(*file.AsString());
    if (names.size() > kMaxShards) {
      return MakeError(Code::kLimit,
                       fmt::format("{} names more than {} files", kHfIndex, kMaxShards),
                       "save the model in larger files");
    }
  }
  for (const std::string& name : names) LOOM_RETURN_IF_ERROR(Add(InFolder(folder, name)));
  for (const auto& [name, file] : *map->AsObject()) {
    if (!tensors_.contains(name))
      return BadIndex(fmt::format("it promises tensor '{}', which is in no file", name));
  }
  return {};
}

Result<std::vector<tensor::TensorView>> HfWeights::Match(const agreed::TileGrid& grid,
                                                         const model::ModelConfig& config) const {
  const model::FamilyTraits& family = model::Traits(config.family);
  const Tensors named = WithFullNames(tensors_, family);
  LOOM_RETURN_IF_ERROR(CheckNames(grid, config, named));
  if (config.tie_embeddings) {
    LOOM_RETURN_IF_ERROR(CheckTiedHead(named, family.embedding));
  }
  std::vector<tensor::TensorView> out;
  out.reserve(grid.tensors().size());
  for (const agreed::TensorShape& shape : grid.tensors()) {
    LOOM_ASSIGN(tensor::TensorView view, MatchShape(shape, *named.find(shape.name)->second));
    out.push_back(std::move(view));
  }
  return out;
}

Status HfFolder::ReadWeights(const agreed::TileGrid& layout, std::span<float> weights) const {
  Status read = ReadTensors(layout, tensors, weights);
  if (!read) return std::move(read).error().Context(fmt::format("model folder '{}'", path_));
  return {};
}

Status HfFolder::CheckValues() const {
  std::vector<float> chunk(std::size_t{1} << 18);
  for (const tensor::TensorView& view : tensors) {
    for (std::size_t first = 0; first < view.Numel(); first += chunk.size()) {
      const auto values = std::span(chunk).first(std::min(chunk.size(), view.Numel() - first));
      tensor::ReadFloats(view, first, values);
      if (const auto bad = FirstNotFinite(values)) {
        return tensor::NotFiniteError(view.name, first + *bad)
            .Context(fmt::format("model folder '{}'", path_));
      }
    }
  }
  return {};
}

}  // namespace loom::train
