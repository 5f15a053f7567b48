// Carries out the effects of the core that end in the peer's folder, and the jobs that end in the
// engine. The daemon calls it on its storage and compute threads, the simulator in virtual time.
#pragma once

#include <atomic>
#include <map>

#include "collab/effects.h"
#include "node/restore.h"
#include "store/peer_folder.h"

namespace loom::node {

/// Owner: the storage thread.
class DiskExecutor {
 public:
  /// Both outlive it. Requires folder.has_run().
  DiskExecutor(store::PeerFolder& folder, const agreed::TileGrid& grid,
               const collab::TileLayout& layout);

  /// Tells it the rounds that the folder held at start, so that their bytes can be served.
  void Know(const std::vector<collab::Record>& records);

  /// Durable when it returns ok.
  Status Write(const collab::Persist& persist);
  /// Writes the engine's state and its workers' inner state; removes older checkpoints and the
  /// round bytes that no kept one needs. The leaves of the state. Nobody may change the engine
  /// meanwhile.
  Result<std::vector<Hash>> Checkpoint(const collab::CheckpointJob& job,
                                       const collab::Engine& engine);
  /// The same in two steps. The inner state is written when Begin returns and workers may go on;
  /// the state may be read, but not change until Finish returns, which may run on another thread.
  Result<store::PendingCheckpoint> BeginCheckpoint(const collab::CheckpointJob& job,
                                                   const collab::Engine& engine);
  Result<std::vector<Hash>> FinishCheckpoint(Round round, store::PendingCheckpoint pending,
                                             const collab::Engine& engine);
  /// What to send to the one that asked.
  std::optional<collab::Message> Answer(const collab::Serve& serve) const;

 private:
  Status DropOldVotes();
  /// What was asked for, checked against its hash; null when it is not here any more.
  Blob Find(const collab::Serve& serve) const;

  store::PeerFolder* folder_;
  store::StateLayout state_layout_;
  const collab::TileLayout* layout_;
  std::map<Round, Hash> round_ids_;
};

/// Runs a job of the compute thread, except CheckpointJob, which is the DiskExecutor's. Remembers
/// the last root it computed, so that a record's step costs no second hashing of the whole state.
class JobRunner {
 public:
  explicit JobRunner(collab::Engine& engine) : engine_(&engine) {}
  /// `cut` stops a WorkJob after its current step. A WorkResult's millis are left to the caller.
  collab::JobResult Run(const collab::Job& job, const std::atomic<bool>& cut);

 private:
  Status Apply(const collab::ApplyJob& job);
  Status LoadState(const collab::LoadStateJob& job);

  collab::Engine* engine_;
  Blob checked_;  ///< its step leads to checked_root_; null: nothing is known
  Hash checked_root_;
};

}  // namespace loom::node
