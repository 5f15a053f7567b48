// From record to record: every sample has one fate, members and workers follow from the parent, and
// a body that its parent and its choices do not make is refused (R10, R11, R16, R17).
#include "collab/ledger.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "collab/quorum.h"
#include "crypto/hash.h"

namespace loom::collab {
namespace {

crypto::PublicKey KeyOf(std::uint64_t n) {
  crypto::PublicKey key;
  key.bytes = crypto::Sha256(AsBytes(fmt::format("key {}", n))).bytes;
  return key;
}

PeerId PeerOf(std::uint64_t n) { return crypto::PeerIdOf(KeyOf(n)); }

SyncConfig Config() {
  SyncConfig config;
  config.inner_steps = 6;
  config.batch = 2;
  config.context = 8;
  return config;
}

constexpr std::size_t kTiles = 3;

/// A run whose records are made here.
struct History {
  explicit History(SyncConfig c = Config()) : config(std::move(c)) {
    parent = GenesisBody({}, KeyOf(0), crypto::Sha256(AsBytes("first")), config);
  }

  const WorkerEntry& WorkerAt(const PeerId& host) const {
    return *std::find_if(parent.workers.begin(), parent.workers.end(),
                         [&](const WorkerEntry& w) { return w.host == host; });
  }

  Contribution From(const PeerId& host, std::uint64_t samples, std::uint32_t millis = 1000) const {
    const WorkerEntry& w = WorkerAt(host);
    Contribution c;
    c.worker = w.worker;
    c.peer = host;
    c.samples = samples;
    c.tokens = samples * config.context;
    c.millis = millis;
    c.ranges = *Prefix(w.issued, samples);
    c.commitment = crypto::Sha256(AsBytes(fmt::format("c {} {}", w.worker, samples)));
    return c;
  }

  /// Everybody stays and contributes what was issued.
  Choices Full() const {
    Choices choices;
    for (const Member& m : parent.members) choices.stay.push_back(m.id);
    for (const WorkerEntry& w : parent.workers) {
      if (!w.issued.empty()) choices.contributions.push_back(From(w.host, CountSamples(w.issued)));
    }
    choices.tiles.assign(kTiles, crypto::Sha256(AsBytes("tile")));
    choices.root = crypto::Sha256(AsBytes(fmt::format("root {}", parent.round + 1)));
    return choices;
  }

  Body Next(const Choices& choices) const {
    return NextBody(parent, BodyHash(parent.Encode()), run, config, choices);
  }
  Status Check(const Body& body) const {
    return CheckNextBody(parent, BodyHash(parent.Encode()), run, config, kTiles, body);
  }
  void Take(const Choices& choices) {
    Body next = Next(choices);
    const Status ok = Check(next);
    ASSERT_TRUE(ok.ok()) << ok.error().ToString();
    parent = std::move(next);
  }
  void List(std::uint64_t n) {
    Choices choices = Full();
    choices.join.push_back({KeyOf(n), std::nullopt});
    Take(choices);
  }

