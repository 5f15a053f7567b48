// Checkpoints of the agreed state and of what a peer needs to go on. A checkpoint is a folder that
// is written aside, synced and renamed, so that it is there whole or not at all:
//
//   checkpoints/<round>/state.bin       tile 0 of every plane | tile 1 of every plane | ...
//                                       (fp32 LE; planes: weights, then the step rule's slots)
//                       leaves.bin      SHA-256 of each tile's region of state.bin
//                       extra/NAME.bin  inner optimizer, error feedback, cursors
//                       manifest.json   written last: size and SHA-256 of every file
//
// Leaf i is the content hash of one contiguous region, so state is served and fetched tile by tile,
// from several donors, with the root of the record as the only thing to trust.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "agreed/state.h"
#include "base/id.h"
#include "base/stream.h"
#include "store/file_system.h"

namespace loom::store {

/// One tile: `size` elements from `offset` of every plane, of tensor number `tensor`.
struct StateTile {
  std::uint32_t tensor = 0;
  std::uint64_t offset = 0;
  std::uint32_t size = 0;
};

/// The tile grid as the store needs it; built from agreed::TileGrid by the caller.
struct StateLayout {
  std::vector<std::string> tensors;  ///< names, for messages
  std::vector<StateTile> tiles;      ///< the order of the leaves and of state.bin
  std::uint64_t flat_size = 0;       ///< elements of a plane, padding included
  std::size_t planes = 2;            ///< weights and slots
  Hash grid;                         ///< identifies the grid
};

struct CheckpointInfo {
  Round round = 0;
  Hash record;  ///< hash of the record of that round
  Hash root;    ///< state root that the record names
};

/// Becomes extra/<name>.bin, with what `write` gives. Names are [a-z0-9_-]{1,64}.
struct ExtraWriter {
  std::string name;
  std::function<Status(ByteSink&)> write;
};
/// Reads all of an extra file.
using ExtraReader = std::function<Status(ByteSource&)>;

struct ExtraFile {
  std::string name;
  std::uint64_t size = 0;
};

struct LoadedCheckpoint {
  CheckpointInfo info;
  std::vector<ExtraFile> extras;
  std::vector<std::string>
      skipped;  ///< newer ones that were damaged: what and where, one line each
};

/// Reads state tiles of one checkpoint for donors. The checkpoint may not be pruned meanwhile.
class StateFile {
 public:
  std::size_t num_tiles() const { return leaves_.size(); }
  const std::vector<Hash>& leaves() const { return leaves_; }
  const CheckpointInfo& info() const { return info_; }
  std::size_t TileBytes(std::size_t tile) const { return sizes_[tile]; }
  /// The tile of every plane, verified against leaf `tile`.
  Result<Bytes> ReadTile(std::size_t tile) const;

 private:
  friend class Checkpoints;
  CheckpointInfo info_;
  std::string path_;
  std::unique_ptr<File> file_;
  std::vector<Hash> leaves_;
  std::vector<std::uint64_t> offsets_;
  std::vector<std::uint32_t> sizes_;
  std::vector<std::string> tensors_;
};

class HashedFile;

/// A checkpoint whose extra files are written, and nothing else of it yet. What is not finished is
/// removed by Clean.
class PendingCheckpoint {
 public:
  ~PendingCheckpoint();
  PendingCheckpoint(PendingCheckpoint&&) noexcept;
  PendingCheckpoint& operator=(PendingCheckpoint&&) noexcept;

 private:
  friend class Checkpoints;
  PendingCheckpoint();
  CheckpointInfo info_;
  std::string aside_;  ///< the folder that it is written in
  std::vector<std::unique_ptr<HashedFile>> extras_;
};

inline constexpr std::size_t kMaxExtras = 2048;
inline constexpr std::size_t kDefaultKeptCheckpoints = 2;

/// The checkpoints of one peer's folder. Owner thread: the storage thread (spans are read there, so
/// their owner does not change them until the call returns).
class Checkpoints {
 public:
  Checkpoints(FileSystem& fs, std::string folder, std::size_t keep = kDefaultKeptCheckpoints)
      : fs_(&fs), folder_(std::move(folder)), keep_(keep < 1 ? 1 : keep) {}

  /// Removes what an interrupted save left behind. Call once at start.
  Status Clean();
  /// Writes a checkpoint, then prunes. Refuses (kInvalid, naming the tensor) a value that is not
  /// finite, and (kCorrupt) a state whose root is not info.root; a zero root is filled in. When it
  /// fails, kDiskFull included, the older ones are as they were. Saving a round again replaces it.
  Result<CheckpointInfo> Save(const CheckpointInfo& info, const StateLayout& layout,
                              const agreed::ConstPlanes& planes,
                              std::span<const ExtraWriter> extras);
  /// Save in two steps, for a caller whose extras change sooner than its planes: they are written
  /// (and not yet synced) when Begin returns. Finish may run on another thread.
  Result<PendingCheckpoint> Begin(const CheckpointInfo& info, std::span<const ExtraWriter> extras);
  Result<CheckpointInfo> Finish(PendingCheckpoint pending, const StateLayout& layout,
                                const agreed::ConstPlanes& planes);
  /// Verifies every file and every tile; a bad tile is named by tensor and file offset. On failure
  /// the planes hold a part of the state.
  Result<LoadedCheckpoint> Load(Round round, const StateLayout& layout,
                                const agreed::Planes& planes) const;
  /// The newest one that verifies, of at most `newest`; kNotFound lists why each was skipped.
  Result<LoadedCheckpoint> LoadLastGood(const StateLayout& layout, const agreed::Planes& planes,
                                        Round newest = UINT64_MAX) const;
  /// Gives one extra file to `read`, a piece at a time. Its hash is known to be right only once
  /// this has returned ok: Load, which verifies every file, comes before.
  Status ReadExtra(Round round, const std::string& name, const ExtraReader& read) const;
  Result<StateFile> OpenState(Round round, const StateLayout& layout) const;
  /// Rounds that have a checkpoint with a readable manifest and files of the right size, ascending.
  std::vector<Round> List() const;
  /// Removes one, whatever else is there (of an orphaned history, after a reset).
  Status Remove(Round round);

 private:
  Status WriteExtras(PendingCheckpoint& pending, std::span<const ExtraWriter> extras) const;
  Status WriteState(PendingCheckpoint& pending, const StateLayout& layout,
                    const agreed::ConstPlanes& planes) const;
  Result<LoadedCheckpoint> Verify(Round round, const StateLayout& layout,
                                  const agreed::Planes& planes) const;
  std::vector<Round> AllRounds() const;
  /// Keeps the one just saved and the newest others that look good.
  void Prune(Round saved);

  FileSystem* fs_;
  std::string folder_;
  std::size_t keep_;
};

}  // namespace loom::store
