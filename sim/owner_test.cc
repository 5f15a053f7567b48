// What owners do to a run (R14), simulated: settings changed and states returned to by order, and
// resets after which exactly one history survives.
#include <gtest/gtest.h>

#include <algorithm>

#include "collab/chain.h"
#include "sim/scenario.h"

namespace loom::sim {
namespace {

using collab::Effects;
using collab::Peer;

bool Finish(World& world, Round last, Duration limit = 200s) {
  return world.RunUntil(
      [&] {
        for (std::size_t i = 0; i < world.size(); ++i) {
          if (!world.Alive(i) || world.PeerAt(i).applied().body.round < last) return false;
        }
        return true;
      },
      limit);
}

void ExpectClean(World& world) {
  for (const std::string& failure : world.audit().failures()) ADD_FAILURE() << failure;
}

/// A run that shows what the audit found, whatever line of a test fails first.
struct Watched : World {
  explicit Watched(WorldOptions options) : World(std::move(options)) {}
  ~Watched() { ExpectClean(*this); }
};

class OwnerTest : public ::testing::Test {};

void Order(World& world, std::size_t peer, std::optional<Round> revert, std::string_view settings) {
  const collab::Order order = world.SignedOrder(revert, settings);
  const Status taken = world.Ask(
      peer, [&](Peer& p, Time now, Effects& out) { return p.TakeOrder(order, now, out); });
  ASSERT_TRUE(taken.ok()) << taken.error().ToString();
}

/// Peer 0's owner leaves all others behind.
bool ResetAlone(World& world) {
  const collab::Seal seal = world.SignedSeal(1, false);
  const Status sealed =
      world.Ask(0, [&](Peer& p, Time now, Effects& out) { return p.BeginReset(seal, now, out); });
  const auto committed = [&] {
    return (world.PeerAt(0).ViewReset() && world.CommitReset(0, true).ok(),
            world.PeerAt(0).chain().head().body.era == 1);
  };
  return sealed.ok() && world.RunUntil(committed, 30s);
}

/// Everybody is on one chain, listed, and holds its state.
bool OneHistory(World& world) {
  const collab::Chain& first = world.PeerAt(0).chain();
  for (std::size_t i = 0; i < world.size(); ++i) {
    if (!world.Alive(i)) return false;
    const Peer& peer = world.PeerAt(i);
    const Round both = std::min(first.rounds(), peer.chain().rounds());
    if (peer.chain().head().body.era != first.head().body.era ||
        peer.chain().At(both).hash != first.At(both).hash ||
        !collab::IsMember(first.head().body.members, peer.self())) {
      return false;
    }
  }
  return true;
}

TEST_F(OwnerTest, R14OrdersChangeTheSettingsOfALivingRun) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    WorldOptions options = seed % 2 == 0 ? ExactWorld(seed) : SmallWorld(seed);
    options.peers = 3;
    options.config.rounds = 8;
    Watched world(options);
    for (std::size_t i = 0; i < 3; ++i) world.Start(i);
    ASSERT_TRUE(world.RunUntil([&] { return world.audit().rounds() >= 4; }, 100s));
    Order(world, seed % 3, std::nullopt, "rounds 12");
    ASSERT_TRUE(Finish(world, 9)) << "seed " << seed;
    Order(world, 1, std::nullopt, "rounds 16");
    EXPECT_TRUE(Finish(world, 16)) << "seed " << seed;
    EXPECT_EQ(world.PeerAt(2).chain().config().rounds, 16U);
    EXPECT_EQ(world.PeerAt(2).chain().head().body.orders, 2U);
  }
}

// Every peer begins anew after an order; who was paused stays so.
TEST_F(OwnerTest, R14AnOrderDoesNotWakeWhoIsPaused) {
  WorldOptions options = SmallWorld(12);
  options.peers = 3;
  options.config.rounds = 12;
  Watched world(options);
  for (std::size_t i = 0; i < 3; ++i) world.Start(i);
  ASSERT_TRUE(world.RunUntil([&] { return world.audit().rounds() >= 3; }, 100s));
  ASSERT_TRUE(world
                  .Ask(2,
                       [&](Peer& p, Time now, Effects& out) {
                         p.Pause(true, now, out);
                         return Status{};
                       })
                  .ok());
  ASSERT_TRUE(
      world.RunUntil([&] { return world.PeerAt(0).chain().head().body.members.size() == 2; }, 60s));
  const Round alone = world.audit().rounds();
  Order(world, 0, std::nullopt, "rounds 20");
  EXPECT_TRUE(Finish(world, 20));
  EXPECT_TRUE(world.PeerAt(2).told().paused);
  for (Round r = alone + 1; r <= 20; ++r) {
    for (const auto& c : world.audit().At(r).body.contributions) {
      EXPECT_NE(c.peer, world.IdOf(2)) << "round " << r;
    }
  }
}

