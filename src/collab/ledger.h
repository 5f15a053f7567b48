// From one record to the next: ranges, fates, the data cursor, members and workers (rules R10-R12,
// R16, R17, R22). Everything that is not a leader's choice is a pure function of the parent record,
// so a body is checked by building it again from its own choices and comparing.
#pragma once

#include <optional>
#include <vector>

#include "collab/record.h"
#include "collab/sync_config.h"

namespace loom::collab {

/// A joiner that proved possession of the parent state. `invite` is empty for a peer that the chain
/// already knows.
struct Joiner {
  crypto::PublicKey key;
  std::optional<Hash> invite;
};

/// What the leader saw. The rest of the body follows.
struct Choices {
  std::vector<Contribution> contributions;  ///< ascending by worker
  std::vector<WorkerIndex>
      spoiled;  ///< workers whose unused samples are lost: their work was not finite
  std::vector<agreed::Exponent> exponents;  ///< exact mode: over all units of the step
  std::vector<PeerId> stay;                 ///< members that remain listed
  std::vector<Joiner> join;                 ///< at most max(1, stay - 1)
  std::vector<PeerId> bans;
  std::vector<Hash> tiles;
  Hash root;
  std::optional<Order> order;  ///< taken up; then nobody contributes
  /// Of the state that an order returns to, from its record.
  std::uint64_t steps = 0;
  std::optional<Era> reset;  ///< the body is an owner's reset that begins this era (R14)
};

/// The genesis body: first members, first issue of ranges. payload is the encoded Genesis.
Body GenesisBody(const Bytes& genesis, const crypto::PublicKey& founder, const Hash& root,
                 const SyncConfig& config);

Body NextBody(const Body& parent, const Hash& parent_hash, const RunId& run,
              const SyncConfig& config, const Choices& choices);

/// Ok when `body` is what NextBody makes of its own choices and those are legal. Whether an order
/// is an owner's, and its return to an older state that record's, only the whole chain can tell.
Status CheckNextBody(const Body& parent, const Hash& parent_hash, const RunId& run,
                     const SyncConfig& config, std::size_t num_tiles, const Body& body);

/// Whether the run ends with this record: after config.rounds rounds, in exact mode after as many
/// steps, because empty records may stand between them.
bool Finished(const Body& body, const SyncConfig& config);

/// The first `samples` samples of the ranges, as ranges; nullopt when there are fewer.
std::optional<std::vector<Range>> Prefix(const std::vector<Range>& ranges, std::uint64_t samples);
/// What is left after that prefix.
std::vector<Range> Suffix(const std::vector<Range>& ranges, std::uint64_t samples);
std::uint64_t CountSamples(const std::vector<Range>& ranges);

/// The order of a worker for the round after `parent`; nullopt when it sleeps.
std::optional<WorkOrder> OrderOf(const Body& parent, WorkerIndex worker, const SyncConfig& config);

}  // namespace loom::collab
