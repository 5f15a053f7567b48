// R23: shares follow what receivers measured, within bounds, and cover the grid once.
#include "collab/link_rates.h"

#include <gtest/gtest.h>

#include "crypto/hash.h"

namespace loom::collab {
namespace {

PeerId Id(int n) {
  PeerId id;
  id.bytes[0] = static_cast<std::byte>(n);
  return id;
}
Hash BurstOf(int n) { return crypto::Sha256(AsBytes(std::to_string(n))); }

/// `messages` messages of 1000 bytes, `gap` apart.
void Receive(LinkRates& rates, int from, int burst, int messages, Duration gap, Time begin) {
  for (int i = 0; i < messages; ++i) rates.OnBulk(Id(from), BurstOf(burst), 1000, begin + i * gap);
}

TEST(LinkRatesTest, ABurstIsMeasuredFromItsFirstMessageOn) {
  LinkRates rates;
  Receive(rates, 1, 1, 1, 100ms, Time{});
  EXPECT_TRUE(rates.Measured().empty()) << "one message says nothing";
  Receive(rates, 2, 1, 5, 1ms, Time{});
  EXPECT_TRUE(rates.Measured().empty()) << "too short to be measured";
  Receive(rates, 1, 2, 5, 100ms, Time{} + 10s);
  ASSERT_EQ(rates.Measured().size(), 1U);
  EXPECT_EQ(rates.Measured()[0].peer, Id(1));
  EXPECT_EQ(rates.Measured()[0].bytes_per_second, 10000U);
  Receive(rates, 1, 3, 5, 50ms, Time{} + 20s);
  EXPECT_EQ(rates.Measured()[0].bytes_per_second, 12500U) << "a quarter of the way to 20000";
}

TEST(LinkRatesTest, TheMedianOfTheReceiversCountsAndNobodysWordAboutHimself) {
  LinkRates rates;
  Receive(rates, 1, 1, 11, 10ms, Time{});
  rates.OnTold(Id(2), {{Id(1), 90000}, {Id(2), 1U << 30}});
  rates.OnTold(Id(3), {{Id(1), 1U << 30}, {Id(4), 0}});
  const auto medians = rates.Medians();
  ASSERT_EQ(medians.size(), 1U);
  EXPECT_EQ(medians.at(Id(1)), 100000.0);
  rates.Forget(Id(3));
  EXPECT_EQ(rates.Medians().at(Id(1)), 90000.0);
}

TEST(LinkRatesTest, SharesFollowTheRates) {
  const std::vector<PeerId> owners{Id(1), Id(2), Id(3)};
  const auto runs = ShareTiles(owners, {{Id(1), 1e6}, {Id(2), 2e6}, {Id(3), 3e6}}, 600);
  ASSERT_EQ(runs.size(), 3U);
  EXPECT_EQ(runs[0].run, (TileRun{0, 100}));
  EXPECT_EQ(runs[1].run, (TileRun{100, 200}));
  EXPECT_EQ(runs[2].run, (TileRun{300, 300}));
}

TEST(LinkRatesTest, UnknownOnesAreAverageAndNobodyIsStarvedOrFlooded) {
  const std::vector<PeerId> owners{Id(1), Id(2)};
  const auto equal = ShareTiles(owners, {}, 7);
  EXPECT_EQ(equal[0].run, (TileRun{0, 3}));
  EXPECT_EQ(equal[1].run, (TileRun{3, 4}));
  const auto one = ShareTiles(owners, {{Id(2), 5.0}}, 8);
  EXPECT_EQ(one[0].run.count, 4U);
  const auto slow = ShareTiles(owners, {{Id(1), 1.0}, {Id(2), 1e12}}, 900);
  EXPECT_EQ(slow[0].run.count, 100U) << "a quarter against at most twice the mean of two";
}

TEST(LinkRatesTest, RunsCoverTheGridOnce) {
  std::vector<PeerId> owners;
  std::map<PeerId, double> rates;
  for (int n = 1; n <= 9; ++n) {
    owners.push_back(Id(n));
    if (n % 3 != 0) rates[Id(n)] = n * 17.0;
    for (const std::uint64_t tiles : {0U, 1U, 2U, 8U, 100U, 4097U}) {
      std::uint64_t next = 0;
      for (const OwnedRun& o : ShareTiles(owners, rates, tiles)) {
        EXPECT_EQ(o.run.first, next);
        next += o.run.count;
      }
      EXPECT_EQ(next, tiles);
    }
  }
}

}  // namespace
}  // namespace loom::collab
