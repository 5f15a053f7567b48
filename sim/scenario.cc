#include "sim/scenario.h"

#include <algorithm>

namespace loom::sim {
namespace {

constexpr const char* kPhases[] = {"work", "scatter", "reduce", "vote", "commit"};
constexpr const char* kFaults[] = {
    "none",          "leader-killed", "member-killed", "owner-killed", "leader-frozen",
    "member-frozen", "partition",     "old-state",     "loss",         "power-cut",
    "all-killed",    "split-vote",    "short-freeze",  "link-cut",     "hidden-quorum"};
constexpr Round kFaultRound = 6;
constexpr Round kLastRound = 12;

/// True when this effect begins the phase in the given round.
bool Begins(Phase phase, Round round, const collab::Effect& effect) {
  const auto* send = std::get_if<collab::Send>(&effect);
  switch (phase) {
    case Phase::kWork: {
      const auto* compute = std::get_if<collab::Compute>(&effect);
      const auto* work = compute ? std::get_if<collab::WorkJob>(&compute->what) : nullptr;
      return work != nullptr && work->orders.front().round == round;
    }
    case Phase::kScatter: {
      const auto* c = send ? std::get_if<collab::Commitment>(&send->message) : nullptr;
      return c != nullptr && c->id.round == round;
    }
    case Phase::kReduce: {
      const auto* f = send ? std::get_if<collab::FixSet>(&send->message) : nullptr;
      return f != nullptr && f->id.round == round;
    }
    case Phase::kVote: {
      const auto* v = send ? std::get_if<collab::ProposalMessage>(&send->message) : nullptr;
      return v != nullptr && v->id.round == round;
    }
    case Phase::kCommit: {
      const auto* v = send ? std::get_if<collab::VoteMessage>(&send->message) : nullptr;
      return v != nullptr && v->id.round == round;
    }
  }
  return false;
}

class Director {
 public:
  Director(World& world, const Scenario& scenario, Round round)
      : world_(world), scenario_(scenario), round_(round) {
    if (scenario_.fault == Fault::kHiddenQuorum) HideVotes();
    world_.SetWatch([this](std::size_t peer, const collab::Effect& effect) {
      Judge(peer, effect);
      if (scenario_.fault == Fault::kHiddenQuorum) {
        KillTheOnlyHolder(peer);
        return;
      }
      if (started_ || !Begins(scenario_.phase, round_, effect)) return;
      started_ = true;
      const Duration spread = scenario_.phase == Phase::kWork        ? 2s
                              : scenario_.fault == Fault::kSplitVote ? 15ms
                              : scenario_.phase == Phase::kScatter   ? 80ms
                                                                     : 50ms;
      world_.After(world_.random().Between(0ms, spread), [this] { Strike(); });
    });
    // What "restarted with old state" goes back to: a round or two before the fault.
    if (scenario_.fault == Fault::kOldState) {
      for (std::size_t i = 0; i < world_.size(); ++i) world_.SnapshotDisk(i);
      Snapshot();
    }
  }

  bool over() const { return over_; }

 private:
  void Snapshot() {
    world_.After(200ms, [this] {
      if (started_) return;
      if (world_.audit().rounds() < round_ - 1 - world_.random().Below(3)) {
        for (std::size_t i = 0; i < world_.size(); ++i) world_.SnapshotDisk(i);
      }
      Snapshot();
    });
  }

  std::size_t Leader() const {
    const auto& members =
        world_.audit().At(std::min(round_ - 1, world_.audit().rounds())).body.members;
    return world_.IndexOf(collab::LeaderOf(members, round_, 0)).value_or(0);
  }

  std::size_t Other() {
    const std::size_t leader = Leader();
    return (leader + 1 + world_.random().Below(world_.size() - 1)) % world_.size();
  }

  void Restart(std::size_t peer, Duration least, Duration most) {
    world_.After(world_.random().Between(least, most), [this, peer] { world_.Start(peer); });
  }

