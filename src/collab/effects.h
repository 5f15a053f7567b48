// How the core speaks (rule R38). A state machine of this layer takes messages, expired timers and
// completions, and returns these effects; it does nothing else. The daemon carries them out on its
// reactor, storage and compute threads, the simulator on its virtual network, disk and cost model.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "base/time.h"
#include "collab/engine.h"
#include "collab/messages.h"

namespace loom::collab {

struct Send {
  PeerId to;
  Message message;
  /// The receiver asked for it again. A link that stayed up has lost nothing: not worth sending
  /// while bulk still waits there.
  bool again = false;
};

/// Work for the storage thread. Done in the order given; OnPersisted(token) comes back when synced.
struct AppendVote {
  Bytes entry;
};
struct AppendRecord {
  Bytes record;
};
struct WriteRound {
  Round round = 0;
  Blob reduced;             ///< every encoded tile, as TileLayout says
  std::vector<Hash> tiles;  ///< the hash of each
};
/// Another history won (R14): the records after `keep` go to orphaned.log, with checkpoints and
/// bytes of later rounds they leave this run, and `records` follow.
struct Rewind {
  Round keep = 0;
  std::vector<Bytes> records;
};
struct Persist {
  std::uint64_t token = 0;  ///< 0: nobody waits for it
  std::variant<AppendVote, AppendRecord, WriteRound, Rewind> what;
};

/// Jobs for the compute thread, done in the order given; OnComputed(job, result) comes back.
struct WorkJob {
  std::vector<WorkOrder> orders;  ///< one; in exact mode all whose units are summed here
  Bounds bounds;                  ///< exact mode
};
struct CheckPartJob {
  TileClaim claim;
  Slice tiles;
};
struct ReduceJob {
  TileRun run;
  std::vector<ReduceInput> inputs;
  Bounds bounds;  ///< exact mode
};
struct NextJob {
  Blob reduced;
  agreed::StepClock clock;
  std::vector<Hash> tiles;  ///< the hash of each encoded tile, already held against its bytes
};
/// Takes the step of a record and tells the workers' error feedback what became of their work.
struct ApplyJob {
  Round round = 0;
  Blob reduced;  ///< null: a record without contributions, the state stays
  agreed::StepClock clock;
  Hash root;  ///< the record's; another one is an error that names both
  std::vector<std::pair<WorkerIndex, bool>> settle;
};
struct PossessionJob {
  PeerId peer;
  Hash salt;
};
/// A fetched state: every tile in order, then the root.
struct LoadStateJob {
  Round round = 0;
  std::vector<Blob> tiles;
  Hash root;
};
/// Write a checkpoint of the state as it is now, with the inner state of the own workers.
struct CheckpointJob {
  Round round = 0;
  Hash record;
  Hash root;
};
using Job = std::variant<WorkJob, CheckPartJob, ReduceJob, NextJob, ApplyJob, PossessionJob,
                         LoadStateJob, CheckpointJob>;
struct Compute {
  std::uint64_t job = 0;
  Job what;
};
/// Stop the work job after its current inner step; it still completes, with what was done.
struct CutWork {};

struct WorkResult {
  Result<EncodedWork> work;
  std::uint32_t millis = 0;
};
/// CheckpointJob: the leaves of the state that was written.
using JobResult = std::variant<WorkResult, Status, Result<Bytes>, Result<NextState>, Hash,
                               Result<std::vector<Hash>>>;

/// Send an object to a peer that asked for it: a tile of a round's reduced bytes, a state tile of
/// the newest checkpoint, or an object of the store; or a record that is no longer whole in memory,
/// as RecordMessage. What cannot be read is answered NotHere, a record not at all.
struct Serve {
  PeerId to;
  Hash id;
  enum class From : std::uint8_t { kRound, kCheckpoint, kObjects, kRecords } from = From::kObjects;
  Round round = 0;
  std::uint32_t tile = 0;
};

/// Something a person or a log may want to know; no protocol meaning.
struct Event {
  enum class Kind : std::uint8_t {
    kRound,     ///< a record was committed and applied
    kPhase,     ///< work, scatter, reduce, vote
    kExcluded,  ///< a contribution was left out, with the reason
    kListed,    ///< a peer became a member
    kDelisted,  ///< a peer is no member any more
    kTakeover,  ///< a term began after the first
    kWaiting,   ///< no quorum: for whom
    kSyncing,   ///< catching up
    kProblem,   ///< anything a person should read
    kOwner,     ///< an owner's order or reset was taken up
    kStopped,   ///< this peer is done: left, finished or failed
  };
  Kind kind = Kind::kProblem;
  Round round = 0;
  PeerId peer;
  std::string text;
  bool by_order = false;  ///< kOwner: an order; others: it follows from one, it is no accident
};
struct Tell {
  Event event;
};

/// Everything that this object knows is on disk, and the settings or the history are others now:
/// let it go and start a new one from the folder. It hears nothing any more.
struct Reload {};

using Effect = std::variant<Send, Persist, Compute, CutWork, Serve, Tell, Reload>;
using Effects = std::vector<Effect>;

}  // namespace loom::collab
