#include "collab/exact.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "agreed/state.h"
#include "crypto/hash.h"
#include "wire/bytes_io.h"

namespace loom::collab {
namespace {

static_assert(std::endian::native == std::endian::little, "partial sums are little-endian");

template <class T>
std::vector<T> Values(ByteView bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

}  // namespace

Bounds BoundsAfter(std::span<const Exponent> last, std::size_t num_tensors) {
  // Records count exponents, only the grid knows tensors: another number says nothing of them.
  if (last.size() != num_tensors) return Bounds(num_tensors, kFirstBound);
  Bounds bounds(last.begin(), last.end());
  for (Exponent& bound : bounds) {
    bound = std::min<Exponent>(agreed::kMaxExponent, static_cast<Exponent>(bound + kRoom));
  }
  return bounds;
}

Bounds BoundsOfStep(std::span<const Exponent> last, std::span<const Exponent> units) {
  Bounds bounds = BoundsAfter(last, units.size());
  if (Breaks(units, bounds)) bounds.assign(units.begin(), units.end());
  return bounds;
}

bool Breaks(std::span<const Exponent> unit, const Bounds& bounds) {
  for (std::size_t i = 0; i < unit.size(); ++i) {
    if (unit[i] > bounds[i]) return true;
  }
  return false;
}

Hash BoundsId(const Bounds& bounds) {
  wire::Writer out;
  for (const Exponent bound : bounds) out.Int(static_cast<std::uint16_t>(bound));
  return crypto::Sha256(out.bytes());
}

void Widen(std::vector<Exponent>& into, std::span<const Exponent> exponents) {
  into.resize(exponents.size(), agreed::kNoExponent);
  for (std::size_t i = 0; i < exponents.size(); ++i) into[i] = std::max(into[i], exponents[i]);
}

std::vector<Exponent> ExponentsOf(const agreed::TileGrid& grid, std::span<const float> gradient,
                                  agreed::Isa isa) {
  std::vector<Exponent> out;
  out.reserve(grid.tensors().size());
  for (std::size_t t = 0; t < grid.tensors().size(); ++t) {
    out.push_back(
        agreed::ExponentOf(gradient.subspan(grid.TensorOffset(t), grid.tensors()[t].Numel()), isa));
  }
  return out;
}

UnitSum::UnitSum(const agreed::TileGrid& grid, Bounds bounds, std::uint64_t units_in_step,
                 agreed::Isa isa)
    : grid_(&grid),
      bounds_(std::move(bounds)),
      units_(units_in_step),
      isa_(isa),
      sum_(grid.num_elements() * sizeof(std::int64_t)) {}

void UnitSum::Add(std::span<const float> gradient) {
  std::size_t at = 0;
  for (const agreed::Tile& tile : grid_->tiles()) {
    // The bytes of a vector begin where any integer may, and hold nothing but these.
    const std::span<std::int64_t> sum(reinterpret_cast<std::int64_t*>(sum_.data()) + at, tile.size);
    agreed::AddFixed(sum, agreed::TileSpan(tile, gradient),
                     agreed::ShiftFor(bounds_[tile.tensor], units_), isa_);
    at += tile.size;
  }
}

Status CheckExactTile(const ExactTile& tile, Exponent exponent, Exponent bound,
                      std::uint64_t units_in_step, agreed::Isa isa) {
  if (tile.units == 1) {
    const auto values = Values<float>(tile.bytes);
    const Exponent found = agreed::ExponentOf(values, isa);
    if (found == agreed::kNotFinite) return MakeError(Code::kInvalid, "a value is not finite");
    if (found > exponent || found > bound) {
      return MakeError(Code::kInvalid,
                       fmt::format("a value of 2^{}, said were below 2^{}, bound 2^{}", found - 1,
                                   exponent, bound));
    }
    return {};
  }
  const std::uint64_t largest = agreed::LargestMagnitude(Values<std::int64_t>(tile.bytes), isa);
  const std::uint64_t each = (std::uint64_t{1} << 62U) >> std::bit_width(units_in_step - 1);
  if (largest > tile.units * each) {
    return MakeError(Code::kInvalid, fmt::format("a sum of {} units is {}, at most {} is possible",
                                                 tile.units, largest, tile.units * each));
  }
  return {};
}

void SumExactTiles(std::span<const ExactTile> tiles, Exponent bound, std::uint64_t units_in_step,
                   std::span<float> out, agreed::Isa isa) {
  const int shift = agreed::ShiftFor(bound, units_in_step);
  std::vector<std::int64_t> sum(out.size());
  for (const ExactTile& tile : tiles) {
    if (tile.units == 1) {
      agreed::AddFixed(sum, Values<float>(tile.bytes), shift, isa);
    } else {
      agreed::AddFixed(sum, Values<std::int64_t>(tile.bytes), isa);
    }
  }
  agreed::RoundFixed(sum, shift, out, isa);
}

}  // namespace loom::collab
