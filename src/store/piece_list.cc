#include "store/piece_list.h"

#include <algorithm>

#include "crypto/hash.h"
#include "wire/bytes_io.h"

namespace loom::store {
namespace {

std::size_t NumPieces(std::uint64_t size) {
  return size == 0 ? 1 : static_cast<std::size_t>((size + kPieceBytes - 1) / kPieceBytes);
}

}  // namespace

Hash PieceList::Root() const { return crypto::MerkleRoot(pieces); }

std::size_t PieceList::PieceSize(std::size_t i) const {
  return static_cast<std::size_t>(std::min<std::uint64_t>(kPieceBytes, size - i * kPieceBytes));
}

Bytes PieceList::Encode() const {
  wire::Writer out;
  out.Int(size);
  out.Count(pieces.size());
  for (const Hash& piece : pieces) out.Id(piece);
  return std::move(out).Take();
}

Result<PieceList> PieceList::Decode(ByteView bytes) {
  wire::Reader in(bytes);
  PieceList list;
  list.size = in.Int<std::uint64_t>();
  list.pieces.resize(in.Count(kMaxPieces, 32));
  for (Hash& piece : list.pieces) piece = in.GetId<HashTag>();
  LOOM_RETURN_IF_ERROR(in.Finish("piece list"));
  if (list.size > std::uint64_t{kMaxPieces} * kPieceBytes ||
      list.pieces.size() != NumPieces(list.size)) {
    return MakeError(Code::kCorrupt, fmt::format("piece list: {} pieces for {} bytes",
                                                 list.pieces.size(), list.size));
  }
  return list;
}

PieceList PieceList::Of(ByteView bytes) {
  PieceList list{bytes.size(), {}};
  for (std::size_t i = 0; i < NumPieces(bytes.size()); ++i) {
    list.pieces.push_back(crypto::Sha256(bytes.subspan(i * kPieceBytes, list.PieceSize(i))));
  }
  return list;
}

}  // namespace loom::store
