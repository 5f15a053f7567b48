// Content addresses. The id of an object is the Merkle root over the SHA-256 of its 1 MiB pieces,
// which for an object of at most one piece is plainly its SHA-256. Pieces are fetched by their own
// ids, so an interrupted transfer goes on where it was, from any donor.
#pragma once

#include <vector>

#include "base/id.h"
#include "base/result.h"

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

}  // namespace loom::store