  // R35: whoever a carrier reaches is neither left out nor delisted.
  void Judge(std::size_t peer, const collab::Effect& effect) {
    const auto* tell = std::get_if<collab::Tell>(&effect);
    if (scenario_.fault != Fault::kLinkCut || tell == nullptr) return;
    const collab::Event& e = tell->event;
    if (e.kind == collab::Event::Kind::kExcluded || e.kind == collab::Event::Kind::kDelisted) {
      world_.audit().Fail(fmt::format(
          "R35: peer {} says that peer {} is {} in round {} {}", peer,
          world_.IndexOf(e.peer).value_or(0),
          e.kind == collab::Event::Kind::kExcluded ? "left out" : "delisted", e.round, e.text));
    }
  }

  // Of the fault's round only two members beside the leader get the proposal, and only the leader
  // gets their votes: it alone can know that a quorum voted.
  void HideVotes() {
    world_.SetDrop([this](std::size_t from, std::size_t to, const collab::Message& message) {
      if (started_) return false;
      const std::size_t leader = Leader();
      const auto voter = [&](std::size_t i) {
        const std::size_t place = (i + world_.size() - leader) % world_.size();
        return place == 1 + first_voter_ || place == 2 + first_voter_;
      };
      if (const auto* p = std::get_if<collab::ProposalMessage>(&message)) {
        return p->id.round == round_ && from == leader && !voter(to);
      }
      const auto* v = std::get_if<collab::VoteMessage>(&message);
      return v != nullptr && v->id.round == round_ && to != leader;
    });
  }

  void KillTheOnlyHolder(std::size_t peer) {
    if (started_ || world_.PeerAt(peer).chain().rounds() < round_) return;
    started_ = true;
    over_ = true;
    world_.Kill(peer);
    Restart(peer, 4s, 14s);
  }

  void Strike() {
    Random& random = world_.random();
    switch (scenario_.fault) {
      case Fault::kNone:
        break;
      case Fault::kLeaderKilled:
      case Fault::kMemberKilled:
      case Fault::kOwnerKilled: {
        const std::size_t victim = scenario_.fault == Fault::kLeaderKilled ? Leader() : Other();
        world_.Kill(victim);
        if (random.Chance(0.6)) Restart(victim, 500ms, 12s);
        if (scenario_.fault == Fault::kOwnerKilled &&
            random.Chance(0.5)) {  // and another while it is handled
          world_.After(random.Between(0ms, 300ms), [this] {
            for (std::size_t i = 0; i < world_.size(); ++i) {
              const std::size_t next = (Leader() + 1 + i) % world_.size();
              if (world_.Alive(next) && next != Leader()) {
                world_.Kill(next);
                return;
              }
            }
          });
        }
        break;
      }
      case Fault::kLeaderFrozen:
      case Fault::kMemberFrozen: {
        const std::size_t victim = scenario_.fault == Fault::kLeaderFrozen ? Leader() : Other();
        world_.Freeze(victim);
        world_.After(30s, [this, victim] {
          world_.Thaw(victim);
          over_ = true;
        });
        return;
      }
      case Fault::kPartition: {
        const std::size_t first = random.Below(world_.size());
        const std::size_t second = (first + 1 + random.Below(world_.size() - 1)) % world_.size();
        world_.Partition({first, second});
        world_.After(20s, [this] {
          world_.Heal();
          over_ = true;
        });
        return;
      }
      case Fault::kOldState: {
        const std::size_t victim = random.Chance(0.5) ? Leader() : Other();
        world_.Kill(victim);
        world_.RestoreDisk(victim);
        Restart(victim, 300ms, 6s);
        break;
      }
      case Fault::kLoss:
        // An exact step is twice as many messages one after the other, none of which may stay lost.
        world_.SetLoss(scenario_.exact ? 0.05 : 0.1);
        world_.After(25s, [this] {
          world_.SetLoss(0);
          over_ = true;
        });
        return;
      case Fault::kPowerCut: {
        const std::size_t victim = random.Chance(0.5) ? Leader() : Other();
        world_.PowerCut(victim);
        Restart(victim, 300ms, 12s);
        if (random.Chance(0.3)) {
          world_.After(random.Between(0ms, 100ms), [this, victim] {
            const std::size_t second = (victim + 1) % world_.size();
            world_.PowerCut(second);
            Restart(second, 300ms, 12s);
          });
        }
        break;
      }
      case Fault::kSplitVote:
        world_.SetLoss(0.3 + 0.4 * random.Unit());
        KillHolders(400);
        return;
      case Fault::kShortFreeze: {
        const std::size_t victim = Other();
        world_.Freeze(victim);
        world_.After(random.Between(500ms, 7s), [this, victim] {
          world_.Thaw(victim);
          over_ = true;
        });
        return;
      }
      case Fault::kLinkCut: {
        const std::size_t a = random.Chance(0.5) ? Leader() : Other();
        const std::size_t b = (a + 1 + random.Below(world_.size() - 1)) % world_.size();
        world_.Note(fmt::format("the link between peers {} and {} is cut", a, b));
        world_.CutLink(a, b, random.Chance(0.5));
        if (random.Chance(0.5)) {
          world_.After(20s, [this, a, b] {
            world_.Note("the link is back");
            world_.MendLink(a, b);
          });
        }
        break;
      }
      case Fault::kHiddenQuorum:
        return;
      case Fault::kAllKilled: {
        const bool power = random.Chance(0.3);
        for (std::size_t i = 0; i < world_.size(); ++i) {
          world_.After(random.Between(0ms, 30ms), [this, i, power] {
            if (power) {
              world_.PowerCut(i);
            } else {
              world_.Kill(i);
            }
            Restart(i, 100ms, 5s);
          });
        }
        break;
      }
    }
    over_ = true;
  }

