#include "agreed/state.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "agreed/combine.h"
#include "base/check.h"
#include "crypto/hash.h"

namespace loom::agreed {

static_assert(std::endian::native == std::endian::little,
              "leaves hash floats as they lie in memory");

Result<State> State::Make(const TileGrid& grid, std::size_t slots) {
  State state;
  state.buffers_.reserve(1 + slots);
  for (std::size_t i = 0; i < 1 + slots; ++i) {
    LOOM_ASSIGN(FlatBuffer buffer,
                FlatBuffer::Allocate(
                    grid.flat_size(),
                    i == 0 ? "the agreed weights" : "what the step rule keeps beside the weights"));
    state.buffers_.push_back(std::move(buffer));
  }
  return state;
}

Planes State::planes() {
  Planes out;
  for (FlatBuffer& buffer : buffers_) out.push_back(buffer.span());
  return out;
}

ConstPlanes State::planes() const {
  ConstPlanes out;
  for (const FlatBuffer& buffer : buffers_) out.push_back(buffer.span());
  return out;
}

Planes State::Of(const Tile& tile) {
  Planes out;
  for (FlatBuffer& buffer : buffers_) out.push_back(TileSpan(tile, buffer.span()));
  return out;
}

ConstPlanes State::Of(const Tile& tile) const {
  ConstPlanes out;
  for (const FlatBuffer& buffer : buffers_) out.push_back(TileSpan(tile, buffer.span()));
  return out;
}

void State::Clear() {
  for (FlatBuffer& buffer : buffers_) std::ranges::fill(buffer.span(), 0.0F);
}

Hash StateLeaf(const ConstPlanes& tile) {
  crypto::Sha256Stream stream;
  for (const std::span<const float> plane : tile) stream.Update(AsBytes(plane));
  return stream.Finish();
}

std::vector<Hash> StateLeaves(const TileGrid& grid, const ConstPlanes& planes,
                              const ParallelFor& parallel) {
  for (const std::span<const float> plane : planes) {
    LOOM_CHECK(plane.size() == grid.flat_size(), "a plane of {}, a grid of {}", plane.size(),
               grid.flat_size());
  }
  std::vector<Hash> leaves(grid.size());
  parallel(grid.size(), [&](std::size_t begin, std::size_t end) {
    ConstPlanes tile(planes.size());
    for (std::size_t t = begin; t < end; ++t) {
      for (std::size_t i = 0; i < planes.size(); ++i) tile[i] = TileSpan(grid[t], planes[i]);
      leaves[t] = StateLeaf(tile);
    }
  });
  return leaves;
}

Hash StateRoot(const TileGrid& grid, const ConstPlanes& planes, const ParallelFor& parallel) {
  return crypto::MerkleRoot(StateLeaves(grid, planes, parallel));
}

NextLeaf::NextLeaf(const TileGrid& grid, const StepRule& rule, Isa isa) : rule_(&rule), isa_(isa) {
  for (std::size_t i = 0; i < 1 + rule.num_slots(); ++i) {
    scratch_.emplace_back(grid.tile_elements());
  }
}

Hash NextLeaf::Of(const ConstPlanes& tile, std::span<const float> mean, const StepScalars& scalars,
                  bool matrix, bool* finite) {
  Planes next;
  for (std::size_t i = 0; i < tile.size(); ++i) {
    next.push_back(scratch_[i].span().first(tile[i].size()));
    std::ranges::copy(tile[i], next[i].begin());
  }
  rule_->Step(next, mean, scalars, matrix, isa_);
  *finite = std::ranges::all_of(next, [&](std::span<float> p) { return AllFinite(p, isa_); });
  return StateLeaf({next.begin(), next.end()});
}

}  // namespace loom::agreed
