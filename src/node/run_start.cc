#include "node/run_start.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <optional>
#include <string_view>

#include "agreed/flat_buffer.h"
#include "agreed/state.h"
#include "base/file.h"
#include "base/printable.h"
#include "collab/method.h"
#include "crypto/hash.h"
#include "train/hf_adapter.h"
#include "train/hf_texts.h"
#include "train/start_model.h"

namespace loom::node {
namespace {

namespace fs = std::filesystem;

std::string StartPath(const std::string& dir) { return InFolder(dir, kStartFolder); }
std::string AdapterPath(const std::string& dir) { return InFolder(dir, kAdapterFolder); }

bool IsOfAdapter(std::string_view name) {
  return name == train::kAdapterConfig || name == train::kAdapterWeights;
}

/// The most bytes that a file of a kept model or adapter can have; none: it is no file of them.
std::optional<std::uint64_t> MostBytes(std::string_view name, const model::ModelConfig& config) {
  if (IsOfAdapter(name)) {
    if (config.tuning.lora_rank == 0) return std::nullopt;
    return train::MostBytesOfAdapter(name, config);
  }
  if (name == train::kHfTokenizer) return std::nullopt;
  return train::MostBytesOfExported(name, config);
}

Error Damaged(const std::string& path) {
  return MakeError(Code::kCorrupt, fmt::format("{}: its hash is not the one the run names", path),
                   "start the peer again: the file is made again from the model, or fetched from "
                   "another peer");
}

Status CheckFile(const collab::NamedObject& file, const std::string& dir) {
  const std::string path = InFolder(dir, StartFilePath(file.name));
  LOOM_ASSIGN(const collab::ObjectRef found, RefOf(path));
  return found == file.ref ? Status() : Damaged(path);
}

Status CheckFiles(const Run& run, const std::string& dir) {
  for (const collab::NamedObject& file : run.content.start)
    LOOM_RETURN_IF_ERROR(CheckFile(file, dir));
  return {};
}

}  // namespace

std::string StartFilePath(std::string_view name) {
  return InFolder(std::string(IsOfAdapter(name) ? kAdapterFolder : kStartFolder), name);
}

bool StartsFromAdapter(const collab::Genesis& genesis) {
  return std::ranges::any_of(genesis.start, IsOfAdapter, &collab::NamedObject::name);
}

Status KeepModel(const train::RunFile& file, const std::string& dir) {
  LOOM_ASSIGN(const train::HfFolder folder, train::HfFolder::Open(file.model_from));
  train::HfTexts texts = folder.texts;
  texts.files.erase(std::string(train::kHfTokenizer));
  const train::HfExport copy{.config = folder.config,
                             .tensors = folder.tensors,
                             .texts = texts,
                             .shard_bytes = std::numeric_limits<std::uint64_t>::max()};
  return train::ExportHfFolder(StartPath(dir), copy);
}

Status KeepAdapter(const train::RunFile& file, const std::string& dir) {
  const model::ModelConfig& config = file.spec.model;
  LOOM_ASSIGN(const agreed::TileGrid grid, model::MakeGrid(config));
  LOOM_ASSIGN(agreed::FlatBuffer weights,
              agreed::FlatBuffer::Allocate(grid.flat_size(), "the adapter"));
  LOOM_RETURN_IF_ERROR(
      train::FirstWeights(file.spec, {file.model_from, file.tune_from}, grid, weights.span()));
  return train::ExportAdapter(AdapterPath(dir), {config, grid, weights.span(), ""});
}

Result<std::vector<collab::NamedObject>> KeepStart(const train::RunFile& file,
                                                   const std::string& dir) {
  LOOM_RETURN_IF_ERROR(KeepModel(file, dir));
  std::vector<std::string> folders{StartPath(dir)};
  if (!file.tune_from.empty()) {
    LOOM_RETURN_IF_ERROR(KeepAdapter(file, dir));
    folders.push_back(AdapterPath(dir));
  }
  std::vector<collab::NamedObject> start;
  for (const std::string& folder : folders) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder, error)) {
      LOOM_ASSIGN(const collab::ObjectRef ref, RefOf(entry.path().string()));
      start.push_back({entry.path().filename().string(), ref});
    }
    if (error) return MakeError(Code::kIo, fmt::format("{}: {}", folder, error.message()));
  }
  std::ranges::sort(start, {}, &collab::NamedObject::name);
  LOOM_RETURN_IF_ERROR(CheckStart(start, file.spec.model));
  return start;
}

