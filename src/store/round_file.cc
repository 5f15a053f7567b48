#include "store/round_file.h"

#include <array>

#include "crypto/hash.h"
#include "wire/bytes_io.h"

namespace loom::store {
namespace {

constexpr std::string_view kMagic = "LOOMRND1";
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kFixedBytes = 24;
constexpr std::size_t kTileBytes = 36;

}  // namespace

Status WriteRoundFile(FileSystem& fs, const std::string& path, Round round,
                      std::span<const ByteView> tiles, std::span<const Hash> hashes) {
  LOOM_CHECK(tiles.size() == hashes.size(), "{} tiles, {} hashes", tiles.size(), hashes.size());
  if (tiles.size() > kMaxRoundTiles) {
    return MakeError(Code::kLimit, fmt::format("{}: {} tiles, the limit is {}", path, tiles.size(),
                                               kMaxRoundTiles));
  }
  wire::Writer head;
  head.Raw(AsBytes(kMagic));
  head.Int(kVersion);
  head.Int(static_cast<std::uint32_t>(tiles.size()));
  head.Int(round);
  for (std::size_t i = 0; i < tiles.size(); ++i) {
    const ByteView tile = tiles[i];
    if (tile.size() > kMaxEncodedTile) {
      return MakeError(Code::kLimit, fmt::format("{}: a tile of {} bytes, the limit is {}", path,
                                                 tile.size(), kMaxEncodedTile));
    }
    head.Int(static_cast<std::uint32_t>(tile.size()));
    head.Id(hashes[i]);
  }
  head.Id(crypto::Sha256(head.bytes()));

  const std::string aside = path + ".tmp";
  const auto write = [&]() -> Status {
    LOOM_ASSIGN(const auto file, fs.Open(aside, OpenMode::kCreate));
    LOOM_RETURN_IF_ERROR(file->Append(head.bytes()));
    std::uint64_t at = head.bytes().size();
    for (const ByteView tile : tiles) {
      LOOM_RETURN_IF_ERROR(file->WriteAt(at, tile));
      at += tile.size();
    }
    LOOM_RETURN_IF_ERROR(file->Sync());
    return fs.Rename(aside, path);
  };
  if (Status status = write(); !status) {
    (void)fs.Remove(aside);
    return std::move(status).error();
  }
  return fs.SyncDir(ParentPath(path));
}

Result<RoundFile> RoundFile::Open(const FileSystem& fs, const std::string& path, Round round) {
  RoundFile out;
  out.path_ = path;
  out.round_ = round;
  LOOM_ASSIGN(out.file_, fs.OpenToRead(path));
  LOOM_ASSIGN(const std::uint64_t size, out.file_->Size());
  std::array<std::byte, kFixedBytes> fixed{};
  LOOM_RETURN_IF_ERROR(ReadExactly(*out.file_, path, 0, fixed));
  wire::Reader in(fixed);
  if (AsText(in.Raw(kMagic.size())) != kMagic) {
    return MakeError(Code::kCorrupt, fmt::format("{}: does not start with {}", path, kMagic));
  }
  const auto version = in.Int<std::uint32_t>();
  const std::size_t tiles = in.Int<std::uint32_t>();
  const auto stored_round = in.Int<std::uint64_t>();
  if (version != kVersion) {
    return MakeError(Code::kInvalid, fmt::format("{}: format version {}, this program reads {}",
                                                 path, version, kVersion));
  }
  const std::uint64_t table_end = kFixedBytes + std::uint64_t{tiles} * kTileBytes + 32;
  if (tiles > kMaxRoundTiles || table_end > size) {
    return MakeError(Code::kCorrupt,
                     fmt::format("{}: {} tiles do not fit a file of {} bytes", path, tiles, size));
  }
  Bytes table(table_end);
  LOOM_RETURN_IF_ERROR(ReadExactly(*out.file_, path, 0, table));
  const ByteView view = table;
  wire::Reader rows(view.subspan(kFixedBytes));
  std::uint64_t at = table_end;
  for (std::size_t i = 0; i < tiles; ++i) {
    out.offsets_.push_back(at);
    out.sizes_.push_back(rows.Int<std::uint32_t>());
    out.hashes_.push_back(rows.GetId<HashTag>());
    at += out.sizes_.back();
  }
  out.offsets_.push_back(at);
  if (rows.GetId<HashTag>() != crypto::Sha256(view.first(table_end - 32))) {
    return MakeError(Code::kCorrupt, fmt::format("{}: the tile table in bytes 0 to {} is damaged",
                                                 path, table_end));
  }
  if (stored_round != round) {
    return MakeError(Code::kCorrupt,
                     fmt::format("{}: holds round {}, expected {}", path, stored_round, round));
  }
  if (at != size) {
    return MakeError(Code::kCorrupt,
                     fmt::format("{}: {} bytes, its table says {}", path, size, at));
  }
  for (std::size_t i = 0; i < tiles; ++i) {
    if (out.sizes_[i] > kMaxEncodedTile) {
      return MakeError(Code::kLimit, fmt::format("{}: tile {} of {} bytes, the limit is {}", path,
                                                 i, out.sizes_[i], kMaxEncodedTile));
    }
  }
  return out;
}

Result<Bytes> RoundFile::ReadTile(std::size_t tile) const {
  if (tile >= hashes_.size()) {
    return MakeError(Code::kNotFound,
                     fmt::format("{}: tile {} of {}", path_, tile, hashes_.size()));
  }
  Bytes bytes(sizes_[tile]);
  LOOM_RETURN_IF_ERROR(ReadExactly(*file_, path_, offsets_[tile], bytes));
  if (crypto::Sha256(bytes) != hashes_[tile]) {
    return MakeError(
        Code::kCorrupt,
        fmt::format("{}: tile {} at offset {} is damaged", path_, tile, offsets_[tile]),
        "the tile is fetched again from another member");
  }
  return bytes;
}

}  // namespace loom::store
