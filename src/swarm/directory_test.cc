// Where peers may be found: order, back-off, the stagger of one peer's addresses, what is passed
// on.
#include "swarm/directory.h"

#include <gtest/gtest.h>

#include <algorithm>

#include <set>

namespace loom::swarm {
namespace {

Address At(std::string_view text) { return *ParseAddress(text); }

PeerId Peer(int i) {
  PeerId id;
  id.bytes[0] = static_cast<std::byte>(i);
  id.bytes[1] = static_cast<std::byte>(i >> 8);
  id.bytes[31] = std::byte{1};
  return id;
}

TEST(Directory, TriesBetterSourcesFirstAndBacksOff) {
  Directory directory(Peer(0), 7);
  const Time start{};
  directory.Learn(Peer(0), At("self:1"), AddressSource::kPeer);
  directory.Learn(Peer(1), At("gossip:1"), AddressSource::kGossip);
  directory.Learn(Peer(1), At("direct:1"), AddressSource::kPeer);
  directory.Learn({}, At("invite:1"), AddressSource::kInvite);
  EXPECT_EQ(directory.size(), 3u) << "never ourselves";
  auto due = directory.Due(start, 10);
  ASSERT_EQ(due.size(), 2u) << "the second address of a peer waits a little";
  EXPECT_EQ(due[0].address, At("direct:1"));
  EXPECT_EQ(due[1].address, At("invite:1"));
  EXPECT_TRUE(directory.Due(start, 10).empty()) << "both are being tried";

  directory.Failed(At("direct:1"), TryResult::kFailed, start);
  due = directory.Due(start, 10);
  ASSERT_EQ(due.size(), 1u);
  EXPECT_EQ(due[0].address, At("gossip:1")) << "at once, when the first one has failed";
  directory.Connected(At("gossip:1"), Peer(1));
  directory.Connected(At("invite:1"), Peer(2));
  EXPECT_TRUE(directory.Due(start + 1h, 10).empty());

  directory.Closed(Peer(1), start);
  due = directory.Due(start + 2s, 10);
  ASSERT_EQ(due.size(), 1u);
  EXPECT_EQ(due[0].address, At("gossip:1")) << "what worked comes first";
}

TEST(Directory, WhereAConnectedPeerWasFoundIsNotSomebodyElses) {
  Directory directory(Peer(0), 3);
  const Address same = At("192.168.1.10:4711");  // both homes use it
  directory.Claims(Peer(1), {same});
  ASSERT_EQ(directory.Due({}, 10).size(), 1u);
  directory.Connected(same, Peer(1));
  directory.Claims(Peer(2), {same, At("203.0.113.3:4711")});
  EXPECT_EQ(directory.AddressesOf(Peer(1)), std::vector<Address>{same});
  EXPECT_EQ(directory.AddressesOf(Peer(2)), std::vector<Address>{At("203.0.113.3:4711")});
  directory.Closed(Peer(1), {});
  directory.Claims(Peer(2), {same});
  EXPECT_EQ(directory.AddressesOf(Peer(1)).size(), 0u) << "it may have moved there";
}

TEST(Directory, TheAddressesOfAPeerAreTriedSideBySideInTheOrderItGave) {
  Directory directory(Peer(0), 3);
  const std::vector<Address> told{At("10.8.0.1:1"), At("192.168.1.2:1"), At("[2001:db8::1]:1")};
  directory.Claims(Peer(1), told);
  EXPECT_EQ(directory.AddressesOf(Peer(1)), told);
  Time now{};
  for (const Address& address : told) {
    const auto due = directory.Due(now, 10);
    ASSERT_EQ(due.size(), 1u);
    EXPECT_EQ(due[0].address, address);
    EXPECT_TRUE(directory.Due(now + kStagger / 2, 10).empty());
    now += kStagger;
  }
  directory.Connected(told[1], Peer(1));
  directory.Closed(Peer(1), now);
  EXPECT_EQ(directory.Due(now + kLastRetry, 10).at(0).address, told[1]);
  EXPECT_EQ(directory.Due(now + kLastRetry + kStagger, 10).at(0).address, told[0])
      << "a try that another one overtook may be made again";
}

TEST(Directory, NoMoreTriesAtOnceThanTheCap) {
  Directory directory(Peer(0), 3);
  for (int i = 1; i <= 100; ++i) {
    directory.Learn(Peer(i), Address{fmt::format("h{}", i), 1}, AddressSource::kInvite);
  }
  EXPECT_EQ(directory.Due(Time{}, 1000).size(), kMaxTrying);
  EXPECT_TRUE(directory.Due(Time{}, 1000).empty());
}

TEST(Directory, PassesOnOnlyWhatItKnowsAtFirstHand) {
  Directory directory(Peer(0), 3);
  directory.Learn(Peer(1), At("gossip:1"), AddressSource::kGossip);
  directory.Learn(Peer(1), At("invite:1"), AddressSource::kInvite);
  directory.Learn(Peer(1), At("198.51.100.7:1"), AddressSource::kObserved);
  directory.Claims(Peer(1), {At("old:1"), At("kept:1")});
  EXPECT_EQ(directory.FirstHand(Peer(1)), (std::vector{At("old:1"), At("kept:1")}));
  directory.Claims(Peer(1), {At("kept:1")});
  EXPECT_EQ(directory.FirstHand(Peer(1)), std::vector{At("kept:1")}) << "it has moved";
  directory.Connected(At("invite:1"), Peer(1));
  EXPECT_EQ(directory.FirstHand(Peer(1)), (std::vector{At("invite:1"), At("kept:1")}));
  EXPECT_EQ(directory.Known().size(), 5u);
}

TEST(Directory, NothingIsLearntThatWorksNowhere) {
  Directory directory(Peer(0), 3);
  for (const char* text : {"169.254.3.4:1", "[fe80::1]:1", "0.0.0.0:1", "224.0.0.1:1"}) {
    directory.Learn(Peer(1), At(text), AddressSource::kPeer);
  }
  EXPECT_EQ(directory.size(), 0u);
}

// R33: a port that is closed on one of several networks says nothing of the process.
TEST(Directory, R33NobodyIsThereOnlyWhenEveryWayLeadsToAClosedPort) {
  Directory directory(Peer(0), 3);
  const auto fails = [&](const char* address, TryResult why) {
    directory.Failed(At(address), why, Time{});
    return directory.NobodyThere(Peer(1));
  };
  directory.Claims(Peer(1), {At("198.51.100.2:1"), At("203.0.113.2:1"), At("[2001:db8::1]:1")});
  EXPECT_FALSE(directory.NobodyThere(Peer(1)));
  EXPECT_FALSE(fails("198.51.100.2:1", TryResult::kNobody));
  EXPECT_FALSE(fails("[2001:db8::1]:1", TryResult::kNoRoute));
  EXPECT_FALSE(fails("203.0.113.2:1", TryResult::kFailed));
  EXPECT_TRUE(fails("203.0.113.2:1", TryResult::kNobody));

  directory.Connected(At("203.0.113.2:1"), Peer(1));
  directory.Closed(Peer(1), Time{});
  EXPECT_FALSE(directory.NobodyThere(Peer(1)));
  EXPECT_FALSE(fails("198.51.100.2:1", TryResult::kFailed));
  EXPECT_TRUE(fails("203.0.113.2:1", TryResult::kNobody)) << "it was found there before";
  EXPECT_FALSE(directory.NobodyThere(Peer(2)));
}

TEST(Directory, R33AClosedPortInOnesOwnNetworkSaysNothingOfAPeerElsewhere) {
  Directory directory(Peer(0), 3);
  directory.Claims(Peer(1), {At("192.168.1.20:1")});
  directory.Failed(At("192.168.1.20:1"), TryResult::kNobody, Time{});
  EXPECT_FALSE(directory.NobodyThere(Peer(1)));
  directory.Connected(At("192.168.1.20:1"), Peer(1));
  directory.Closed(Peer(1), Time{});
  directory.Failed(At("192.168.1.20:1"), TryResult::kNobody, Time{});
  EXPECT_TRUE(directory.NobodyThere(Peer(1))) << "here it was the peer's own";
}

TEST(Directory, BackoffGrowsToItsLimitWithJitter) {
  std::set<Duration> firsts;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Directory directory(Peer(0), seed);
    directory.Learn(Peer(1), At("a:1"), AddressSource::kInvite);
    Time now{};
    Duration last{};
    ASSERT_EQ(directory.Due(now, 1).size(), 1u);
    for (int i = 0; i < 20; ++i) {
      const Time failed = now;
      directory.Failed(At("a:1"), TryResult::kFailed, failed);
      while (directory.Due(now, 1).empty()) now += 1ms;
      last = now - failed;
      if (i == 0) firsts.insert(last);
      EXPECT_GE(last, kFirstRetry / 2);
      EXPECT_LE(last, kLastRetry);
    }
    EXPECT_GE(last, kLastRetry / 2);
  }
  EXPECT_GT(firsts.size(), 10u);
}

TEST(Directory, CapsHoldAndBetterKnowledgeReplacesWorse) {
  Directory directory(Peer(0), 1);
  for (std::uint16_t i = 1; i <= 100; ++i) {
    directory.Learn(Peer(1), Address{"a", i}, AddressSource::kGossip);
  }
  EXPECT_EQ(directory.AddressesOf(Peer(1)).size(), kMaxAddressesPerPeer);
  directory.Learn(Peer(1), At("told:1"), AddressSource::kPeer);
  EXPECT_EQ(directory.AddressesOf(Peer(1)).size(), kMaxAddressesPerPeer);
  EXPECT_EQ(directory.AddressesOf(Peer(1))[0], At("told:1"));
  for (int i = 2; i < 4300; ++i) {
    directory.Learn(Peer(i), Address{fmt::format("h{}", i), 1}, AddressSource::kGossip);
  }
  EXPECT_LE(directory.size(), kMaxKnownAddresses);
  EXPECT_EQ(directory.AddressesOf(Peer(1))[0], At("told:1")) << "gossip never displaces it";
  directory.Forget(Peer(1));
  EXPECT_TRUE(directory.AddressesOf(Peer(1)).empty());
}

TEST(Directory, AddressesThatTurnOutToBeOnePeersAreFewToo) {
  Directory directory(Peer(0), 1);
  for (std::size_t i = 0; i < 3 * kMaxAddressesPerPeer; ++i) {
    directory.Learn({}, Address{fmt::format("h{}", i), 1}, AddressSource::kInvite);
  }
  for (std::size_t i = 0; i < 3 * kMaxAddressesPerPeer; ++i) {
    directory.Connected(Address{fmt::format("h{}", i), 1}, Peer(1));
    EXPECT_LE(directory.AddressesOf(Peer(1)).size(), kMaxAddressesPerPeer);
    const auto told = directory.FirstHand(Peer(1));
    EXPECT_NE(std::ranges::find(told, Address{fmt::format("h{}", i), 1}), told.end())
        << "the one that just worked is kept";
  }
  for (std::size_t i = 0; i < 3 * kMaxAddressesPerPeer; ++i) {
    directory.Learn(Peer(2), Address{fmt::format("g{}", i), 1}, AddressSource::kGossip);
    directory.Learn(Peer(3), Address{fmt::format("g{}", i), 1}, AddressSource::kPeer);
    EXPECT_LE(directory.AddressesOf(Peer(3)).size(), kMaxAddressesPerPeer);
  }
}

TEST(Directory, AnAddressThatLeadsToOurselvesIsForgotten) {
  Directory directory(Peer(0), 1);
  directory.Learn({}, At("me:1"), AddressSource::kInvite);
  ASSERT_EQ(directory.Due(Time{}, 1).size(), 1u);
  directory.Connected(At("me:1"), Peer(0));
  EXPECT_EQ(directory.size(), 0u);
}

}  // namespace
}  // namespace loom::swarm
