// The numbers of a round, on plain spans: the workers' contributions, their encoding with error
// feedback, the reduce, the next root, the step. Owner: the compute thread (in the simulator:
// virtual time). It knows nothing of peers, terms or messages; the round machine knows nothing of
// floats.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "agreed/flat_buffer.h"
#include "agreed/parallel.h"
#include "agreed/state.h"
#include "agreed/tile_grid.h"
#include "base/bytes.h"
#include "base/stream.h"
#include "codec/codec.h"
#include "collab/exact.h"
#include "collab/method.h"
#include "collab/sync_config.h"
#include "collab/worker.h"

namespace loom::collab {

/// Where each encoded tile stands in the encoded whole. In exact mode the widths are those of fp32,
/// and a sum of units is kWide times as wide.
class TileLayout {
 public:
  TileLayout(const agreed::TileGrid& grid, const SyncConfig& config, const codec::Codec& codec);
  std::size_t num_tiles() const { return offsets_.size() - 1; }
  std::size_t num_tensors() const { return num_tensors_; }
  std::size_t num_planes() const { return num_planes_; }
  std::uint64_t Offset(std::size_t tile) const { return offsets_[tile]; }
  std::uint64_t Size(std::size_t tile) const { return offsets_[tile + 1] - offsets_[tile]; }
  std::uint64_t total() const { return offsets_.back(); }
  /// Bytes of the tile's planes.
  std::uint64_t StateSize(std::size_t tile) const { return state_sizes_[tile]; }
  ByteView View(ByteView whole, std::size_t tile) const {
    return whole.subspan(Offset(tile), Size(tile));
  }

 private:
  std::size_t num_tensors_ = 0;
  std::size_t num_planes_ = 0;
  std::vector<std::uint64_t> offsets_;
  std::vector<std::uint64_t> state_sizes_;
};

/// What one worker did of a contribution.
struct WorkShare {
  WorkerIndex worker = 0;
  std::uint64_t samples = 0;
  std::uint64_t tokens = 0;
  bool operator==(const WorkShare&) const = default;
};

/// A host's encoded contribution: of one worker, in exact mode of one or several.
struct EncodedWork {
  WorkDone done;  ///< summed over the workers
  std::vector<WorkShare> shares;
  Blob encoded;              ///< every tile, as TileLayout says; null: see below
  std::vector<Hash> hashes;  ///< SHA-256 of each encoded tile
  // Exact mode. A unit that breaks a bound or is not finite leaves nothing to send.
  std::vector<Exponent> exponents;      ///< of each tensor, over the units that are finite
  std::vector<WorkerIndex> not_finite;  ///< workers with a unit that is not
};

/// One contribution's bytes for a run of tiles.
struct ReduceInput {
  float weight = 0;          ///< in the mean; not used in exact mode
  std::uint64_t units = 1;   ///< exact mode: more than 1 means int64
  std::vector<Slice> tiles;  ///< one a tile of the run
};

struct NextState {
  Hash root;
  std::vector<Hash> tiles;  ///< hash of each encoded tile of the result
};

/// A run of encoded tiles from a peer, and what was said of them.
struct TileClaim {
  std::size_t first = 0;
  std::vector<Hash> hashes;
  std::uint64_t units = 1;          ///< exact mode
  std::vector<Exponent> exponents;  ///< exact mode
  Bounds bounds;                    ///< exact mode
};

class Engine {
 public:
  using WorkerFactory = std::function<Result<std::unique_ptr<Worker>>(WorkerIndex)>;

  /// The state starts at zero. An error when there is no memory for it.
  static Result<Engine> Make(agreed::TileGrid grid, const SyncConfig& config,
                             codec::CodecKind codec, agreed::Isa isa, WorkerFactory factory);

  /// Cores for what is done tile by tile to a whole state or contribution; the bits stay the same.
  void LendCores(agreed::ParallelFor parallel) { parallel_ = std::move(parallel); }
  /// Other settings from here on, of the same method, codec and workers.
  void Configure(const SyncConfig& config);
  const agreed::TileGrid& grid() const { return grid_; }
  const TileLayout& layout() const { return layout_; }
  agreed::State& state() { return state_; }
  const agreed::State& state() const { return state_; }
  std::span<float> weights() { return state_.weights(); }
  Hash Root() const;

