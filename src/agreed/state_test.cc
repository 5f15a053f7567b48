// The tile grid's shape and the hashes over it.
#include "agreed/state.h"

#include <gtest/gtest.h>

#include <limits>

#include "agreed/flat_buffer.h"
#include "agreed/random.h"
#include "crypto/hash.h"

namespace loom::agreed {
namespace {

TileGrid Grid() {
  return TileGrid::Make({{"a", {700, 3}}, {"empty", {0, 9}}, {"scalar", {}}, {"b", {17}}}, 512)
      .value();
}

TEST(TileGrid, CutsTensorsAndPadsBetweenThem) {
  const TileGrid grid = Grid();
  EXPECT_EQ(grid.num_elements(), 2100U + 0 + 1 + 17);
  EXPECT_EQ(grid.TensorOffset(0), 0U);
  EXPECT_EQ(grid.TensorOffset(1), 2112U);
  EXPECT_EQ(grid.TensorOffset(2), 2112U);
  EXPECT_EQ(grid.TensorOffset(3), 2128U);
  EXPECT_EQ(grid.flat_size(), 2128U + 32);
  const std::vector<Tile> want{{0, 0, 512},   {0, 512, 512}, {0, 1024, 512}, {0, 1536, 512},
                               {0, 2048, 52}, {2, 2112, 1},  {3, 2128, 17}};
  EXPECT_EQ(grid.tiles(), want);
  std::uint64_t covered = 0;
  for (const Tile& tile : grid.tiles()) covered += tile.size;
  EXPECT_EQ(covered, grid.num_elements());
}

TEST(TileGrid, RefusesBadNamesSizesAndOverflow) {
  EXPECT_FALSE(TileGrid::Make({{"a", {1}}}, 100).ok());
  EXPECT_FALSE(TileGrid::Make({{"a", {1}}}, 0).ok());
  EXPECT_FALSE(TileGrid::Make({{"a", {1}}}, TileGrid::kMaxTile + 256).ok());
  EXPECT_FALSE(TileGrid::Make({{"", {1}}}).ok());
  EXPECT_FALSE(TileGrid::Make({{"a", {1}}, {"a", {2}}}).ok());
  constexpr std::uint64_t kHuge = std::uint64_t{1} << 40;
  EXPECT_EQ(TileGrid::Make({{"a", {kHuge, kHuge}}}).error().code, Code::kLimit);
  EXPECT_EQ(TileGrid::Make({{"a", {kHuge + 1}}}).error().code, Code::kLimit);
  EXPECT_EQ((TensorShape{"x", {kHuge, kHuge}}.Numel()), std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ((TensorShape{"x", {kHuge, kHuge, 0}}.Numel()), 0U);
  EXPECT_EQ(TileGrid::Make({}).value().size(), 0U);
}

TEST(FlatBuffer, IsAlignedZeroedAndMoves) {
  FlatBuffer buffer(1001);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 64, 0U);
  for (const float x : buffer.span()) ASSERT_EQ(x, 0.0F);
  const float* data = buffer.data();
  const FlatBuffer moved = std::move(buffer);
  EXPECT_EQ(moved.data(), data);
  EXPECT_EQ(moved.size(), 1001U);
  EXPECT_EQ(FlatBuffer(0).size(), 0U);
  EXPECT_EQ(FlatBuffer::Allocate(std::numeric_limits<std::size_t>::max()).error().code,
            Code::kLimit);
}

TEST(State, LeafIsTheHashOfTheTwoTilesAndRootTheirMerkleRoot) {
  const TileGrid grid = Grid();
  FlatBuffer w(grid.flat_size());
  FlatBuffer b(grid.flat_size());
  FillNormal(w.span(), 1, 0, 1.0F);
  FillNormal(b.span(), 1, 1, 1.0F);
  const auto leaves = StateLeaves(grid, w.span(), b.span());
  ASSERT_EQ(leaves.size(), grid.size());
  Bytes joined = ToBytes(std::as_bytes(TileSpan(grid[4], w.span())));
  const auto tail = std::as_bytes(TileSpan(grid[4], b.span()));
  joined.insert(joined.end(), tail.begin(), tail.end());
  EXPECT_EQ(leaves[4], crypto::Sha256(joined));
  EXPECT_EQ(StateRoot(grid, w.span(), b.span()), crypto::MerkleRoot(leaves));
}

TEST(State, RootSeesEveryRealElementAndNoPadding) {
  const TileGrid grid = Grid();
  FlatBuffer w(grid.flat_size());
  FlatBuffer b(grid.flat_size());
  const Hash zero = StateRoot(grid, w.span(), b.span());
  std::vector<bool> real(grid.flat_size());
  for (const Tile& tile : grid.tiles()) {
    for (std::uint64_t i = 0; i < tile.size; ++i) real[tile.offset + i] = true;
  }
  for (std::size_t i = 0; i < grid.flat_size(); i += i < 2040 ? 97 : 1) {
    w.span()[i] = -0.0F;
    EXPECT_EQ(StateRoot(grid, w.span(), b.span()) != zero, real[i]) << i;
    w.span()[i] = 0.0F;
  }
}

TEST(State, NextLeafEqualsTheLeafAfterTheStep) {
  for (const std::size_t n : {1U, 255U, 2048U, 2049U, 65536U}) {
    std::vector<float> w(n), b(n), delta(n), w_next(n), b_next(n);
    FillNormal(w, 2, 0, 1.0F);
    FillNormal(b, 2, 1, 1.0F);
    FillNormal(delta, 2, 2, 1.0F);
    for (const auto kind : {OuterKind::kSgd, OuterKind::kNesterov, OuterKind::kHeavyBall}) {
      const OuterConfig config{kind, 0.7F, 0.9F};
      OuterStep(w, b, delta, config, w_next, b_next);
      bool finite = false;
      EXPECT_EQ(NextStateLeaf(w, b, delta, config, &finite), StateLeaf(w_next, b_next));
      EXPECT_TRUE(finite);
    }
  }
}

TEST(State, NextLeafTellsThatTheStepOverflows) {
  std::vector<float> w(5000), b(5000), delta(5000);
  b[4999] = std::numeric_limits<float>::max();
  delta[4999] = std::numeric_limits<float>::max();
  bool finite = true;
  NextStateLeaf(w, b, delta, {OuterKind::kHeavyBall, 0.0F, 1.0F}, &finite);
  EXPECT_FALSE(finite);
}

}  // namespace
}  // namespace loom::agreed
