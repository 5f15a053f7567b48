// Leaves and root. The next leaf is made in pieces that fit the first-level cache: once for W, once
// again for B, because a leaf hashes all of W before all of B and the step costs less than the
// hash.
#include "agreed/state.h"

#include <algorithm>
#include <array>
#include <bit>

#include "agreed/combine.h"
#include "base/check.h"
#include "crypto/hash.h"

namespace loom::agreed {

static_assert(std::endian::native == std::endian::little,
              "leaves hash floats as they lie in memory");

Hash StateLeaf(std::span<const float> w_tile, std::span<const float> b_tile) {
  LOOM_CHECK(w_tile.size() == b_tile.size(), "w {} b {}", w_tile.size(), b_tile.size());
  crypto::Sha256Stream stream;
  stream.Update(AsBytes(w_tile));
  stream.Update(AsBytes(b_tile));
  return stream.Finish();
}

std::vector<Hash> StateLeaves(const TileGrid& grid, std::span<const float> w,
                              std::span<const float> b) {
  LOOM_CHECK(w.size() == grid.flat_size() && b.size() == grid.flat_size(), "w {} b {} grid {}",
             w.size(), b.size(), grid.flat_size());
  std::vector<Hash> leaves;
  leaves.reserve(grid.size());
  for (const Tile& tile : grid.tiles()) {
    leaves.push_back(StateLeaf(TileSpan(tile, w), TileSpan(tile, b)));
  }
  return leaves;
}

Hash StateRoot(const TileGrid& grid, std::span<const float> w, std::span<const float> b) {
  return crypto::MerkleRoot(StateLeaves(grid, w, b));
}

Hash NextStateLeaf(std::span<const float> w_tile, std::span<const float> b_tile,
                   std::span<const float> delta_tile, const OuterConfig& config, bool* finite,
                   Isa isa) {
  constexpr std::size_t kPiece = 2048;
  std::array<float, kPiece> w_next;
  std::array<float, kPiece> b_next;
  crypto::Sha256Stream stream;
  bool all_finite = true;
  for (const bool weights : {true, false}) {
    for (std::size_t i = 0; i < w_tile.size(); i += kPiece) {
      const std::size_t n = std::min(kPiece, w_tile.size() - i);
      const std::span<float> w_out(w_next.data(), n);
      const std::span<float> b_out(b_next.data(), n);
      OuterStep(w_tile.subspan(i, n), b_tile.subspan(i, n), delta_tile.subspan(i, n), config, w_out,
                b_out, isa);
      const std::span<const float> made = weights ? w_out : b_out;
      all_finite = all_finite && AllFinite(made, isa);
      stream.Update(AsBytes(made));
    }
  }
  if (finite != nullptr) *finite = all_finite;
  return stream.Finish();
}

}  // namespace loom::agreed
