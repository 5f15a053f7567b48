// Whole swarms without the fault matrix: sizes, joins, leaves, slow and poisoned peers, instruction
// sets.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "sim/scenario.h"

namespace loom::sim {
namespace {

/// Runs until every live peer has applied the last round of the config.
bool Finish(World& world, Round last, Duration limit = 200s) {
  return world.RunUntil(
      [&] {
        for (std::size_t i = 0; i < world.size(); ++i) {
          if (world.Alive(i) && world.PeerAt(i).applied().body.round < last) return false;
        }
        return world.audit().rounds() >= last;
      },
      limit);
}

void ExpectClean(World& world) {
  for (const std::string& failure : world.audit().failures()) ADD_FAILURE() << failure;
}

TEST(SwarmTest, FromOneToFivePeers) {
  for (std::size_t peers = 1; peers <= 5; ++peers) {
    WorldOptions options = SmallWorld(10 + peers);
    options.peers = peers;
    options.config.rounds = 9;
    World world(options);
    world.SetHangBound(17s);
    for (std::size_t i = 0; i < peers; ++i) world.Start(i);
    EXPECT_TRUE(Finish(world, 9)) << peers;
    ExpectClean(world);
    EXPECT_EQ(world.audit().At(9).body.members.size(), peers);
    EXPECT_EQ(world.audit().At(9).body.contributions.size(), peers);
    for (std::size_t i = 1; i < peers; ++i)
      EXPECT_EQ(world.EngineAt(i).Root(), world.EngineAt(0).Root());
  }
}

TEST(SwarmTest, R11APeerThatComesLateIsListedAndContributesInTheNextRound) {
  WorldOptions options = SmallWorld(21);
  options.config.rounds = 24;
  World world(options);
  for (std::size_t i = 0; i < 4; ++i) world.Start(i);
  ASSERT_TRUE(world.RunUntil([&] { return world.audit().rounds() >= 14; }, 100s));
  world.Start(4);  // the first rounds are pruned everywhere: it fetches a whole state
  EXPECT_TRUE(Finish(world, 24));
  ExpectClean(world);
  Round listed = 0;
  for (Round r = 1; r <= 24 && listed == 0; ++r) {
    if (collab::IsMember(world.audit().At(r).body.members, world.IdOf(4))) listed = r;
  }
  ASSERT_GT(listed, 0U);
  EXPECT_LE(listed, 18U);
  const auto& next = world.audit().At(listed + 1).body.contributions;
  EXPECT_TRUE(std::any_of(next.begin(), next.end(),
                          [&](const auto& c) { return c.peer == world.IdOf(4); }));
}

TEST(SwarmTest, R12ALeavingPeerIsDelistedAndTheRestGoOn) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    WorldOptions options = SmallWorld(seed);
    options.peers = 3;
    options.config.rounds = 12;
    World world(options);
    world.SetHangBound(17s);
    for (std::size_t i = 0; i < 3; ++i) world.Start(i);
    ASSERT_TRUE(world.RunUntil([&] { return world.audit().rounds() >= 5; }, 100s));
    const std::size_t leaver = seed % 3;
    world.Leave(leaver);
    ASSERT_TRUE(world.RunUntil(
        [&] { return world.PeerAt(leaver).state() == collab::PeerState::kStopped; }, 60s))
        << "seed " << seed;
    EXPECT_FALSE(
        collab::IsMember(world.PeerAt(leaver).chain().head().body.members, world.IdOf(leaver)));
    world.Kill(leaver);
    EXPECT_TRUE(Finish(world, 12)) << "seed " << seed;
    ExpectClean(world);
  }
}

TEST(SwarmTest, ASlowPeerDoesFewerStepsAndBlocksNobody) {
  WorldOptions options = SmallWorld(31);
  options.config.rounds = 14;
  options.speed = {1, 1, 0.1, 1, 1};
  World world(options);
  world.SetHangBound(17s);
  for (std::size_t i = 0; i < 5; ++i) world.Start(i);
  EXPECT_TRUE(Finish(world, 14));
  ExpectClean(world);
  const auto& body = world.audit().At(14).body;
  std::uint64_t slow = 0;
  std::uint64_t fast = 0;
  for (const auto& c : body.contributions) (c.peer == world.IdOf(2) ? slow : fast) = c.samples;
  EXPECT_GT(slow, 0U) << "the slow peer contributes";
  EXPECT_LT(slow * 4, fast);
  EXPECT_LT(Seconds(world.now().time_since_epoch()), 14 * 5.0) << "at a full-speed pace";
}

