// MODEL arguments: a Hugging Face folder or a peer's folder, opened for inference.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "agreed/flat_buffer.h"
#include "base/id.h"
#include "model/model.h"
#include "train/hf_adapter.h"
#include "train/hf_folder.h"
#include "train/spec.h"

namespace loom::app {

/// A model in memory, ready to compute. The network views `source.weights`.
struct OpenedModel {
  std::string path;
  train::HfModel source;
  std::optional<train::Adapter> adapter;  ///< FolderModel::adapter
  std::unique_ptr<model::Model> network;
  std::optional<Round> round;  ///< of a peer's folder: whose state this is

  /// The tokenizer; an error when the folder has none that Loom can use.
  Result<const data::Tokenizer*> Tokenizer() const;
};

/// Whether it looks like a Hugging Face folder.
bool IsHfFolder(const std::string& path);
/// device as in run.toml; threads 0 = half of the processors. A peer's folder is read without its
/// lock, also while its peer runs. Call it on the thread that computes.
Result<OpenedModel> OpenModel(const std::string& path, const std::string& device,
                              std::uint64_t threads);

/// Threads of the operators: the run's, else this machine's, else DefaultThreads.
std::uint32_t ComputeThreads(const train::DeterminismConfig& determinism,
                             const train::LocalConfig& local);
/// Threads and determinism of the calling thread's operators, from a run's settings.
Status ConfigureCompute(const train::DeterminismConfig& determinism,
                        const train::LocalConfig& local);
/// Half of the logical processors, at least one.
std::uint32_t DefaultThreads();

}  // namespace loom::app