TEST_F(OwnerTest, R14AStrangersOrderAndAnOldOneAreRefused) {
  Watched world(SmallWorld(5));
  for (std::size_t i = 0; i < 3; ++i) world.Start(i);
  ASSERT_TRUE(world.RunUntil([&] { return world.audit().rounds() >= 3; }, 100s));
  const auto take = [&](const collab::Order& order) {
    return world.Ask(0,
                     [&](Peer& p, Time now, Effects& out) { return p.TakeOrder(order, now, out); });
  };
  collab::Order order = world.SignedOrder(std::nullopt, "rounds 100");
  ++order.number;
  EXPECT_EQ(take(order).error().code, Code::kRefused) << "the signature covers the number";
  EXPECT_FALSE(take(world.SignedOrder(std::nullopt, "nonsense")).ok());
  EXPECT_FALSE(take(world.SignedOrder(Round{50}, "")).ok()) << "not there yet";
  order = world.SignedOrder(std::nullopt, "rounds 100");
  ASSERT_TRUE(take(order).ok());
  EXPECT_EQ(take(world.SignedOrder(std::nullopt, "rounds 200")).error().code, Code::kConflict)
      << "one after the other";
  ASSERT_TRUE(world.RunUntil([&] { return world.PeerAt(0).chain().head().body.orders == 1; }, 60s));
  EXPECT_FALSE(take(order).ok()) << "taken up already";
}

TEST_F(OwnerTest, R14AnOrderReturnsAllToAnOlderState) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    WorldOptions options = seed % 2 == 0 ? ExactWorld(seed) : SmallWorld(seed);
    options.peers = 4;
    Watched world(options);
    world.SetHangBound(25s);
    for (std::size_t i = 0; i < 4; ++i) world.Start(i);
    ASSERT_TRUE(world.RunUntil([&] { return world.audit().rounds() >= 11; }, 100s));
    ASSERT_TRUE(world.RunUntil([&] { return world.PeerAt(1).applied().body.round >= 11; }, 10s));
    const Round target = world.audit().rounds() - 2;
    const collab::Body to = world.audit().At(target).body;
    Order(world, 1, target, "");
    ASSERT_TRUE(world.RunUntil([&] { return world.PeerAt(0).applied().body.orders == 1; }, 60s));
    Round at = world.PeerAt(0).chain().rounds();
    while (!world.PeerAt(0).chain().At(at).body.order) --at;
    EXPECT_EQ(world.PeerAt(0).chain().At(at).body.root, to.root);
    EXPECT_EQ(world.PeerAt(0).chain().At(at).body.steps, to.steps);
    if (seed % 3 == 0) world.Kill(2);
    if (seed % 3 == 0) world.After(3s, [&] { world.Start(2); });
    ASSERT_TRUE(Finish(world, at + 6)) << "seed " << seed;
    EXPECT_TRUE(world.RunUntil([&] { return OneHistory(world); }, 60s)) << "seed " << seed;
    for (std::size_t i = 0; i < 4; ++i)
      EXPECT_EQ(world.EngineAt(i).Root(), world.PeerAt(i).applied().body.root) << i;
  }
}