// R18: a member that is killed after it committed, and is back within the round, says nothing else.
TEST(SwarmTest, R33APeerThatIsAloneTakesTheTimeThatItNeeds) {
  WorldOptions options = SmallWorld(51);
  options.peers = 1;
  options.config.rounds = 9;
  World world(options);
  world.Start(0);
  ASSERT_TRUE(world.RunUntil([&] { return world.audit().rounds() >= 3; }, 100s));
  world.SetSpeed({0.05});
  EXPECT_TRUE(Finish(world, 9, 3000s));
  ExpectClean(world);
  for (Round r = 1; r <= 9; ++r) {
    const auto& contributions = world.audit().At(r).body.contributions;
    ASSERT_EQ(contributions.size(), 1U) << "round " << r;
    EXPECT_EQ(contributions[0].samples, options.config.inner_steps * options.config.batch);
  }
}

TEST(SwarmTest, R33WhenAllMachinesBecomeSlowTheDeadlinesGrow) {
  WorldOptions options = SmallWorld(52);
  options.peers = 3;
  options.config.rounds = 16;
  World world(options);
  for (std::size_t i = 0; i < 3; ++i) world.Start(i);
  ASSERT_TRUE(world.RunUntil([&] { return world.audit().rounds() >= 3; }, 100s));
  world.SetSpeed({0.05, 0.05, 0.05});
  EXPECT_TRUE(Finish(world, 16, 3000s));
  ExpectClean(world);
  for (Round r = 12; r <= 16; ++r) {
    EXPECT_EQ(world.audit().At(r).body.contributions.size(), 3U) << "round " << r;
  }
}

TEST(SwarmTest, R33ALeaderWithoutAPlanIsReplacedInTheTimeOfAnExchangeNotOfTheWork) {
  WorldOptions options = ExactWorld(53);
  options.peers = 3;
  options.speed = {0.02, 0.02, 0.02};  // a round is long
  options.config.rounds = 12;
  World world(options);
  constexpr Round kMute = 10;
  world.SetDrop([](std::size_t, std::size_t, const collab::Message& message) {
    const auto* plan = std::get_if<collab::Plan>(&message);
    return plan != nullptr && plan->id.round == kMute && plan->term == 0;
  });
  std::map<Round, Time> at;
  world.SetWatch([&](std::size_t, const collab::Effect& effect) {
    const auto* said = std::get_if<collab::Tell>(&effect);
    if (said != nullptr && said->event.kind == collab::Event::Kind::kRound)
      at.emplace(said->event.round, world.now());
  });
  for (std::size_t i = 0; i < 3; ++i) world.Start(i);
  ASSERT_TRUE(Finish(world, 12, 3000s));
  ExpectClean(world);
  const Duration usual = at[kMute - 1] - at[kMute - 2];
  EXPECT_GT(usual, 10s);
  EXPECT_LT(at[kMute] - at[kMute - 1], usual + 5s);
  EXPECT_FALSE(world.audit().At(kMute).body.contributions.empty());
}

TEST(SwarmTest, R18WhoIsBackWithinTheRoundDoesNotCommitTwice) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    WorldOptions options = SmallWorld(seed);
    options.config.rounds = 12;
    options.checkpoint_every = 1;  // its inner state is that of the record: it could work again
    options.keep_trace = true;
    World world(options);
    const std::size_t victim = seed % 5;
    bool killed = false;
    world.SetWatch([&](std::size_t peer, const collab::Effect& effect) {
      const auto* send = std::get_if<collab::Send>(&effect);
      const auto* said =
          send == nullptr ? nullptr : std::get_if<collab::Commitment>(&send->message);
      if (killed || peer != victim || said == nullptr || said->samples() == 0 || said->id.round < 6)
        return;
      killed = true;
      world.After(15ms, [&world, victim] {
        world.Kill(victim);
        world.Start(victim);
      });
    });
    for (std::size_t i = 0; i < 5; ++i) world.Start(i);
    EXPECT_TRUE(Finish(world, 12)) << "seed " << seed;
    ExpectClean(world);
    EXPECT_TRUE(killed);
    for (const std::string& line : world.trace())
      EXPECT_EQ(line.find("two different"), std::string::npos) << "seed " << seed << ": " << line;
  }
}

