// What verbs read from a peer's folder, without its lock, while the peer runs and after: the run,
// the records, and the newest state that the folder can rebuild. Nothing here writes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "collab/record.h"
#include "data/shards.h"
#include "node/run_data.h"
#include "train/hf_adapter.h"
#include "train/hf_folder.h"

namespace loom::app {

/// The folder that a verb means: `dir`, else this folder or the only ./loom-* that is a peer's
/// folder. Errors name the candidates.
Result<std::string> FindPeerFolder(const std::string& dir);
/// Whether there is a run in it, or a peer that began to join one.
bool IsPeerFolder(const std::string& path);

/// A run's records as the folder holds them, each checked to follow from the one before.
struct FolderRecords {
  node::Run run;
  std::vector<collab::Record> records;  ///< after genesis, in order
  std::vector<std::string> notes;       ///< a torn tail: what was left out
};
/// kCorrupt names the file, the entry and the offset.
Result<FolderRecords> ReadFolderRecords(const std::string& dir);

/// Records that an owner's reset has orphaned, oldest first; none when there was no such reset.
/// `notes`: what was left out of a damaged log.
Result<std::vector<collab::Record>> ReadOrphans(const std::string& dir,
                                                std::vector<std::string>& notes);

/// A state of the run as a whole model. `round` may be behind the newest record: `notes` says why.
struct FolderModel {
  train::HfModel model;
  std::optional<train::Adapter> adapter;  ///< of a run that trains LoRA: what the model has in it
  Round round = 0;
  std::vector<std::string> notes;
};
/// Rebuilds the newest state from the last good checkpoint and the reduced bytes after it; every
/// step is checked against its record's root.
Result<FolderModel> ReadFolderModel(const std::string& dir);

/// The run's training or validation tokens, checked against the genesis record. split: "train",
/// "val".
Result<data::TokenStream> ReadFolderSplit(const std::string& dir, const std::string& split);

/// The model that the run of a peer's folder has started from, out of the folder itself; kNotFound
/// without such a run.
Result<train::StartModel> StartOfFolder(const std::string& dir);
/// The same of the adapter that the run trains further: its tuning.
Result<model::Tuning> AdapterOfFolder(const std::string& dir);

/// The process that holds the folder, when there is one.
std::optional<std::int64_t> FolderHolder(const std::string& dir);

}  // namespace loom::app