TEST_F(OwnerTest, R14OfAPartitionWithAResetExactlyOneHistorySurvives) {
  for (std::uint64_t seed = 1; seed <= 25; ++seed) {
    WorldOptions options = seed % 2 == 0 ? ExactWorld(seed) : SmallWorld(seed);
    Watched world(options);
    for (std::size_t i = 0; i < 5; ++i) world.Start(i);
    ASSERT_TRUE(world.RunUntil([&] { return world.audit().rounds() >= 6; }, 100s));
    world.RunUntil([] { return false; }, world.random().Between(0ms, 3s));
    world.Partition({0, 1});
    const Round then = world.audit().rounds();
    ASSERT_TRUE(world.RunUntil(
        [&] { return world.PeerAt(3).applied().body.round >= then + 4 + seed % 12; }, 200s))
        << "the larger side goes on, seed " << seed;
    const Round lost = world.PeerAt(3).chain().rounds();
    const collab::Seal seal = world.SignedSeal(1, false);
    const Status sealed =
        world.Ask(1, [&](Peer& p, Time now, Effects& out) { return p.BeginReset(seal, now, out); });
    ASSERT_TRUE(sealed.ok()) << sealed.error().ToString();
    ASSERT_TRUE(world.RunUntil(
        [&] {
          const auto view = world.PeerAt(1).ViewReset();
          return !view || (view->survivors.size() == 2 && world.CommitReset(1, false).ok() &&
                           world.PeerAt(1).chain().head().body.era == 1);
        },
        30s))
        << "seed " << seed;
    ASSERT_TRUE(world.RunUntil(
        [&] {
          return world.PeerAt(0).chain().head().body.era == 1 &&
                 world.PeerAt(0).applied().body.round >= then + 3;
        },
        100s))
        << "the smaller side goes on, seed " << seed;
    EXPECT_GT(world.PeerAt(3).chain().rounds(), then);
    world.Heal();
    ASSERT_TRUE(world.RunUntil([&] { return OneHistory(world); }, 120s)) << "seed " << seed;
    const Round healed = world.PeerAt(0).chain().rounds();
    ASSERT_TRUE(Finish(world, healed + 3)) << "seed " << seed;
    for (std::size_t i = 0; i < 5; ++i) {
      EXPECT_EQ(world.PeerAt(i).chain().head().body.era, 1U);
      EXPECT_EQ(world.EngineAt(i).Root(), world.PeerAt(i).applied().body.root) << i;
    }
    EXPECT_GE(world.Orphans(3), lost - then) << "what the larger side did is listed";
    EXPECT_EQ(world.Orphans(0), 0U);
  }
}

// While the folder is rewound, the old history's next record still arrives from a peer that has not
// heard of the reset: behind the rewind it would follow nothing.
TEST_F(OwnerTest, R14ARecordOfTheOldHistoryDuringTheRewindIsNotTaken) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    WorldOptions options = seed % 2 == 0 ? ExactWorld(seed) : SmallWorld(seed);
    options.peers = 3;
    Watched world(options);
    for (std::size_t i = 0; i < 3; ++i) world.Start(i);
    ASSERT_TRUE(world.RunUntil([&] { return world.audit().rounds() >= 6; }, 100s));
    world.Partition({0});
    const Round then = world.audit().rounds();
    ASSERT_TRUE(world.RunUntil(
        [&] { return world.PeerAt(1).applied().body.round >= then + 2 + seed; }, 100s));
    ASSERT_TRUE(ResetAlone(world));
    // Of two the senior one decides by itself; the other does not hear of it.
    const std::size_t senior = *world.IndexOf(world.PeerAt(1).chain().head().body.members[0].id);
    const std::size_t other = 3 - senior;
    world.SetDrop([=](std::size_t from, std::size_t to, const collab::Message& message) {
      return from == senior && to == other &&
             (std::holds_alternative<collab::VoteMessage>(message) ||
              std::holds_alternative<collab::RecordMessage>(message));
    });
    ASSERT_TRUE(world.RunUntil(
        [&] {
          return world.PeerAt(senior).chain().rounds() > world.PeerAt(other).chain().rounds();
        },
        60s))
        << "seed " << seed;
    const Bytes next = world.PeerAt(senior).chain().head().Encode();
    bool struck = false;
    world.SetWatch([&](std::size_t peer, const collab::Effect& effect) {
      const auto* persist = std::get_if<collab::Persist>(&effect);
      if (struck || peer != other || persist == nullptr ||
          !std::holds_alternative<collab::Rewind>(persist->what)) {
        return;
      }
      struck = true;
      world.After(0ms, [&] {
        (void)world.Ask(other, [&](Peer& p, Time now, Effects& out) {
          p.OnMessage(world.IdOf(senior), collab::Message(collab::RecordMessage{next}), now, out);
          return Status{};
        });
      });
    });
    world.Heal();
    ASSERT_TRUE(world.RunUntil([&] { return struck; }, 60s)) << "seed " << seed;
    world.SetDrop({});
    EXPECT_TRUE(world.RunUntil([&] { return OneHistory(world); }, 120s)) << "seed " << seed;
    EXPECT_TRUE(Finish(world, world.PeerAt(0).chain().rounds() + 2)) << "seed " << seed;
  }
}