TEST(SwarmTest, R19ABadContributionIsExcludedAndItsPeerNamed) {
  WorldOptions options = SmallWorld(41);
  options.config.rounds = 12;
  options.keep_trace = true;
  World world(options);
  world.SetHangBound(17s);
  world.Poison(3);  // its own loss is NaN: it says so itself
  for (std::size_t i = 0; i < 5; ++i) world.Start(i);
  ASSERT_TRUE(world.RunUntil([&] { return world.audit().rounds() >= 6; }, 100s));
  world.Corrupt(1);  // well-formed bytes that are not finite: the owners find out
  EXPECT_TRUE(Finish(world, 12));
  ExpectClean(world);
  std::set<Round> without_one;
  for (Round r = 1; r <= 12; ++r) {
    bool one = false;
    for (const auto& c : world.audit().At(r).body.contributions) {
      EXPECT_NE(c.peer, world.IdOf(3));
      one = one || c.peer == world.IdOf(1);
    }
    if (!one && r > 6) without_one.insert(r);
  }
  EXPECT_EQ(without_one.size(), 1U) << "one bad contribution, one round without it";
  const auto named = [&](std::string_view peer, std::string_view why) {
    return std::any_of(world.trace().begin(), world.trace().end(), [&](const std::string& line) {
      return line.find("excluded") != std::string::npos && line.find(peer) != std::string::npos &&
             line.find(why) != std::string::npos;
    });
  };
  EXPECT_TRUE(named("peer 3: excluded", "not finite"));
  EXPECT_FALSE(world.Alive(3)) << "it ends: no work of five rounds succeeded";
  EXPECT_TRUE(named("of peer 1", "tile"));
  EXPECT_FALSE(collab::IsMember(world.audit().At(0).body.members, world.IdOf(3)));
}

TEST(SwarmTest, R28ThreeInstructionSetsAgreeInEveryRound) {
  WorldOptions options = SmallWorld(51);
  options.peers = 3;
  options.config.rounds = 12;
  options.isa = {
      agreed::Isa::kPlain,
      agreed::IsaSupported(agreed::Isa::kAvx2) ? agreed::Isa::kAvx2 : agreed::Isa::kPlain,
      agreed::IsaSupported(agreed::Isa::kAvx512) ? agreed::Isa::kAvx512 : agreed::BestIsa()};
  World world(options);
  for (std::size_t i = 0; i < 3; ++i) world.Start(i);
  EXPECT_TRUE(Finish(world, 12));  // the audit compares every state with the record's root
  ExpectClean(world);
  EXPECT_EQ(world.EngineAt(0).Root(), world.EngineAt(1).Root());
  EXPECT_EQ(world.EngineAt(0).Root(), world.EngineAt(2).Root());
}

TEST(SwarmTest, R10OfTwoTheSeniorGoesOnAloneAndTheJuniorWaits) {
  for (const std::size_t victim : {0U, 1U}) {
    WorldOptions options = SmallWorld(61 + victim);
    options.peers = 2;
    options.config.rounds = 10;
    World world(options);
    for (std::size_t i = 0; i < 2; ++i) world.Start(i);
    ASSERT_TRUE(world.RunUntil([&] { return world.audit().rounds() >= 4; }, 60s));
    ASSERT_EQ(world.audit().At(4).body.members.size(), 2U);
    world.Kill(victim);
    if (victim == 1) {
      EXPECT_TRUE(Finish(world, 10));
    } else {
      EXPECT_FALSE(Finish(world, 10, 60s));
      EXPECT_EQ(world.PeerAt(1).state(), collab::PeerState::kWaiting);
      ASSERT_EQ(world.PeerAt(1).View(world.now()).waits_for.size(), 1U);
      EXPECT_EQ(world.PeerAt(1).View(world.now()).waits_for[0], world.IdOf(0));
      world.Start(0);
      EXPECT_TRUE(Finish(world, 10));
    }
    ExpectClean(world);
  }
}

