// The agreed state of a run and its hashes. A state is a row of flat buffers of one length, the
// "planes": weights first, then the slots of the step rule. Leaf i = SHA-256(plane 0 of tile i |
// plane 1 of tile i | ...), fp32 little-endian, real elements only; the root is the Merkle root
// over the leaves. A checkpoint stores tiles in just this form, so a leaf is also the content hash
// of one file region.
#pragma once

#include <span>
#include <vector>

#include "agreed/flat_buffer.h"
#include "agreed/parallel.h"
#include "agreed/step.h"
#include "agreed/tile_grid.h"
#include "base/id.h"

namespace loom::agreed {

using Planes = std::vector<std::span<float>>;
using ConstPlanes = std::vector<std::span<const float>>;

/// The tile's part of a flat buffer.
inline std::span<const float> TileSpan(const Tile& tile, std::span<const float> flat) {
  return flat.subspan(tile.offset, tile.size);
}
inline std::span<float> TileSpan(const Tile& tile, std::span<float> flat) {
  return flat.subspan(tile.offset, tile.size);
}

/// Zeroed buffers of one grid. Owned by one thread at a time.
class State {
 public:
  /// Weights and `slots` buffers beside them; an error when the memory is not there.
  static Result<State> Make(const TileGrid& grid, std::size_t slots);
  std::size_t num_planes() const { return buffers_.size(); }
  std::span<float> weights() { return buffers_[0].span(); }
  std::span<const float> weights() const { return buffers_[0].span(); }
  Planes planes();
  ConstPlanes planes() const;
  Planes Of(const Tile& tile);
  ConstPlanes Of(const Tile& tile) const;
  void Clear();

 private:
  State() = default;

  std::vector<FlatBuffer> buffers_;
};

Hash StateLeaf(const ConstPlanes& tile);
/// One leaf per tile. Every plane has grid.flat_size() elements.
std::vector<Hash> StateLeaves(const TileGrid& grid, const ConstPlanes& planes,
                              const ParallelFor& parallel = OneThread());
Hash StateRoot(const TileGrid& grid, const ConstPlanes& planes,
               const ParallelFor& parallel = OneThread());

/// Works out the tile of a next state beside the present one: a member votes on it while the old
/// state is still whole (the weights are overwritten only after the record).
class NextLeaf {
 public:
  NextLeaf(const TileGrid& grid, const StepRule& rule, Isa isa = BestIsa());
  /// The leaf that the step would lead to. Writes whether all new values are finite to *finite.
  Hash Of(const ConstPlanes& tile, std::span<const float> mean, const StepScalars& scalars,
          bool matrix, bool* finite);

 private:
  const StepRule* rule_;
  Isa isa_;
  std::vector<FlatBuffer> scratch_;  ///< a tile of each plane
};

}  // namespace loom::agreed
