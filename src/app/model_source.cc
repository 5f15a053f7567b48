// Which kind of folder it is shows in its files: config.json, or genesis.
#include "app/model_source.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <thread>

#include "app/passive_wait.h"
#include "app/peer_folder_source.h"
#include "base/log.h"
#include "tensor/runtime.h"

namespace loom::app {

std::uint32_t DefaultThreads() { return std::max(1U, std::thread::hardware_concurrency() / 2); }

std::uint32_t ComputeThreads(const train::DeterminismConfig& determinism,
                             const train::LocalConfig& local) {
  const std::uint32_t threads = determinism.threads != 0 ? determinism.threads : local.threads;
  return threads != 0 ? threads : DefaultThreads();
}

Status ConfigureCompute(const train::DeterminismConfig& determinism,
                        const train::LocalConfig& local) {
  return tensor::ConfigureRuntime({.threads = static_cast<int>(ComputeThreads(determinism, local)),
                                   .deterministic = determinism.deterministic});
}

Result<const data::Tokenizer*> OpenedModel::Tokenizer() const {
  if (source.tokenizer == nullptr) return *source.no_tokenizer;
  return source.tokenizer.get();
}

bool IsHfFolder(const std::string& path) {
  std::error_code ignored;
  return !IsPeerFolder(path) && std::filesystem::exists(path + "/config.json", ignored);
}

Result<OpenedModel> OpenModel(const std::string& path, const std::string& device,
                              std::uint64_t threads) {
  train::LocalConfig local;
  local.threads = static_cast<std::uint32_t>(std::min<std::uint64_t>(threads, 256));
  WaitPassively(ComputeThreads({}, local));
  std::error_code ignored;
  OpenedModel model;
  model.path = path;
  if (IsPeerFolder(path)) {
    LOOM_ASSIGN(FolderModel folder, ReadFolderModel(path));
    for (const std::string& note : folder.notes) Log(LogLevel::kWarn, "folder", "{}", note);
    model.source = std::move(folder.model);
    model.adapter = std::move(folder.adapter);
    model.round = folder.round;
  } else if (IsHfFolder(path)) {
    LOOM_ASSIGN(model.source, train::ImportHfFolder(path));
  } else {
    return MakeError(
        Code::kNotFound,
        fmt::format("{} {}", path,
                    std::filesystem::is_directory(path, ignored)
                        ? "holds neither a config.json nor a peer's genesis"
                        : "is no folder"),
        "a model is a folder with config.json and model.safetensors, or a peer's folder");
  }
  LOOM_RETURN_IF_ERROR(ConfigureCompute({}, local));
  model::ModelOptions options;
  LOOM_ASSIGN(options.device, tensor::ParseDevice(device));
  LOOM_ASSIGN(model.network, model::Model::Create(model.source.config, model.source.grid, options,
                                                  model.source.weights.span(), {}));
  return model;
}

}  // namespace loom::app