// A folder restored from an old copy: its key has no vote until it is listed as new, and then has
// one for good.
TEST(SwarmTest, R9AnOldCopyOfAFolderIsListedAsNewAndStays) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    WorldOptions options = SmallWorld(500 + seed);
    options.peers = 3;
    options.config.rounds = 60;
    World world(options);
    world.SetHangBound(17s);
    for (std::size_t i = 0; i < 3; ++i) world.Start(i);
    ASSERT_TRUE(world.RunUntil([&] { return world.audit().rounds() >= 10; }, 300s));
    world.SnapshotDisk(2);
    ASSERT_TRUE(world.RunUntil([&] { return world.audit().rounds() >= 20; }, 300s));
    world.Kill(2);
    world.RestoreDisk(2);
    world.Start(2);
    EXPECT_TRUE(Finish(world, 60, 600s));
    ExpectClean(world);
    Round first = 60;  // of the rounds since which it is a member and contributes without a break
    while (first > 0 && world.audit().At(first).body.members.size() == 3 &&
           world.audit().At(first).body.contributions.size() == 3) {
      --first;
    }
    EXPECT_LE(first, 34U) << "seed " << seed;
  }
}

// Nobody takes another's vote by telling it of words that it never signed.
TEST(SwarmTest, R9WordsThatAKeyDidNotSignAreNotHeldAgainstIt) {
  WorldOptions options = SmallWorld(540);
  options.peers = 3;
  options.config.rounds = 30;
  World world(options);
  for (std::size_t i = 0; i < 3; ++i) world.Start(i);
  ASSERT_TRUE(world.RunUntil([&] { return world.audit().rounds() >= 10; }, 300s));
  const collab::Record& record = world.audit().At(9);
  const auto own =
      std::ranges::find(record.votes, world.IdOf(0), [](const collab::Vote& v) { return v.peer; });
  ASSERT_NE(own, record.votes.end());
  const collab::DecisionId id{record.body.era, record.body.round, record.body.parent};
  const auto told = [&](const collab::Word& word) {
    collab::Hello hello;
    hello.head = collab::HeadOf(record);
    hello.seen = word;
    ASSERT_TRUE(world.Ask(0, [&](collab::Peer& peer, Time now, collab::Effects& out) {
      peer.OnMessage(world.IdOf(2), collab::Message(hello), now, out);
      return Status{};
    }));
  };
  collab::Word word = collab::Word::Of(id, *own);
  word.seq += 1'000'000;
  told(word);  // its vote under another number
  collab::Promise promise;
  promise.peer = world.IdOf(0);
  promise.seq = UINT64_MAX;
  told(collab::Word::Of(id, promise));  // a promise that nobody signed
  EXPECT_TRUE(Finish(world, 30, 600s));
  ExpectClean(world);
  for (Round r = 11; r <= 30; ++r) {
    EXPECT_EQ(world.audit().At(r).body.contributions.size(), 3U) << "round " << r;
    EXPECT_EQ(world.audit().At(r).body.members.size(), 3U) << "round " << r;
  }
}

TEST(SwarmTest, R15OneRecordCountsTheUsesOfAnInviteTogether) {
  WorldOptions options = SmallWorld(77);
  options.peers = 5;
  options.config.rounds = 20;
  options.invite_uses = 2;
  World world(options);
  for (std::size_t i = 0; i < 5; ++i) world.Start(i);
  EXPECT_TRUE(world.RunUntil([&] { return world.audit().rounds() >= 16; }, 300s));
  std::size_t uses = 0;
  for (Round r = 1; r <= world.audit().rounds(); ++r)
    uses += world.audit().At(r).body.invite_uses.size();
  EXPECT_EQ(uses, 2U);
  EXPECT_EQ(world.audit().At(world.audit().rounds()).body.members.size(), 3U);
}

// The last plan gives a peer with a sixth of the others' upload a small part of the reduce.
TEST(SwarmTest, R23ShareOfTheReduceFollowsMeasuredRates) {
  WorldOptions options = SmallWorld(61);
  options.peers = 4;
  options.config.rounds = 14;
  options.upload = {30e3, 30e3, 5e3, 30e3};
  options.bulk_bytes = 128;
  World world(options);
  std::map<PeerId, std::uint32_t> share;
  world.SetWatch([&](std::size_t, const collab::Effect& effect) {
    const auto* send = std::get_if<collab::Send>(&effect);
    const auto* plan = send != nullptr ? std::get_if<collab::Plan>(&send->message) : nullptr;
    if (plan == nullptr || plan->owners.size() != 4) return;
    for (const collab::OwnedRun& o : plan->owners) share[o.owner] = o.run.count;
  });
  for (std::size_t i = 0; i < 4; ++i) world.Start(i);
  EXPECT_TRUE(Finish(world, 14));
  ExpectClean(world);
  ASSERT_EQ(share.size(), 4U);
  for (const std::size_t fast : {0U, 1U, 3U}) {
    EXPECT_GE(share[world.IdOf(fast)], 2 * share[world.IdOf(2)]) << "peer " << fast;
  }
  EXPECT_GT(share[world.IdOf(2)], 0U);
}

