#include "node/fork_join.h"

#include <gtest/gtest.h>

#include "agreed/random.h"
#include "agreed/state.h"

namespace loom::node {
namespace {

TEST(ForkJoin, EveryIndexOnceWithAnyNumberOfHelpers) {
  std::size_t helpers = 0;
  ForkJoin pool([&] { return helpers; });
  for (helpers = 0; helpers < 8; ++helpers) {
    for (const std::size_t n : {0U, 1U, 2U, 3U, 7U, 100U, 1000U}) {
      std::vector<std::atomic<int>> seen(n);
      pool.Run(n, [&](std::size_t begin, std::size_t end) {
        for (std::size_t i = begin; i < end; ++i) ++seen[i];
      });
      for (const auto& count : seen) ASSERT_EQ(count, 1) << n << " with " << helpers;
    }
  }
}

TEST(ForkJoin, ManyShortRunsOneAfterTheOther) {
  ForkJoin pool([] { return std::size_t{3}; });
  for (int i = 0; i < 2000; ++i) {
    std::vector<int> mine(5, 0);  // gone after Run: nobody may touch it then
    pool.Run(mine.size(), [&](std::size_t begin, std::size_t end) {
      for (std::size_t k = begin; k < end; ++k) mine[k] = i;
    });
    ASSERT_EQ(mine, std::vector<int>(5, i));
  }
}

TEST(ForkJoin, TheRootDoesNotDependOnTheThreads) {
  const auto grid =
      agreed::TileGrid::Make({{"a", {300, 70}}, {"b", {33}}, {"c", {5000}}}, 256).value();
  agreed::State state = agreed::State::Make(grid, 1).value();
  agreed::FillNormal(state.weights(), 1, 0, 1.0F);
  const Hash root = agreed::StateRoot(grid, std::as_const(state).planes());
  for (std::size_t helpers = 0; helpers < 5; ++helpers) {
    ForkJoin pool([&] { return helpers; });
    EXPECT_EQ(agreed::StateRoot(grid, std::as_const(state).planes(), pool.AsParallelFor()), root);
  }
}

TEST(ForkJoin, FreeCoresAreFewerThanAll) {
  EXPECT_LT(FreeCores(), std::max(1U, std::thread::hardware_concurrency()));
}

}  // namespace
}  // namespace loom::node