// A survivor that reports a vote for bytes that follow nothing does not stop the owner.
TEST_F(OwnerTest, R14AReportOfABodyThatFollowsNothingIsPassedOver) {
  WorldOptions options = SmallWorld(31);
  Watched world(options);
  for (std::size_t i = 0; i < 5; ++i) world.Start(i);
  ASSERT_TRUE(world.RunUntil([&] { return world.audit().rounds() >= 6; }, 100s));
  world.Partition({0, 1});
  world.RunUntil([] { return false; }, 5s);
  const collab::Seal seal = world.SignedSeal(1, false);
  ASSERT_TRUE(
      world.Ask(1, [&](Peer& p, Time now, Effects& out) { return p.BeginReset(seal, now, out); })
          .ok());
  const auto reports = [&] {
    const auto view = world.PeerAt(1).ViewReset();
    return view && view->survivors.size() == 2 &&
           std::ranges::all_of(view->survivors, [](const auto& s) { return s.proved; });
  };
  ASSERT_TRUE(world.RunUntil(reports, 30s));
  collab::SealReport report;
  report.era = 1;
  report.head = collab::HeadOf(world.PeerAt(1).chain().head());
  report.term = UINT32_MAX;
  for (const bool decodes : {false, true}) {
    report.body = decodes ? world.audit().At(3).body.Encode() : Bytes(100, std::byte{7});
    ASSERT_TRUE(world.Ask(1, [&](Peer& p, Time now, Effects& out) {
      p.OnMessage(world.IdOf(0), collab::Message(report), now, out);
      return Status{};
    }));
    EXPECT_TRUE(world.PeerAt(1).DraftReset(true).ok());
  }
  ASSERT_TRUE(world.RunUntil(
      [&] {
        return world.CommitReset(1, false).ok() && world.PeerAt(1).chain().head().body.era == 1;
      },
      30s));
  world.Heal();
  EXPECT_TRUE(world.RunUntil([&] { return OneHistory(world); }, 60s));
}

TEST_F(OwnerTest, R14ASealEndsByItsOwnersWordAndTheRunGoesOn) {
  WorldOptions options = SmallWorld(9);
  options.peers = 3;
  Watched world(options);
  for (std::size_t i = 0; i < 3; ++i) world.Start(i);
  ASSERT_TRUE(world.RunUntil([&] { return world.audit().rounds() >= 5; }, 100s));
  const collab::Seal seal = world.SignedSeal(1, false);
  ASSERT_TRUE(
      world.Ask(0, [&](Peer& p, Time now, Effects& out) { return p.BeginReset(seal, now, out); })
          .ok());
  world.RunUntil([] { return false; }, 10s);
  const Round sealed = world.audit().rounds();
  EXPECT_LE(sealed, 7U) << "nobody votes under a seal";
  const collab::Seal end = world.SignedSeal(1, true);
  ASSERT_TRUE(
      world.Ask(0, [&](Peer& p, Time now, Effects& out) { return p.EndReset(end, now, out); })
          .ok());
  EXPECT_TRUE(Finish(world, sealed + 4));
}

// Killed at any moment of a vote, the survivor's owner resets; whatever the others had, they come
// back to one history.
TEST_F(OwnerTest, R14AResetOfOneSurvivorNeverLeavesTwoHistories) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    WorldOptions options = SmallWorld(seed);
    options.peers = 3;
    Watched world(options);
    for (std::size_t i = 0; i < 3; ++i) world.Start(i);
    ASSERT_TRUE(world.RunUntil([&] { return world.audit().rounds() >= 5; }, 100s));
    bool struck = false;
    world.SetWatch([&](std::size_t, const collab::Effect& effect) {
      const auto* send = std::get_if<collab::Send>(&effect);
      if (struck || send == nullptr || !std::holds_alternative<collab::VoteMessage>(send->message))
        return;
      struck = true;
      world.After(world.random().Between(0ms, 40ms), [&] {
        world.Kill(1);
        world.Kill(2);
      });
    });
    ASSERT_TRUE(world.RunUntil([&] { return struck && !world.Alive(1); }, 60s));
    world.RunUntil([] { return false; }, 3s);
    ASSERT_TRUE(ResetAlone(world)) << "seed " << seed;
    ASSERT_TRUE(world.RunUntil(
        [&] {
          return world.PeerAt(0).applied().body.round >= world.audit().rounds() &&
                 world.PeerAt(0).applied().body.round >= 9;
        },
        60s));
    world.Start(1);
    world.Start(2);
    EXPECT_TRUE(world.RunUntil([&] { return OneHistory(world); }, 120s)) << "seed " << seed;
    EXPECT_TRUE(Finish(world, world.PeerAt(0).chain().rounds() + 2)) << "seed " << seed;
  }
}

}  // namespace
}  // namespace loom::sim