// An exchange that takes ten times what is predicted before any was measured, also by a member that
// comes back in the middle: every round is by all that are there, and parts go to an owner once.
TEST(SwarmTest, R33AWrongFirstPredictionCostsTermsAndNoMembersAndNoTraffic) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    WorldOptions options = seed % 2 == 0 ? ExactWorld(seed) : SmallWorld(seed);
    options.peers = 3;
    options.config.rounds = 60;
    options.timing.first_exchange = 50ms;
    options.timing.slack = 400ms;
    options.upload = std::vector<double>(3, options.config.exact ? 15e3 : 1500);
    options.bulk_bytes = 512;
    options.step_time = 3s;
    World world(options);
    std::uint64_t parts = 0;
    world.SetWatch([&](std::size_t, const collab::Effect& effect) {
      const auto* send = std::get_if<collab::Send>(&effect);
      const auto* part = send != nullptr ? std::get_if<collab::Part>(&send->message) : nullptr;
      if (part != nullptr) parts += part->tiles.size;
    });
    for (std::size_t i = 0; i < 3; ++i) world.Start(i);
    const auto all = [&](Round r) { return world.audit().At(r).body.members.size() == 3; };
    const auto all_from = [&](Round least) {
      return world.RunUntil(
          [&] { return world.audit().rounds() >= least && all(world.audit().rounds()); }, 2000s);
    };
    ASSERT_TRUE(all_from(6)) << seed;
    world.Kill(2);
    ASSERT_TRUE(world.RunUntil([&] { return world.audit().rounds() >= 8; }, 2000s)) << seed;
    world.Start(2);
    ASSERT_TRUE(all_from(9)) << seed;
    const Round since = world.audit().rounds();
    parts = 0;
    EXPECT_TRUE(Finish(world, 60, 4000s)) << seed;
    ExpectClean(world);
    std::uint64_t payload = 0;
    for (Round r = since + 1; r <= world.audit().rounds(); ++r) {
      EXPECT_TRUE(all(r)) << "seed " << seed << " round " << r;
      payload += world.EngineAt(0).layout().total();
    }
    const std::uint64_t width = options.config.exact ? collab::kWide : 1;
    // Two thirds of a contribution by each of three, and little more.
    EXPECT_LE(10 * parts, 22 * width * payload) << seed;
  }
}

// One member's word that another is gone excludes nobody whom a third still hears.
TEST(SwarmTest, R33ARefusalSeenByOneMemberAloneExcludesNobody) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    WorldOptions options = SmallWorld(900 + seed);
    options.peers = 3;
    options.config.rounds = 24;
    World world(options);
    world.SetHangBound(17s);
    for (std::size_t i = 0; i < 3; ++i) world.Start(i);
    ASSERT_TRUE(world.RunUntil([&] { return world.audit().rounds() >= 8; }, 300s));
    world.CutLink(seed % 3, (seed + 1) % 3, true);
    EXPECT_TRUE(Finish(world, 24));
    ExpectClean(world);
    for (Round r = 8; r <= world.audit().rounds(); ++r) {
      EXPECT_EQ(world.audit().At(r).body.members.size(), 3U) << "seed " << seed << " round " << r;
    }
  }
}

