// The tile grid's shape and the hashes over it.
#include "agreed/state.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "agreed/combine.h"
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
  const auto large = FlatBuffer::Allocate(std::size_t{1} << 45U, "the gradients");
  ASSERT_FALSE(large.ok());
  EXPECT_EQ(large.error().message.find("no memory for the gradients: 140737.5 GB needed, "), 0U)
      << large.error().message;
}

TEST(State, LeafIsTheHashOfTheTwoTilesAndRootTheirMerkleRoot) {
  const TileGrid grid = Grid();
  FlatBuffer w(grid.flat_size());
  FlatBuffer b(grid.flat_size());
  FillNormal(w.span(), 1, 0, 1.0F);
  FillNormal(b.span(), 1, 1, 1.0F);
  const auto leaves = StateLeaves(grid, {w.span(), b.span()});
  ASSERT_EQ(leaves.size(), grid.size());
  Bytes joined = ToBytes(std::as_bytes(TileSpan(grid[4], w.span())));
  const auto tail = std::as_bytes(TileSpan(grid[4], b.span()));
  joined.insert(joined.end(), tail.begin(), tail.end());
  EXPECT_EQ(leaves[4], crypto::Sha256(joined));
  EXPECT_EQ(StateRoot(grid, {w.span(), b.span()}), crypto::MerkleRoot(leaves));
}

TEST(State, RootSeesEveryRealElementAndNoPadding) {
  const TileGrid grid = Grid();
  FlatBuffer w(grid.flat_size());
  FlatBuffer b(grid.flat_size());
  const Hash zero = StateRoot(grid, {w.span(), b.span()});
  std::vector<bool> real(grid.flat_size());
  for (const Tile& tile : grid.tiles()) {
    for (std::uint64_t i = 0; i < tile.size; ++i) real[tile.offset + i] = true;
  }
  for (std::size_t i = 0; i < grid.flat_size(); i += i < 2040 ? 97 : 1) {
    w.span()[i] = -0.0F;
    EXPECT_EQ(StateRoot(grid, {w.span(), b.span()}) != zero, real[i]) << i;
    w.span()[i] = 0.0F;
  }
}

TEST(State, NextLeafEqualsTheLeafAfterTheStep) {
  std::vector<std::unique_ptr<StepRule>> rules;
  for (const auto kind : {OuterKind::kSgd, OuterKind::kNesterov, OuterKind::kHeavyBall})
    rules.push_back(MakeOuterRule({kind, 0.7F, 0.9F}));
  rules.push_back(MakeOptimizerRule({{}, {ScheduleKind::kConstant}}));
  OptimizerConfig sgd{{}, {ScheduleKind::kConstant}};
  sgd.inner.kind = InnerKind::kSgd;
  sgd.inner.momentum = 0.9F;
  rules.push_back(MakeOptimizerRule(sgd));
  for (const std::uint64_t n : {1U, 255U, 2049U, 65536U}) {
    const TileGrid grid = TileGrid::Make({{"x", {n}}}).value();
    for (const auto& rule : rules) {
      State state = State::Make(grid, rule->num_slots()).value();
      for (std::size_t p = 0; p < state.num_planes(); ++p)
        FillNormal(state.planes()[p].first(n), 2, p, p == 2 ? 0.0F : 1.0F);
      std::vector<float> mean(n);
      FillNormal(mean, 2, 9, 1.0F);
      const StepScalars scalars = rule->Scalars({3, 1000}, std::sqrt(SumSquares(mean)));
      bool finite = false;
      NextLeaf next(grid, *rule);
      const Hash leaf = next.Of(std::as_const(state).Of(grid[0]), mean, scalars, true, &finite);
      EXPECT_TRUE(finite);
      rule->Step(state.Of(grid[0]), mean, scalars, true);
      EXPECT_EQ(leaf, StateLeaf(std::as_const(state).Of(grid[0])));
    }
  }
}

TEST(State, NextLeafTellsThatTheStepOverflows) {
  const TileGrid grid = TileGrid::Make({{"x", {5000}}}).value();
  const auto rule = MakeOuterRule({OuterKind::kHeavyBall, 0.0F, 1.0F});
  State state = State::Make(grid, 1).value();
  std::vector<float> mean(5000);
  state.planes()[1][4999] = mean[4999] = std::numeric_limits<float>::max();
  bool finite = true;
  NextLeaf(grid, *rule).Of(std::as_const(state).Of(grid[0]), mean, {}, false, &finite);
  EXPECT_FALSE(finite);
}

TEST(StepRule, TheOptimizerClipsByTheNormOfTheMeanAndFollowsTheSchedule) {
  EXPECT_EQ(ClipScale(2.0, 1.0F), 0.5F);
  EXPECT_EQ(ClipScale(0.5, 1.0F), 1.0F);
  EXPECT_EQ(ClipScale(5.0, 0.0F), 1.0F);
  const auto rule = MakeOptimizerRule({{}, {ScheduleKind::kLinear, 1.0F, 0.0F, 0, 100}});
  EXPECT_TRUE(rule->needs_norm());
  const StepScalars scalars = rule->Scalars({7, 25}, 4.0);
  EXPECT_EQ(scalars.lr, 0.75F);
  EXPECT_EQ(scalars.step, 7U);
  EXPECT_EQ(scalars.scale, 0.25F);
}

}  // namespace
}  // namespace loom::agreed
