// The reduced bytes of one round, in one file: what a member needs to rebuild W(r) from W(r-1)
// (rule R6) and what donors serve to joiners (R11). Tiles are verified one by one when read, so a
// large round never needs to be in memory at once.
//
//   file = magic "LOOMRND1" | u32 version | u32 tiles | u64 round |
//          (u32 size | SHA-256)*tiles | SHA-256 of all before | tile bytes
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/id.h"
#include "store/file_system.h"

namespace loom::store {

inline constexpr std::size_t kMaxRoundTiles = 1u << 22;
inline constexpr std::size_t kMaxEncodedTile = 4u << 20;

/// Owner thread: the storage thread.
class RoundFile {
 public:
  static Result<RoundFile> Open(const FileSystem& fs, const std::string& path, Round round);

  Round round() const { return round_; }
  std::size_t num_tiles() const { return hashes_.size(); }
  const std::vector<Hash>& hashes() const { return hashes_; }
  std::size_t TileBytes(std::size_t tile) const { return sizes_[tile]; }
  std::uint64_t TotalBytes() const { return offsets_.back() - offsets_.front(); }
  /// Verified against its hash; kCorrupt names the file, tile and offset.
  Result<Bytes> ReadTile(std::size_t tile) const;

 private:
  Round round_ = 0;
  std::string path_;
  std::unique_ptr<File> file_;
  std::vector<Hash> hashes_;
  std::vector<std::uint32_t> sizes_;
  std::vector<std::uint64_t> offsets_;  ///< in the file; one more than tiles
};

/// Written aside, synced, renamed, folder synced. `hashes` are those of the tiles.
Status WriteRoundFile(FileSystem& fs, const std::string& path, Round round,
                      std::span<const ByteView> tiles, std::span<const Hash> hashes);

}  // namespace loom::store