// Wherever in a round its disk fails, a member stops or goes on, the others do without it, and it
// comes back to the state that they have (R3, R5, R6, R20; the audit compares everything).
TEST(SwarmTest, ADiskThatFailsStopsItsPeerAlone) {
  std::size_t stopped = 0;
  for (std::uint64_t seed = 1; seed <= 120; ++seed) {
    const bool exact = seed % 3 == 0;
    WorldOptions options = exact ? ExactWorld(seed) : SmallWorld(seed);
    options.peers = 3;
    options.config.rounds = 14;
    options.keep_trace = true;
    World world(options);
    world.SetHangBound(17s);
    for (std::size_t i = 0; i < 3; ++i) world.Start(i);
    ASSERT_TRUE(world.RunUntil([&] { return world.audit().rounds() >= 5; }, 100s));
    const std::size_t victim = seed % 3;
    const std::uint64_t kind = world.random().Below(4);
    world.FailDisk(victim, {.after = world.random().Below(120),
                            .code = kind % 2 == 0 ? Code::kDiskFull : Code::kIo,
                            .for_good = kind >= 2,
                            .power_cut = world.random().Chance(0.3)});
    world.RunUntil([&] { return !world.Alive(victim) || world.audit().rounds() >= 11; }, 100s);
    if (!world.Alive(victim)) {
      ++stopped;
      const Round then = world.audit().rounds();
      EXPECT_TRUE(world.RunUntil([&] { return world.audit().rounds() >= then + 2; }, 60s));
      world.Start(victim);
    }
    EXPECT_TRUE(Finish(world, 14)) << "seed " << seed;
    ExpectClean(world);
    for (std::size_t i = 1; i < 3; ++i)
      EXPECT_EQ(world.EngineAt(i).Root(), world.EngineAt(0).Root()) << "seed " << seed;
    if (HasFailure()) {
      for (const std::string& line : world.trace()) fmt::print("{}\n", line);
      return;
    }
  }
  EXPECT_GT(stopped, 60U);
}

// Two of three never have a link; one of the pairs is the founder and a peer that joins through the
// third.
TEST(SwarmTest, R35TwoPeersThatNeverHadALinkWorkThroughTheThird) {
  for (const auto& [a, b] : {std::pair(0U, 1U), std::pair(0U, 2U), std::pair(1U, 2U)}) {
    WorldOptions options = SmallWorld(71 + a + b);
    options.peers = 3;
    options.config.rounds = 14;
    World world(options);
    world.SetHangBound(17s);
    world.CutLink(a, b, false);
    for (std::size_t i = 0; i < 3; ++i) world.Start(i);
    EXPECT_TRUE(Finish(world, 14)) << a << " and " << b;
    ExpectClean(world);
    for (Round r = 8; r <= world.audit().rounds(); ++r) {
      EXPECT_EQ(world.audit().At(r).body.members.size(), 3U) << a << b << " round " << r;
      EXPECT_EQ(world.audit().At(r).body.contributions.size(), 3U) << a << b << " round " << r;
    }
    EXPECT_EQ(world.EngineAt(a).Root(), world.EngineAt(b).Root());
  }
}

TEST(SwarmTest, R24ExactModeIsTheOneProcessRunWhoeverComesAndGoes) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    WorldOptions options = ExactWorld(seed);
    options.config.rounds = 30;
    options.speed = {1, 0.4, 1, 2, 1};
    World world(options);
    world.SetHangBound(20s);
    for (std::size_t i = 0; i < 3; ++i) world.Start(i);
    ASSERT_TRUE(world.RunUntil([&] { return world.audit().rounds() >= 6; }, 100s));
    world.Start(3);
    ASSERT_TRUE(world.RunUntil([&] { return world.audit().rounds() >= 10; }, 100s));
    world.Start(4);
    world.Kill(1);
    ASSERT_TRUE(world.RunUntil([&] { return world.audit().rounds() >= 14; }, 100s));
    world.Leave(3);
    world.Start(1);
    const bool done = world.RunUntil(
        [&] {
          return world.audit().At(world.audit().rounds()).body.steps >= 30 &&
                 world.PeerAt(0).applied().body.steps >= 30;
        },
        300s);
    EXPECT_TRUE(done) << "seed " << seed;
    EXPECT_EQ(world.audit().raised(), 1U) << "the burst";
    ExpectClean(world);
  }
}

TEST(SwarmTest, R26AHostWhoseGradientsAreNotFiniteIsPassedOver) {
  WorldOptions options = ExactWorld(3);
  options.config.rounds = 12;
  World world(options);
  world.SetHangBound(20s);
  world.Poison(2);
  for (std::size_t i = 0; i < 5; ++i) world.Start(i);
  EXPECT_TRUE(Finish(world, 12));
  ExpectClean(world);
  EXPECT_EQ(world.audit().At(12).body.steps, 12U) << "no step was skipped";
  for (Round r = 6; r <= 12; ++r) {
    for (const auto& c : world.audit().At(r).body.contributions) EXPECT_NE(c.peer, world.IdOf(2));
  }
}

