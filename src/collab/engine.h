// The numbers of a round, on plain spans: inner work, encoding with error feedback, the reduce, the
// next root, the step. Owner: the compute thread (in the simulator: virtual time). It knows nothing
// of peers, terms or messages; the round machine knows nothing of floats.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "agreed/flat_buffer.h"
#include "agreed/outer.h"
#include "agreed/tile_grid.h"
#include "base/bytes.h"
#include "codec/codec.h"
#include "collab/sync_config.h"
#include "collab/worker.h"

namespace loom::collab {

/// Where each encoded tile stands in the encoded whole.
class TileLayout {
 public:
  TileLayout(const agreed::TileGrid& grid, const codec::Codec& codec);
  std::size_t num_tiles() const { return offsets_.size() - 1; }
  std::uint64_t Offset(std::size_t tile) const { return offsets_[tile]; }
  std::uint64_t Size(std::size_t tile) const { return offsets_[tile + 1] - offsets_[tile]; }
  std::uint64_t total() const { return offsets_.back(); }
  /// Bytes of the tile's W and B.
  std::uint64_t StateSize(std::size_t tile) const { return state_sizes_[tile]; }
  ByteView View(ByteView whole, std::size_t tile) const {
    return whole.subspan(Offset(tile), Size(tile));
  }

 private:
  std::vector<std::uint64_t> offsets_;
  std::vector<std::uint64_t> state_sizes_;
};

/// A run of encoded tiles that several holders share without a copy.
struct Slice {
  Blob blob;
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  ByteView View() const { return ByteView(*blob).subspan(offset, size); }
};

/// A worker's encoded pseudo-gradient.
struct EncodedWork {
  WorkDone done;
  Blob encoded;              ///< every tile, as TileLayout says
  std::vector<Hash> hashes;  ///< SHA-256 of each encoded tile
};

/// One contribution's bytes for a run of tiles, and its weight in the mean.
struct ReduceInput {
  float weight = 0;
  std::vector<Slice> tiles;  ///< one a tile of the run
};

struct NextState {
  Hash root;
  std::vector<Hash> tiles;  ///< hash of each encoded tile of the result
};

class Engine {
 public:
  using WorkerFactory = std::function<Result<std::unique_ptr<Worker>>(WorkerIndex)>;

  /// W and B start at zero; fill weights() and SetRoot follows from Root().
  Engine(agreed::TileGrid grid, const SyncConfig& config, codec::CodecKind codec, agreed::Isa isa,
         WorkerFactory factory);

  const agreed::TileGrid& grid() const { return grid_; }
  const TileLayout& layout() const { return layout_; }
  std::span<float> weights() { return w_.span(); }
  std::span<float> momentum() { return b_.span(); }
  Hash Root() const;

  /// Runs the order from W and encodes W - θ plus the worker's residual. The new residual waits for
  /// Settle. Errors: what Worker::Work says, or a difference that is not finite (kInvalid).
  Result<EncodedWork> Work(const WorkOrder& order, const std::atomic<bool>& cut);
  /// The outcome of the worker's last Work (R21): recorded, or left out of the round.
  void Settle(WorkerIndex worker, bool used);

  /// A run of encoded tiles from a peer: hash, decode, finite, norm within the limit (R19).
  Status CheckPart(std::size_t first, ByteView bytes, std::span<const Hash> hashes) const;
  /// Combines the inputs in the order given and encodes once (R20). The result is as wide as the
  /// run.
  Result<Bytes> Reduce(std::size_t first, std::size_t count,
                       std::span<const ReduceInput> inputs) const;
  /// The root after the step, without taking it (R5); every tile is decoded and must be finite.
  Result<NextState> Next(ByteView reduced) const;
  /// Takes the step. Requires: the same bytes passed Next.
  Status Apply(ByteView reduced);
  /// W tile | B tile of one tile, as its state leaf hashes it.
  Bytes StateTile(std::size_t tile) const;
  Status LoadStateTile(std::size_t tile, ByteView bytes);
  /// Proof that the caller holds this state: a hash over sampled state tiles that `salt` chooses
  /// (R11).
  Hash Possession(const PeerId& peer, const Hash& salt) const;

  /// Inner state of the workers that have worked here, for checkpoints, and back.
  std::map<WorkerIndex, Bytes> SaveInner() const;
  Status RestoreInner(WorkerIndex worker, ByteView bytes);

 private:
  struct Local {
    std::unique_ptr<Worker> worker;
    agreed::FlatBuffer residual;   ///< current; empty until the first lossy work was recorded
    agreed::FlatBuffer candidate;  ///< becomes current with the record
  };
  Result<Local*> LocalOf(WorkerIndex index);

  agreed::TileGrid grid_;
  SyncConfig config_;
  std::unique_ptr<codec::Codec> codec_;
  agreed::Isa isa_;
  agreed::OuterConfig outer_;
  TileLayout layout_;
  WorkerFactory factory_;
  agreed::FlatBuffer w_, b_;
  agreed::FlatBuffer theta_;  ///< trained weights of the worker at work; made at the first Work
  std::map<WorkerIndex, Local> locals_;
};

}  // namespace loom::collab
