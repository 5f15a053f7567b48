// Content-addressed objects: objects/<id>. The id of an object is the Merkle root over the SHA-256
// of its 1 MiB pieces, which for an object of at most one piece is plainly its SHA-256. Pieces are
// objects too, so an interrupted transfer goes on where it was, from any donor.
#pragma once

#include <string>
#include <vector>

#include "base/id.h"
#include "store/file_system.h"

namespace loom::store {

inline constexpr std::size_t kPieceBytes = 1u << 20;
inline constexpr std::size_t kMaxPieces = 1u << 22;  ///< 4 TiB

/// What a fetcher needs to know of an object larger than a piece. Trusted only once Root() is the
/// id that was asked for.
struct PieceList {
  std::uint64_t size = 0;
  std::vector<Hash> pieces;

  Hash Root() const;
  /// Bytes of piece i.
  std::size_t PieceSize(std::size_t i) const;
  Bytes Encode() const;
  static Result<PieceList> Decode(ByteView bytes);
  static PieceList Of(ByteView bytes);
};

/// Owner thread: the storage thread.
class ObjectStore {
 public:
  ObjectStore(FileSystem& fs, std::string folder) : fs_(&fs), folder_(std::move(folder)) {}

  /// Removes half-written files. Call once at start.
  Status Clean();
  /// Stores durably (aside, synced, renamed) and returns the id; ok when it is there already.
  Result<Hash> Put(ByteView bytes);
  bool Has(const Hash& id) const;
  Result<std::uint64_t> Size(const Hash& id) const;
  /// Verified; kCorrupt names the file.
  Result<Bytes> Get(const Hash& id, std::uint64_t max_bytes) const;
  /// The pieces of a stored object, hashed from its bytes and checked against its id.
  Result<PieceList> Pieces(const Hash& id) const;
  /// Piece i of a stored object, checked against `list`.
  Result<Bytes> GetPiece(const Hash& id, const PieceList& list, std::size_t i) const;
  /// Which pieces of the list are stored as objects.
  std::vector<bool> HeldPieces(const PieceList& list) const;
  /// Joins stored pieces to the whole object and removes the pieces.
  Status Assemble(const PieceList& list);
  Status Remove(const Hash& id);
  /// A path for readers that map files (shards). Verify with Pieces() before trusting it.
  std::string PathOf(const Hash& id) const;

 private:
  FileSystem* fs_;
  std::string folder_;
};

}  // namespace loom::store