  /// Does the order and encodes its result plus the worker's residual. The new residual waits for
  /// Settle. Errors: what the worker says, or a result that is not finite (kInvalid).
  Result<EncodedWork> Work(const WorkOrder& order, const std::atomic<bool>& cut);
  /// Exact mode: every unit of the orders, summed under these bounds. A cut between two units gives
  /// work without samples.
  Result<EncodedWork> SumUnits(std::span<const WorkOrder> orders, const Bounds& bounds,
                               const std::atomic<bool>& cut);
  /// The outcome of the worker's last Work (R21): recorded, or left out of the round.
  void Settle(WorkerIndex worker, bool used);

  /// Tiles from a peer: hash, decode, finite and not so large that a step could end otherwise, norm
  /// within the limit, exact bounds kept (R19).
  Status CheckPart(const TileClaim& claim, ByteView bytes) const;
  /// Combines the inputs in the order given and encodes once (R20); in exact mode the order does
  /// not matter and `bounds` are those of the step. The result is as wide as the run.
  Result<Bytes> Reduce(std::size_t first, std::size_t count, std::span<const ReduceInput> inputs,
                       const Bounds& bounds = {}) const;
  /// The root after the step, without taking it (R5); every tile is decoded and must be finite.
  /// `tiles`: the hashes of the encoded tiles, where the caller knows them.
  Result<NextState> Next(ByteView reduced, const agreed::StepClock& clock,
                         std::vector<Hash> tiles = {}) const;
  /// Takes the step. Requires: the same bytes and clock passed Next.
  Status Apply(ByteView reduced, const agreed::StepClock& clock);
  /// The planes of one tile, as its state leaf hashes them.
  Bytes StateTile(std::size_t tile) const;
  /// An error changes nothing: another size, a value that is not finite.
  Status LoadStateTile(std::size_t tile, ByteView bytes);
  /// Proof that the caller holds this state: a hash over sampled state tiles that `salt` chooses
  /// (R11).
  Hash Possession(const PeerId& peer, const Hash& salt) const;

  /// The workers with inner state that a checkpoint has to keep: those that have worked here.
  std::vector<WorkerIndex> InnerWorkers() const;
  /// A worker's inner state and error feedback. Requires: it is one of InnerWorkers.
  Status SaveInner(WorkerIndex worker, ByteSink& out) const;
  /// All that is left of `in`. After an error the worker's state is not defined.
  Status RestoreInner(WorkerIndex worker, ByteSource& in);

 private:
  /// With a lossy codec a worker trains in its own candidate buffer, which then holds what the
  /// codec left out: one buffer less than if the two lay apart.
  struct Local {
    std::unique_ptr<Worker> worker;
    agreed::FlatBuffer residual;   ///< current; empty until the first lossy work
    agreed::FlatBuffer candidate;  ///< becomes current with the record
  };
  Engine(agreed::TileGrid grid, const SyncConfig& config, codec::CodecKind codec, agreed::Isa isa,
         WorkerFactory factory, agreed::State state);
  Result<Local*> LocalOf(WorkerIndex index);
  Status MakeFeedback(Local& local) const;
  /// The buffer that all workers share where nothing in it outlives their work.
  Result<std::span<float>> SharedWork();
  /// body(begin, end) for ranges of tiles, perhaps at the same time; of several errors that of the
  /// first tile, when each range ends with its own first.
  Status ForRanges(const std::function<Status(std::size_t, std::size_t)>& body) const;
  Result<agreed::StepScalars> ScalarsOf(ByteView reduced, const agreed::StepClock& clock) const;
  /// Below 2^kMaxExponent and finite: kInvalid, naming the tensor.
  Status CheckMagnitude(std::span<const float> x, std::size_t tensor) const;
  bool IsMatrix(const agreed::Tile& tile) const {
    return grid_.tensors()[tile.tensor].shape.size() >= 2;
  }

  agreed::TileGrid grid_;
  SyncConfig config_;
  std::unique_ptr<codec::Codec> codec_;
  agreed::Isa isa_;
  agreed::ParallelFor parallel_ = agreed::OneThread();
  std::unique_ptr<SyncMethod> method_;
  TileLayout layout_;
  WorkerFactory factory_;
  agreed::State state_;
  agreed::FlatBuffer work_;  ///< SharedWork, once needed
  std::map<WorkerIndex, Local> locals_;
};

}  // namespace loom::collab
