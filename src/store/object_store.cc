#include "store/object_store.h"

#include <algorithm>

#include "crypto/hash.h"
#include "wire/bytes_io.h"

namespace loom::store {
namespace {

constexpr std::string_view kAsideSuffix = ".tmp";

std::size_t NumPieces(std::uint64_t size) {
  return size == 0 ? 1 : static_cast<std::size_t>((size + kPieceBytes - 1) / kPieceBytes);
}

Error WrongBytes(const std::string& path, std::string_view what) {
  return MakeError(Code::kCorrupt, fmt::format("{}: {} does not match its hash", path, what),
                   "remove the file; it is fetched again from another member");
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

std::string ObjectStore::PathOf(const Hash& id) const { return JoinPath(folder_, id.Hex()); }

Status ObjectStore::Clean() {
  LOOM_ASSIGN(const auto entries, fs_->List(folder_));
  for (const DirEntry& entry : entries) {
    if (entry.name.ends_with(kAsideSuffix)) {
      LOOM_RETURN_IF_ERROR(fs_->Remove(JoinPath(folder_, entry.name)));
    }
  }
  return {};
}

Result<Hash> ObjectStore::Put(ByteView bytes) {
  const Hash id = PieceList::Of(bytes).Root();
  const auto size = Size(id);
  if (size && *size == bytes.size() && Get(id, bytes.size())) return id;
  LOOM_RETURN_IF_ERROR(WriteFileAtomically(*fs_, PathOf(id), bytes));
  return id;
}

bool ObjectStore::Has(const Hash& id) const { return fs_->Exists(PathOf(id)); }

Result<std::uint64_t> ObjectStore::Size(const Hash& id) const { return fs_->Size(PathOf(id)); }

Result<Bytes> ObjectStore::Get(const Hash& id, std::uint64_t max_bytes) const {
  LOOM_ASSIGN(Bytes bytes, ReadWholeFile(*fs_, PathOf(id), max_bytes));
  if (PieceList::Of(bytes).Root() != id) return WrongBytes(PathOf(id), "the content");
  return bytes;
}

Result<PieceList> ObjectStore::Pieces(const Hash& id) const {
  const std::string path = PathOf(id);
  LOOM_ASSIGN(const auto file, fs_->Open(path, OpenMode::kRead));
  LOOM_ASSIGN(const std::uint64_t size, file->Size());
  PieceList list{size, {}};
  if (NumPieces(size) > kMaxPieces) {
    return MakeError(Code::kLimit, fmt::format("{}: {} bytes, the limit is {} pieces of {}", path,
                                               size, kMaxPieces, kPieceBytes));
  }
  Bytes piece;
  for (std::size_t i = 0; i < NumPieces(size); ++i) {
    piece.resize(list.PieceSize(i));
    LOOM_RETURN_IF_ERROR(ReadExactly(*file, path, i * kPieceBytes, piece));
    list.pieces.push_back(crypto::Sha256(piece));
  }
  if (list.Root() != id) return WrongBytes(path, "the content");
  return list;
}

Result<Bytes> ObjectStore::GetPiece(const Hash& id, const PieceList& list, std::size_t i) const {
  const std::string path = PathOf(id);
  if (i >= list.pieces.size()) {
    return MakeError(Code::kNotFound,
                     fmt::format("{}: piece {} of {}", path, i, list.pieces.size()));
  }
  LOOM_ASSIGN(const auto file, fs_->Open(path, OpenMode::kRead));
  Bytes piece(list.PieceSize(i));
  LOOM_RETURN_IF_ERROR(ReadExactly(*file, path, i * kPieceBytes, piece));
  if (crypto::Sha256(piece) != list.pieces[i]) {
    return WrongBytes(path, fmt::format("piece {} at offset {}", i, i * kPieceBytes));
  }
  return piece;
}

std::vector<bool> ObjectStore::HeldPieces(const PieceList& list) const {
  std::vector<bool> held;
  held.reserve(list.pieces.size());
  for (const Hash& piece : list.pieces) held.push_back(Has(piece));
  return held;
}

Status ObjectStore::Assemble(const PieceList& list) {
  const Hash id = list.Root();
  const std::string path = PathOf(id);
  if (list.pieces.size() == 1)
    return Get(id, kPieceBytes).ok() ? Status() : Get(id, kPieceBytes).error();
  const std::string aside = path + std::string(kAsideSuffix);
  const auto write = [&]() -> Status {
    LOOM_ASSIGN(const auto file, fs_->Open(aside, OpenMode::kCreate));
    for (std::size_t i = 0; i < list.pieces.size(); ++i) {
      LOOM_ASSIGN(const Bytes piece, Get(list.pieces[i], kPieceBytes));
      if (piece.size() != list.PieceSize(i)) {
        return MakeError(Code::kCorrupt, fmt::format("{}: piece {} has {} bytes, the list says {}",
                                                     path, i, piece.size(), list.PieceSize(i)));
      }
      LOOM_RETURN_IF_ERROR(file->WriteAt(i * kPieceBytes, piece));
    }
    LOOM_RETURN_IF_ERROR(file->Sync());
    return fs_->Rename(aside, path);
  };
  if (Status status = write(); !status) {
    (void)fs_->Remove(aside);
    return status;
  }
  LOOM_RETURN_IF_ERROR(fs_->SyncDir(folder_));
  for (const Hash& piece : list.pieces) LOOM_RETURN_IF_ERROR(Remove(piece));
  return {};
}

Status ObjectStore::Remove(const Hash& id) { return RemoveTree(*fs_, PathOf(id)); }

}  // namespace loom::store
