// Hashes of the agreed state {W, B}. Leaf i = SHA-256(W of tile i | B of tile i), fp32
// little-endian, real elements only; the root is the Merkle root over the leaves. A checkpoint
// stores tiles in just this form, so a leaf is also the content hash of one file region.
#pragma once

#include <span>
#include <vector>

#include "agreed/outer.h"
#include "agreed/tile_grid.h"
#include "base/id.h"

namespace loom::agreed {

/// The tile's part of a flat buffer.
inline std::span<const float> TileSpan(const Tile& tile, std::span<const float> flat) {
  return flat.subspan(tile.offset, tile.size);
}
inline std::span<float> TileSpan(const Tile& tile, std::span<float> flat) {
  return flat.subspan(tile.offset, tile.size);
}

Hash StateLeaf(std::span<const float> w_tile, std::span<const float> b_tile);

/// One leaf per tile. w and b have grid.flat_size() elements.
std::vector<Hash> StateLeaves(const TileGrid& grid, std::span<const float> w,
                              std::span<const float> b);
Hash StateRoot(const TileGrid& grid, std::span<const float> w, std::span<const float> b);

/// The leaf that OuterStep would lead to, without storing the new tile: a member votes on it while
/// the old state is still whole (W is overwritten only after the record). Writes whether all new
/// values are finite to *finite when given.
Hash NextStateLeaf(std::span<const float> w_tile, std::span<const float> b_tile,
                   std::span<const float> delta_tile, const OuterConfig& config,
                   bool* finite = nullptr, Isa isa = BestIsa());

}  // namespace loom::agreed
