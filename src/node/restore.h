// What a peer's folder says about it after any end, kill -9 and power cuts included (R3, R6, R9):
// the records, the last words of this key, and the state, rebuilt from the last good checkpoint and
// the reduced bytes synced since. Knows nothing of libtorch; the simulator restores its peers by
// this very function.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "collab/engine.h"
#include "collab/peer.h"
#include "store/peer_folder.h"

namespace loom::node {

struct Restored {
  collab::PeerRestore peer;
  Round state = 0;                 ///< the engine now holds the state after this record
  std::vector<std::string> notes;  ///< what was damaged or missing and passed over, one line each
};

/// Fills the weights with the run's first ones; the slots beside them are zero.
using FirstWeights = std::function<Status(std::span<float> weights)>;

/// Leaves the engine with the newest state that the folder can rebuild, checked root by root, and
/// with the inner state of the own workers. What `self` voted for alone is decided, and recorded if
/// it was not. Rounds that it did alone are worked out again; that gives back the inner state, and
/// the reduced bytes when their file is damaged. In exact mode any round can be worked out again.
/// Errors: a log damaged in the middle, records that do not follow from each other, first weights
/// of another root than the genesis record's, lost bytes that no other peer can ever have had
/// (kCorrupt). Thread: the storage thread, with nobody else using the engine.
struct RestoreContext {
  const collab::Record& genesis;
  PeerId self;
  const collab::SyncConfig& config;    ///< of genesis
  const collab::Signer& signer;        ///< only to check
  collab::ReadSettings read_settings;  ///< of owners' orders
  FirstWeights first_weights;
  /// Before each round that is applied; `again`: its work is done again, which takes time.
  std::function<void(Round round, Round last, bool again)> progress = {};
  const std::atomic<bool>* cut = nullptr;  ///< true: end with kRefused, nothing is changed
};
Result<Restored> RestorePeer(store::PeerFolder& folder, collab::Engine& engine,
                             const RestoreContext& context);

/// The grid as the store needs it.
store::StateLayout StateLayoutOf(const agreed::TileGrid& grid, std::size_t planes);

/// The name of a worker's inner state among a checkpoint's extras.
std::string InnerName(WorkerIndex worker);
/// The id that the bytes of a round have in a folder.
Hash RoundIdOf(const collab::Body& body);
/// The reduced bytes of a round; kCorrupt where the layout needs others.
Result<Blob> WholeRound(const store::RoundFile& file, const collab::TileLayout& layout,
                        Round round);
/// Makes the reduced bytes of a round durable, tile by tile; `tiles` are their hashes.
Status WriteRound(store::PeerFolder& folder, const collab::TileLayout& layout, Round round,
                  ByteView reduced, const std::vector<Hash>& tiles);

}  // namespace loom::node
