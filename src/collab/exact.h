// The numbers of exact mode (rules R24-R26): the gradients of the units of a step are summed in
// fixed point, so that the sum is the same whoever computed which unit and in whatever order they
// came. A tensor's values are integer multiples of 2^-shift, and the shift follows from a bound on
// the exponents of the tensor:
//
//   level 0   the bound is the largest exponent of the last step's units, and some room
//   level 1   a unit has broken that bound: the step is done again for all, with the largest
//             exponent over all its units as the bound, which no unit can break
//
// One unit travels as fp32, a sum of several as int64 (kWide times as many bytes).
#pragma once

#include <span>
#include <vector>

#include "agreed/fixed_point.h"
#include "agreed/tile_grid.h"
#include "base/bytes.h"
#include "base/id.h"
#include "base/result.h"

namespace loom::collab {

using agreed::Exponent;

inline constexpr std::uint64_t kWide = 2;   ///< bytes of an int64 over those of an fp32
inline constexpr Exponent kFirstBound = 8;  ///< of a run's first step
inline constexpr Exponent kRoom = 8;        ///< over the last step's exponents

/// One bound a tensor: all |x| of a unit stay below 2^bound.
using Bounds = std::vector<Exponent>;

/// Level 0. `last`: exponents of the last step, empty before the first.
Bounds BoundsAfter(std::span<const Exponent> last, std::size_t num_tensors);
/// What the step was summed with, once the exponents of all its units are known.
Bounds BoundsOfStep(std::span<const Exponent> last, std::span<const Exponent> units);
/// Whether a unit of these exponents breaks a bound.
bool Breaks(std::span<const Exponent> unit, const Bounds& bounds);
/// What commitments and questions name bounds by.
Hash BoundsId(const Bounds& bounds);
/// The larger of each two. `into` may be empty.
void Widen(std::vector<Exponent>& into, std::span<const Exponent> exponents);

/// Exponent of every tensor of a gradient; kNotFinite where a value is not finite.
std::vector<Exponent> ExponentsOf(const agreed::TileGrid& grid, std::span<const float> gradient,
                                  agreed::Isa isa);

/// Sums gradients of units and encodes the sum. Owner: the compute thread.
class UnitSum {
 public:
  /// units_in_step: K of R25.
  UnitSum(const agreed::TileGrid& grid, Bounds bounds, std::uint64_t units_in_step,
          agreed::Isa isa);
  /// Requires: the gradient breaks no bound.
  void Add(std::span<const float> gradient);
  /// The sum, tile by tile, as little-endian int64. Nothing is left of it here.
  Bytes Take() && { return std::move(sum_); }

 private:
  const agreed::TileGrid* grid_;
  Bounds bounds_;
  std::uint64_t units_;
  agreed::Isa isa_;
  Bytes sum_;  ///< int64 of the tiles, one after the other: what travels
};

/// One host's bytes for a tile.
struct ExactTile {
  ByteView bytes;  ///< fp32, or int64 when `units` is more than 1
  std::uint64_t units = 1;
};
/// Whether a tile from a peer keeps to what was said of it (R19): fp32 finite and below its
/// exponent, int64 below units x 2^62 / K. The error says what it breaks.
Status CheckExactTile(const ExactTile& tile, Exponent exponent, Exponent bound,
                      std::uint64_t units_in_step, agreed::Isa isa);
/// The sum of all, rounded to fp32 once.
void SumExactTiles(std::span<const ExactTile> tiles, Exponent bound, std::uint64_t units_in_step,
                   std::span<float> out, agreed::Isa isa);

}  // namespace loom::collab