  SyncConfig config;
  RunId run;
  Body parent;
};

TEST(LedgerTest, PrefixAndSuffixSplitRanges) {
  const std::vector<Range> ranges = {{10, 12}, {20, 20}, {5, 9}};
  EXPECT_EQ(CountSamples(ranges), 9U);
  EXPECT_EQ(*Prefix(ranges, 0), std::vector<Range>{});
  EXPECT_EQ(*Prefix(ranges, 4), (std::vector<Range>{{10, 12}, {20, 20}}));
  EXPECT_EQ(*Prefix(ranges, 6), (std::vector<Range>{{10, 12}, {20, 20}, {5, 6}}));
  EXPECT_EQ(Suffix(ranges, 6), (std::vector<Range>{{7, 9}}));
  EXPECT_EQ(Suffix(ranges, 2), (std::vector<Range>{{12, 12}, {20, 20}, {5, 9}}));
  EXPECT_EQ(*Prefix(ranges, 9), ranges);
  EXPECT_EQ(Suffix(ranges, 9), std::vector<Range>{});
  EXPECT_FALSE(Prefix(ranges, 10).has_value());
}

TEST(LedgerTest, R16TheFounderGetsTheFirstSamples) {
  const History run;
  ASSERT_EQ(run.parent.workers.size(), 1U);
  EXPECT_EQ(run.parent.workers[0].issued, (std::vector<Range>{{0, 11}}));
  EXPECT_EQ(run.parent.next_sample, 12U);
  const auto order = OrderOf(run.parent, 0, run.config);
  ASSERT_TRUE(order.has_value());
  EXPECT_EQ(order->round, 1U);
  EXPECT_EQ(order->tokens_per_step, 16U);
  EXPECT_FALSE(OrderOf(run.parent, 1, run.config).has_value());
}

TEST(LedgerTest, R17WhatWasNotUsedComesBackFirst) {
  History run;
  Choices part = run.Full();
  part.contributions = {run.From(PeerOf(0), 5)};
  run.Take(part);
  EXPECT_EQ(run.parent.fates,
            (std::vector<RangeFate>{{0, {0, 4}, Fate::kUsed}, {0, {5, 11}, Fate::kReturned}}));
  EXPECT_EQ(run.parent.workers[0].issued, (std::vector<Range>{{5, 11}, {12, 16}}));
  EXPECT_EQ(run.parent.tokens, 40U);
  Choices none = run.Full();
  none.contributions.clear();
  none.tiles.clear();
  none.root = run.parent.root;
  run.Take(none);
  EXPECT_EQ(run.parent.workers[0].issued, (std::vector<Range>{{5, 11}, {12, 16}}));
  Choices spoiled = run.Full();
  spoiled.contributions.clear();
  spoiled.tiles.clear();
  spoiled.root = run.parent.root;
  spoiled.spoiled = {0};
  run.Take(spoiled);
  EXPECT_EQ(run.parent.fates[0].fate, Fate::kLost);
  EXPECT_EQ(run.parent.workers[0].issued, (std::vector<Range>{{17, 28}}));
}

// Random rounds: a sample is issued once at a time and used at most once, over all of a history.
TEST(LedgerTest, R17EverySampleHasOneFate) {
  enum class State : std::uint8_t { kNew, kIssued, kUsed, kLost, kReturned };
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    std::mt19937_64 random(seed);
    History run;
    std::map<std::uint64_t, State> samples;
    const auto issue = [&] {
      for (const WorkerEntry& w : run.parent.workers) {
        for (const Range& r : w.issued) {
          for (std::uint64_t s = r.first; s <= r.last; ++s) {
            State& state = samples[s];
            ASSERT_TRUE(state == State::kNew || state == State::kReturned)
                << "seed " << seed << " round " << run.parent.round << " sample " << s;
            state = State::kIssued;
          }
        }
      }
    };
    issue();
    std::uint64_t next_peer = 1;
    for (int round = 0; round < 60; ++round) {
      Choices choices = run.Full();
      std::vector<Contribution> kept;
      for (const Contribution& c : choices.contributions) {
        const std::uint64_t die = random() % 4;
        if (die == 0) continue;
        if (die == 1 && random() % 2 == 0) {
          continue;
        }
        kept.push_back(die == 2 ? run.From(c.peer, 1 + random() % c.samples,
                                           static_cast<std::uint32_t>(1 + random() % 5000))
                                : c);
      }
      choices.contributions = kept;
      for (const WorkerEntry& w : run.parent.workers) {
        if (!w.issued.empty() && random() % 6 == 0) choices.spoiled.push_back(w.worker);
      }
      // Only a worker with something left unused can have spoiled it.
      std::erase_if(choices.spoiled, [&](WorkerIndex worker) {
        return std::any_of(kept.begin(), kept.end(), [&](const Contribution& c) {
          return c.worker == worker && c.samples == CountSamples(run.WorkerAt(c.peer).issued);
        });
      });
      if (kept.empty()) {
        choices.tiles.clear();
        choices.root = run.parent.root;
      }
      if (choices.stay.size() > 1 && random() % 5 == 0) {
        choices.stay.erase(choices.stay.begin() +
                           static_cast<std::ptrdiff_t>(random() % choices.stay.size()));
      }
      if (random() % 3 == 0 && next_peer < 8) choices.join.push_back({KeyOf(next_peer++), {}});
      run.Take(choices);
      if (::testing::Test::HasFatalFailure()) return;
      for (const RangeFate& f : run.parent.fates) {
        for (std::uint64_t s = f.range.first; s <= f.range.last; ++s) {
          ASSERT_EQ(samples[s], State::kIssued) << "seed " << seed << " sample " << s;
          samples[s] = f.fate == Fate::kUsed   ? State::kUsed
                       : f.fate == Fate::kLost ? State::kLost
                                               : State::kReturned;
        }
      }
      for (const auto& [sample, state] : samples) {
        ASSERT_NE(state, State::kIssued) << "seed " << seed << ": sample " << sample << " lost";
      }
      issue();
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(LedgerTest, R11AtMostOneJoinerBesideOneMemberAndSMinusOneBesideS) {
  History run;
  Choices two = run.Full();
  two.join = {{KeyOf(1), std::nullopt}, {KeyOf(2), std::nullopt}};
  EXPECT_FALSE(run.Check(run.Next(two)).ok());
  run.List(1);
  EXPECT_FALSE(run.Check(run.Next([&] {
                    Choices c = run.Full();
                    c.join = {{KeyOf(2), std::nullopt}, {KeyOf(3), std::nullopt}};
                    return c;
                  }()))
                   .ok());
  run.List(2);
  Choices fine = run.Full();
  fine.join = {{KeyOf(3), std::nullopt}, {KeyOf(4), std::nullopt}};
  EXPECT_TRUE(run.Check(run.Next(fine)).ok());
  Choices nobody = run.Full();
  nobody.stay.clear();
  EXPECT_FALSE(run.Check(run.Next(nobody)).ok());
}

TEST(LedgerTest, R10SeniorityIsTheOrderOfListingAndIsLostByLeaving) {
  History run;
  run.List(1);
  run.List(2);
  EXPECT_EQ(run.parent.members[0].id, PeerOf(0));
  EXPECT_EQ(run.parent.members[1].id, PeerOf(1));
  Choices without = run.Full();
  without.stay = {PeerOf(1), PeerOf(2)};
  run.Take(without);
  EXPECT_EQ(run.parent.members[0].id, PeerOf(1));
  run.List(0);
  ASSERT_EQ(run.parent.members.size(), 3U);
  EXPECT_EQ(run.parent.members[2].id, PeerOf(0));
  EXPECT_EQ(run.parent.members[2].since, run.parent.round);
  std::size_t of_zero = 0;
  for (const WorkerEntry& w : run.parent.workers) of_zero += w.host == PeerOf(0) ? 1 : 0;
  EXPECT_EQ(of_zero, 1U) << "who comes back finds its worker";
}

TEST(LedgerTest, R16ASlowWorkerGetsFewerStepsAndNeverNone) {
  History run;
  run.List(1);
  run.List(2);
  Choices choices = run.Full();
  choices.contributions = {run.From(PeerOf(0), 12, 1000), run.From(PeerOf(1), 12, 1400),
                           run.From(PeerOf(2), 12, 1000000)};
  run.Take(choices);
  EXPECT_EQ(CountSamples(run.WorkerAt(PeerOf(0)).issued), 12U);
  EXPECT_EQ(CountSamples(run.WorkerAt(PeerOf(1)).issued), 12U) << "within two thirds: all";
  EXPECT_EQ(CountSamples(run.WorkerAt(PeerOf(2)).issued), 2U) << "one step";
}

TEST(LedgerTest, R16AFixedNumberOfWorkersIsDealtToTheMembers) {
  SyncConfig config = Config();
  config.workers = 4;
  History run(config);
  ASSERT_EQ(run.parent.workers.size(), 4U);
  const auto hosted = [&](const PeerId& host) {
    return std::count_if(run.parent.workers.begin(), run.parent.workers.end(),
                         [&](const WorkerEntry& w) { return w.host == host; });
  };
  EXPECT_EQ(hosted(PeerOf(0)), 4);
  Choices choices;
  choices.stay = {PeerOf(0)};
  choices.join = {{KeyOf(1), std::nullopt}};
  choices.root = run.parent.root;
  run.Take(choices);
  Choices leave = choices;
  leave.join.clear();
  leave.stay = {PeerOf(1)};
  run.Take(leave);
  EXPECT_EQ(hosted(PeerOf(1)), 4) << "whose host left is dealt again";
}

TEST(LedgerTest, R1ABodyThatDoesNotFollowIsRefused) {
  History run;
  run.List(1);
  run.List(2);
  Choices choices = run.Full();
  choices.contributions[1] = run.From(choices.contributions[1].peer, 5);
  const Body good = run.Next(choices);
  ASSERT_TRUE(run.Check(good).ok());
  const auto refused = [&](auto&& change) {
    Body body = good;
    change(body);
    return !run.Check(body).ok();
  };
  EXPECT_TRUE(refused([](Body& b) { ++b.round; }));
  EXPECT_TRUE(refused([](Body& b) { ++b.era; }));
  EXPECT_TRUE(refused([](Body& b) { ++b.arithmetic; }));
  EXPECT_TRUE(refused([](Body& b) { b.kind = Kind::kGenesis; }));
  EXPECT_TRUE(refused([](Body& b) { b.parent = Hash{}; }));
  EXPECT_TRUE(refused([](Body& b) { b.run.bytes[0] ^= std::byte{1}; }));
  EXPECT_TRUE(refused([](Body& b) { --b.members[0].since; }));
  EXPECT_TRUE(refused([](Body& b) { std::swap(b.members[0], b.members[1]); }));
  EXPECT_TRUE(refused([](Body& b) { b.members[2].since = 0; }));
  EXPECT_TRUE(refused([](Body& b) { ++b.contributions[0].samples; }));
  EXPECT_TRUE(refused([](Body& b) { b.contributions[0].tokens = 1U << 30; }));
  EXPECT_TRUE(refused([](Body& b) { b.contributions[0].tokens = 0; }));
  EXPECT_TRUE(refused([](Body& b) { b.contributions[0].peer = PeerId{}; }));
  EXPECT_TRUE(refused([](Body& b) { b.contributions.push_back(b.contributions[0]); }));
  EXPECT_TRUE(refused([](Body& b) { b.contributions[1].ranges[0].last++; }));
  EXPECT_TRUE(refused([](Body& b) { b.fates.back().fate = Fate::kLost; }));
  EXPECT_TRUE(refused([](Body& b) { b.fates.pop_back(); }));
  EXPECT_TRUE(refused([](Body& b) { b.tiles.pop_back(); }));
  EXPECT_TRUE(refused([](Body& b) { ++b.tokens; }));
  EXPECT_TRUE(refused([](Body& b) { ++b.next_sample; }));
  EXPECT_TRUE(refused([](Body& b) { b.returned.push_back({0, 3}); }));
  EXPECT_TRUE(refused([](Body& b) { b.workers[0].issued[0].last++; }));
  EXPECT_TRUE(refused([](Body& b) { b.members[0].tokens_per_second++; }));
  EXPECT_TRUE(refused([](Body& b) { b.invite_uses.push_back({Hash{}, PeerId{}}); }));
  EXPECT_TRUE(refused([](Body& b) { b.payload.push_back(std::byte{1}); }));
  Choices empty = run.Full();
  empty.contributions.clear();
  empty.tiles.clear();
  EXPECT_FALSE(run.Check(run.Next(empty)).ok()) << "a round without work keeps the root";
  empty.root = run.parent.root;
  EXPECT_TRUE(run.Check(run.Next(empty)).ok());
}

SyncConfig ExactConfig() {
  SyncConfig config = Config();
  config.method = Method::kAllReduce;
  config.exact = true;
  config.inner_steps = 1;
  config.workers = 6;
  return config;
}

/// All workers contribute, each computed by its host.
Choices ExactStep(const History& run) {
  Choices choices = run.Full();
  choices.contributions.clear();
  for (const WorkerEntry& w : run.parent.workers) {
    choices.contributions.push_back({w.worker, w.host, CountSamples(w.issued),
                                     CountSamples(w.issued) * run.config.context, 100, w.issued,
                                     crypto::Sha256(w.host.View())});
  }
  choices.exponents = {-3, 5};
  return choices;
}

std::map<PeerId, std::size_t> LoadOf(const Body& body) {
  std::map<PeerId, std::size_t> load;
  for (const WorkerEntry& w : body.workers) ++load[w.host];
  return load;
}

TEST(LedgerTest, R24AStepHasEveryUnitOrNoneAndSamplesDoNotDependOnWhoIsThere) {
  History lone(ExactConfig());
  History swarm(ExactConfig());
  for (Round r = 1; r <= 8; ++r) {
    lone.Take(ExactStep(lone));
    Choices choices = ExactStep(swarm);
    if (r <= 3) choices.join.push_back({KeyOf(r), std::nullopt});
    if (r == 6) choices.stay.erase(choices.stay.begin());
    swarm.Take(choices);
    ASSERT_EQ(swarm.parent.workers.size(), 6U);
    for (std::size_t w = 0; w < 6; ++w)
      EXPECT_EQ(swarm.parent.workers[w].issued, lone.parent.workers[w].issued) << "round " << r;
  }
  EXPECT_EQ(swarm.parent.steps, 8U);
  EXPECT_EQ(swarm.parent.tokens, lone.parent.tokens);
  // A record without work gives the same samples to the same workers again.
  const Body before = swarm.parent;
  Choices empty = ExactStep(swarm);
  empty.contributions.clear();
  empty.tiles.clear();
  empty.exponents.clear();
  empty.root = before.root;
  swarm.Take(empty);
  for (std::size_t w = 0; w < 6; ++w)
    EXPECT_EQ(swarm.parent.workers[w].issued, before.workers[w].issued);
  EXPECT_EQ(swarm.parent.steps, 8U);
  EXPECT_EQ(swarm.parent.exponents, before.exponents);
  // Any member may have computed a worker; nobody may be missing.
  Choices elsewhere = ExactStep(swarm);
  elsewhere.contributions[2].peer = swarm.parent.members[0].id;
  EXPECT_TRUE(swarm.Check(swarm.Next(elsewhere)).ok());
  Choices partial = ExactStep(swarm);
  partial.contributions.pop_back();
  EXPECT_FALSE(swarm.Check(swarm.Next(partial)).ok());
  Choices stranger = ExactStep(swarm);
  stranger.contributions[0].peer = PeerOf(77);
  EXPECT_FALSE(swarm.Check(swarm.Next(stranger)).ok());
  Choices other_model = ExactStep(swarm);
  other_model.exponents.push_back(1);
  EXPECT_FALSE(swarm.Check(swarm.Next(other_model)).ok());
}

TEST(LedgerTest, R26ASkippedStepLosesAllItsSamples) {
  History run(ExactConfig());
  run.Take(ExactStep(run));
  const std::uint64_t cursor = run.parent.next_sample;
  Choices skip = ExactStep(run);
  skip.contributions.clear();
  skip.tiles.clear();
  skip.root = run.parent.root;
  skip.exponents.clear();
  for (WorkerIndex w = 0; w < 5; ++w) skip.spoiled.push_back(w);
  EXPECT_FALSE(run.Check(run.Next(skip)).ok()) << "one worker's samples have another fate";
  skip.spoiled.push_back(5);
  run.Take(skip);
  EXPECT_TRUE(run.parent.returned.empty());
  EXPECT_EQ(run.parent.workers[0].issued.front().first, cursor);
}

TEST(LedgerTest, ExactWorkIsDealtByMeasuredRates) {
  SyncConfig config = ExactConfig();
  config.workers = 12;
  History run(config);
  for (std::uint64_t n = 1; n <= 2; ++n) {
    Choices choices = ExactStep(run);
    choices.join.push_back({KeyOf(n), std::nullopt});
    run.Take(choices);
  }
  run.Take(ExactStep(run));
  const PeerId slow = run.parent.members[1].id;
  for (int round = 0; round < 20; ++round) {
    Choices choices = ExactStep(run);
    for (Contribution& c : choices.contributions) c.millis = c.peer == slow ? 1000 : 100;
    run.Take(choices);
  }
  EXPECT_LE(LoadOf(run.parent)[slow], 1U) << "a tenth of the speed of the others";
  EXPECT_GE(LoadOf(run.parent)[run.parent.members[0].id], 5U);
}

}  // namespace
}  // namespace loom::collab
