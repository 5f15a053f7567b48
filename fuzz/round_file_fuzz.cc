// The reduced bytes of a round as they may lie on a disk. The first byte says whether the header
// gets a right checksum, so that what stands behind it is reached; the rest is the file.
#include "store/round_file.h"

#include <algorithm>

#include "crypto/hash.h"
#include "fuzz/fuzz.h"
#include "store/sim_file_system.h"

namespace loom::fuzz {
namespace {

constexpr Round kRound = 7;
constexpr std::size_t kFixed = 24;  // magic, version, number of tiles, round
constexpr std::size_t kOfATile = 4 + 32;

void PutChecksum(Bytes& file) {
  if (file.size() < kFixed) return;
  Input in(ByteView(file).subspan(12, 4));
  const std::uint64_t end = kFixed + std::uint64_t{in.Int<std::uint32_t>()} * kOfATile;
  if (end + 32 > file.size()) return;
  const Hash sum = crypto::Sha256(ByteView(file).first(end));
  std::ranges::copy(sum.bytes, file.begin() + static_cast<std::ptrdiff_t>(end));
}

}  // namespace
}  // namespace loom::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace loom;
  fuzz::Input in(data, size);
  const bool right = in.Byte() % 2 == 1;
  Bytes bytes = ToBytes(in.Rest());
  if (right) fuzz::PutChecksum(bytes);
  store::SimFileSystem disk;
  fuzz::Expect(store::WriteFileAtomically(disk, "/round", bytes).ok(), "the file can be written");
  const auto file = store::RoundFile::Open(disk, "/round", fuzz::kRound);
  if (!file.ok()) {
    fuzz::ExpectGoodError(file.error());
    return 0;
  }
  fuzz::Expect(file.value().TotalBytes() <= size, "the tiles lie in the file");
  bool all = true;
  for (std::size_t i = 0; i < file.value().num_tiles(); ++i) {
    const auto tile = file.value().ReadTile(i);
    if (!tile.ok()) fuzz::ExpectGoodError(tile.error());
    all = all && tile.ok();
    if (!tile.ok()) continue;
    fuzz::Expect(tile.value().size() == file.value().TileBytes(i), "a tile has its size");
    fuzz::Expect(crypto::Sha256(tile.value()) == file.value().hashes()[i], "a tile has its hash");
  }
  if (all) fuzz::Accept();
  return 0;
}

void loom::fuzz::MakeSeeds(Seeds& seeds) {
  const ByteView tiles[] = {AsBytes("first tile"), AsBytes("second")};
  const Hash hashes[] = {crypto::Sha256(tiles[0]), crypto::Sha256(tiles[1])};
  for (const std::size_t count : {0U, 1U, 2U}) {
    store::SimFileSystem disk;
    Expect(store::WriteRoundFile(disk, "/round", kRound, std::span(tiles).first(count),
                                 std::span(hashes).first(count))
               .ok(),
           "a seed can be written");
    seeds.Add(fmt::format("tiles-{}", count),
              Script().Byte(1).Raw(store::ReadWholeFile(disk, "/round", 1 << 20).value()));
  }
}