Status CheckStart(const std::vector<collab::NamedObject>& start, const model::ModelConfig& config) {
  if (start.empty() && config.tuning.trains_all()) return {};
  LOOM_RETURN_IF_ERROR(model::Validate(config));
  const auto refuse = [](std::string what) {
    return MakeError(Code::kInvalid, "the model that the run starts from: " + std::move(what),
                     "the run was made by another version of loom");
  };
  for (std::size_t i = 0; i < start.size(); ++i) {
    const collab::NamedObject& file = start[i];
    const auto most = MostBytes(file.name, config);
    if (!most) return refuse(fmt::format("'{}' is no file of one", OneLine(file.name)));
    if (i > 0 && start[i - 1].name >= file.name)
      return refuse(fmt::format("'{}' is not in order", file.name));
    if (file.ref.size > *most) {
      return MakeError(Code::kLimit, fmt::format("the model that the run starts from: {} has {} "
                                                 "bytes, the limit is {}",
                                                 file.name, file.ref.size, *most));
    }
  }
  std::vector<std::string_view> needed{train::kHfConfig, train::kHfWeights};
  if (std::ranges::any_of(start, IsOfAdapter, &collab::NamedObject::name))
    needed.insert(needed.end(), {train::kAdapterConfig, train::kAdapterWeights});
  for (const std::string_view name : needed) {
    if (std::ranges::find(start, name, &collab::NamedObject::name) == start.end())
      return refuse(fmt::format("it has no {}", name));
  }
  return {};
}

Status ReadFirstWeights(const Run& run, const std::string& dir, const agreed::TileGrid& grid,
                        std::span<float> weights) {
  if (run.content.start.empty()) return train::FirstWeights(run.spec, {}, grid, weights);
  LOOM_RETURN_IF_ERROR(CheckFiles(run, dir));
  const std::string adapter = StartsFromAdapter(run.content) ? AdapterPath(dir) : "";
  return train::FirstWeights(run.spec, {StartPath(dir), adapter}, grid, weights);
}

Result<train::FrozenWeights> ReadFrozenWeights(const Run& run, const std::string& dir) {
  if (run.spec.model.tuning.trains_all()) return train::FrozenWeights();
  LOOM_RETURN_IF_ERROR(CheckFiles(run, dir));
  return train::ReadFrozen(StartPath(dir), run.spec.model);
}

Hash FirstRoot(const train::RunSpec& spec, const agreed::TileGrid& grid,
               std::span<const float> weights) {
  const std::size_t slots = collab::MakeStepRule(spec.sync)->num_slots();
  const std::vector<float> zeros(grid.tile_elements());
  std::vector<Hash> leaves;
  leaves.reserve(grid.size());
  for (const agreed::Tile& tile : grid.tiles()) {
    agreed::ConstPlanes planes(1 + slots, std::span(zeros).first(tile.size));
    planes[0] = agreed::TileSpan(tile, weights);
    leaves.push_back(agreed::StateLeaf(planes));
  }
  return crypto::MerkleRoot(leaves);
}

Result<train::HfTexts> ReadStartTexts(const Run& run, const std::string& dir) {
  train::HfTexts texts;
  for (const collab::NamedObject& file : run.content.start) {
    if (file.name == train::kHfWeights || IsOfAdapter(file.name)) continue;
    LOOM_RETURN_IF_ERROR(CheckFile(file, dir));
    LOOM_ASSIGN(std::string text, ReadFile(InFolder(dir, StartFilePath(file.name)), file.ref.size));
    if (file.name == train::kHfConfig) {
      LOOM_ASSIGN(texts.token_ids, train::ParseTokenIds(text));
    } else {
      LOOM_RETURN_IF_ERROR(train::CheckHfText(file.name, text));
      texts.files.emplace(file.name, std::move(text));
    }
  }
  return texts;
}

}  // namespace loom::node