  void KillHolders(int checks) {
    std::vector<std::size_t> holders;
    for (std::size_t i = 0; i < world_.size(); ++i) {
      if (world_.Alive(i) && world_.PeerAt(i).chain().rounds() >= round_) holders.push_back(i);
    }
    if (holders.empty() && checks > 0) {
      world_.After(1ms, [this, checks] { KillHolders(checks - 1); });
      return;
    }
    world_.SetLoss(0);
    if (holders.size() > 1) holders.resize(1);
    if (holders.empty() || holders.front() != Leader()) holders.push_back(Leader());
    for (const std::size_t i : holders) {
      world_.Kill(i);
      Restart(i, 4s, 14s);
    }
    over_ = true;
  }

  World& world_;
  Scenario scenario_;
  Round round_;
  std::size_t first_voter_ = world_.random().Below(3);
  bool started_ = false;
  bool over_ = false;
};

}  // namespace

std::string Scenario::Name() const {
  const char* prefix = exact ? "exact-" : "";
  if (fault == Fault::kNone) return fmt::format("{}{}", prefix, kFaults[0]);
  return fmt::format("{}{}-in-{}", prefix, kFaults[static_cast<std::size_t>(fault)],
                     kPhases[static_cast<std::size_t>(phase)]);
}

std::vector<Scenario> FaultMatrix() {
  std::vector<Scenario> all;
  for (const bool exact : {false, true}) {
    all.push_back({Fault::kNone, Phase::kWork, exact});
    for (std::size_t f = 1; f < std::size(kFaults); ++f) {
      for (std::size_t p = 0; p < std::size(kPhases); ++p) {
        const Scenario scenario{static_cast<Fault>(f), static_cast<Phase>(p), exact};
        if (scenario.fault != Fault::kHiddenQuorum || scenario.phase == Phase::kVote) {
          all.push_back(scenario);
        }
      }
    }
  }
  return all;
}

Result<Scenario> ParseScenario(const std::string& name) {
  std::string known;
  for (const Scenario& s : FaultMatrix()) {
    if (s.Name() == name) return s;
    known += " " + s.Name();
  }
  return MakeError(Code::kNotFound, fmt::format("no scenario '{}'; there are:{}", name, known));
}

WorldOptions SmallWorld(std::uint64_t seed) {
  WorldOptions options;
  options.seed = seed;
  options.config.inner_steps = 8;
  options.config.batch = 2;
  options.config.context = 16;
  options.config.tile_elements = 256;
  options.config.seed = seed;
  return options;
}

WorldOptions ExactWorld(std::uint64_t seed) {
  WorldOptions options = SmallWorld(seed);
  options.config.method = collab::Method::kAllReduce;
  options.config.exact = true;
  options.config.codec = "fp32";
  options.config.inner_steps = 1;
  options.config.workers = 7;
  options.config.accumulation = 2;
  options.config.optimizer.schedule.kind = agreed::ScheduleKind::kConstant;
  options.config.optimizer.inner.clip_norm = 1.0F;
  const std::uint64_t samples = std::uint64_t{options.config.workers} * options.config.batch;
  options.model.burst = samples * (kFaultRound - 1 + seed % 3) + seed % samples;
  return options;
}

Outcome RunScenario(const Scenario& scenario, const RunOptions& run) {
  WorldOptions options = scenario.exact ? ExactWorld(run.seed) : SmallWorld(run.seed);
  options.config.rounds = kLastRound;
  options.planted = run.planted;
  options.keep_trace = run.trace;
  World world(options);
  Outcome outcome;
  for (std::size_t i = 0; i < world.size(); ++i) world.Start(i);
  const Round fault_round = kFaultRound + world.random().Below(3);
  const auto finish = [&](bool all) {
    outcome.failures = world.audit().failures();
    if (outcome.failures.empty() && !all) {
      std::string where;
      for (std::size_t i = 0; i < world.size(); ++i) {
        if (!world.Alive(i)) continue;
        const collab::PeerView view = world.PeerAt(i).View(world.now());
        where += fmt::format("; peer {} at round {} {} {} ({})", i, view.head.round,
                             PeerStateName(view.state), view.phase, view.reason);
      }
      outcome.failures.push_back("not everybody came to the last round" + where);
    }
    outcome.trace = world.trace();
    outcome.rounds = world.audit().rounds();
    outcome.virtual_seconds = Seconds(world.now().time_since_epoch());
    outcome.events = world.events();
    outcome.longest_wait = Seconds(world.longest_wait());
    outcome.used = world.audit().used_samples();
    outcome.returned = world.audit().returned_samples();
    return outcome;
  };
  // Everybody is listed before anything breaks; the last rounds of that time measure a fault-free
  // one.
  Time third{};
  const bool warm = world.RunUntil(
      [&] {
        if (third == Time{} && world.audit().rounds() >= fault_round - 3) third = world.now();
        return world.audit().rounds() >= fault_round - 2;
      },
      120s);
  if (!warm) return finish(false);
  if (world.audit().At(fault_round - 2).body.members.size() != world.size()) {
    world.audit().Fail("not everybody was listed in the first rounds");
    return finish(false);
  }
  outcome.fault_free = Seconds(world.last_commit() - third);
  outcome.fault_free =
      std::max(outcome.fault_free, Seconds(options.step_time) * options.config.inner_steps);
  world.SetHangBound(FromSeconds(3 * outcome.fault_free + 10));
  Director director(world, scenario, fault_round);
  const bool done = world.RunUntil(
      [&] {
        if (!director.over() || world.audit().rounds() < kLastRound) return false;
        for (std::size_t i = 0; i < world.size(); ++i) {
          if (world.Alive(i) && world.PeerAt(i).applied().body.round < kLastRound) return false;
        }
        return true;
      },
      400s);
  return finish(done);
}

}  // namespace loom::sim