TEST(SwarmTest, R26AUnitThatIsNotFiniteForAllIsSkippedByAll) {
  for (const std::size_t peers : {1U, 2U, 4U}) {
    WorldOptions options = ExactWorld(4);
    options.peers = peers;
    options.config.rounds = 10;
    options.model.spoilt = 4 * 14 + 5;  // in the fifth step's samples
    World world(options);
    world.SetHangBound(20s);
    for (std::size_t i = 0; i < peers; ++i) world.Start(i);
    EXPECT_TRUE(Finish(world, 11)) << peers;
    ExpectClean(world);
    std::size_t skipped = 0;
    for (Round r = 1; r <= 11; ++r) {
      const collab::Body& body = world.audit().At(r).body;
      if (!body.contributions.empty() || body.fates.empty() ||
          body.fates[0].fate != collab::Fate::kLost)
        continue;
      ++skipped;
      EXPECT_EQ(body.fates[0].range.first, 4U * 14);
      EXPECT_EQ(body.fates.size(), 7U);
    }
    EXPECT_EQ(skipped, 1U);
  }
}

// Two without a link of their own have two carriers; when one is killed, everybody names the other.
TEST(SwarmTest, R35TheLastCarrierOfAPairIsNamedByAll) {
  WorldOptions options = SmallWorld(78);
  options.peers = 4;
  options.config.rounds = 0;
  World world(options);
  world.CutLink(0, 1, false);
  for (std::size_t i = 0; i < 4; ++i) world.Start(i);
  const auto isolations = [&](std::size_t i) {
    return world.PeerAt(i).View(world.now()).isolations;
  };
  const auto all = [&](const auto& holds, std::size_t members) {
    for (std::size_t i = 0; i < 4; ++i) {
      if (!world.Alive(i)) continue;
      if (world.PeerAt(i).applied().body.members.size() != members || !holds(i)) return false;
    }
    return true;
  };
  ASSERT_TRUE(world.RunUntil(
      [&] {
        return all(
            [&](std::size_t i) {
              return isolations(i).by_one.empty() && isolations(i).now.groups.empty() &&
                     isolations(i).now.pairs.empty();
            },
            4);
      },
      100s));
  world.Kill(3);
  EXPECT_TRUE(world.RunUntil(
      [&] {
        return all(
            [&](std::size_t i) {
              const auto found = isolations(i);
              return found.by_one.size() == 1 && found.by_one[0].without == world.IdOf(2) &&
                     found.by_one[0].apart.groups.size() == 2 && found.now.groups.empty() &&
                     world.PeerAt(i).View(world.now()).critical == std::vector{world.IdOf(2)};
            },
            3);
      },
      100s));
  ExpectClean(world);
}

// A rented machine that only forwards: paused, it carries for two members who go on, and they name
// it.
TEST(SwarmTest, R35WhoIsPausedCarriesAndIsNamed) {
  WorldOptions options = SmallWorld(79);
  options.peers = 3;
  options.config.rounds = 0;
  World world(options);
  world.CutLink(0, 1, false);
  for (std::size_t i = 0; i < 3; ++i) world.Start(i);
  const auto both = [&](const auto& holds) { return holds(0) && holds(1); };
  const auto members = [&](std::size_t i) { return world.PeerAt(i).applied().body.members.size(); };
  ASSERT_TRUE(world.RunUntil([&] { return members(2) == 3; }, 100s));
  ASSERT_TRUE(world
                  .Ask(2,
                       [](collab::Peer& peer, Time now, collab::Effects& out) -> Status {
                         peer.Pause(true, now, out);
                         return {};
                       })
                  .ok());
  ASSERT_TRUE(world.RunUntil([&] { return both([&](auto i) { return members(i) == 2; }); }, 100s));
  const Round round = world.PeerAt(0).applied().body.round;
  EXPECT_TRUE(world.RunUntil(
      [&] {
        return both([&](std::size_t i) {
          const collab::PeerView view = world.PeerAt(i).View(world.now());
          return view.head.round >= round + 3 && view.isolations.now.groups.empty() &&
                 view.isolations.by_one.size() == 1 &&
                 view.isolations.by_one[0].without == world.IdOf(2);  // of two, the senior goes on
        });
      },
      100s));
  ExpectClean(world);
}

}  // namespace
}  // namespace loom::sim
