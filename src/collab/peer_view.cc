// What a peer says of itself: the state that it is in, the reason, and whom it waits for (R13).
#include <algorithm>

#include "collab/peer.h"

namespace loom::collab {
namespace {

/// How long a peer that lacks bytes, or has no member, looks for somebody before it says that it
/// waits.
constexpr Duration kSearch = 3s;

}  // namespace

std::string_view PeerStateName(PeerState state) {
  static constexpr std::string_view kNames[] = {"starting", "joining", "syncing",
                                                "working",  "waiting", "paused",
                                                "leaving",  "stopped", "failed"};
  return kNames[static_cast<std::size_t>(state)];
}

void Peer::Enter(PeerState state, std::string reason, Effects& out) {
  const bool news = state != state_ || (reason != reason_ && state == PeerState::kWaiting);
  state_ = state;
  reason_ = std::move(reason);
  if (!news) return;
  if (state == PeerState::kWaiting)
    out.push_back(Tell{{Event::Kind::kWaiting, state_round_, env_.self, reason_}});
  if (state == PeerState::kSyncing)
    out.push_back(Tell{{Event::Kind::kSyncing, state_round_, env_.self, reason_}});
  if (state == PeerState::kStopped)
    out.push_back(Tell{{Event::Kind::kStopped, state_round_, env_.self, reason_}});
}

void Peer::Fail(const Error& error, Effects& out) {
  machine_.reset();
  state_ = PeerState::kFailed;
  failure_ = error.code;
  reason_ = error.message;
  hint_ = error.hint;
  out.push_back(Tell{{Event::Kind::kStopped, state_round_, env_.self, error.ToString()}});
}

// Behind its own newest record, with nobody to fetch the way to it from.
bool Peer::BehindAlone(Time now) {
  const bool donor = std::any_of(remotes_.begin(), remotes_.end(), [&](const auto& remote) {
    return remote.second.greeted && presence_.connected.contains(remote.first) &&
           remote.second.hello.head.round > state_round_;
  });
  if (donor || applying_ || record_token_ != 0 || state_round_ == chain_.rounds()) {
    behind_alone_since_.reset();
    return false;
  }
  if (!behind_alone_since_) behind_alone_since_ = now;
  return now - *behind_alone_since_ >= kSearch;
}

void Peer::Refresh(Time now, Effects& out) {
  if (!started_ || state_ == PeerState::kFailed || state_ == PeerState::kStopped) return;
  const bool nobody = !Listed() && Voters().empty();
  if (!nobody) nobody_since_.reset();
  if (nobody && !nobody_since_) nobody_since_ = now;
  if (BehindAlone(now)) {
    Enter(PeerState::kWaiting,
          fmt::format("the bytes of round {} are not here, and nobody who has them is connected",
                      state_round_ + 1),
          out);
  } else if (state_round_ + 1 < chain_.rounds() ||
             (state_round_ < chain_.rounds() && !(machine_ && machine_->decided()))) {
    Enter(PeerState::kSyncing,
          fmt::format("applying round {} of {}{}", state_round_ + 1, chain_.rounds(), TooSlow(now)),
          out);
  } else if (finished_since_) {
    Enter(PeerState::kWorking, "finished; serving those who are not there yet", out);
  } else if (leaving_since_) {
    Enter(PeerState::kLeaving, "waiting for the record that delists this peer", out);
  } else if (paused_) {
    Enter(PeerState::kPaused, "paused by its owner; resumes when told to", out);
  } else if (rolled_back_) {
    Enter(PeerState::kWaiting,
          "the others saw later words of this key than this folder holds; it joins again as new "
          "once delisted",
          out);
  } else if (Sealed()) {
    Enter(PeerState::kWaiting,
          fmt::format("sealed by the run's owner for a reset to era {}: loom continue ends it",
                      voter_.sealed),
          out);
  } else if (nobody && now - *nobody_since_ < kSearch) {
    Enter(PeerState::kStarting, "hearing from the others", out);
  } else if (nobody) {
    Enter(PeerState::kWaiting,
          fmt::format("not a member, and no member is here; waiting for {}. If the run has ended "
                      "there: one of them that is started again serves what this one lacks",
                      WhoIsNeeded(1)),
          out);
  } else if (!Listed()) {
    const auto needed =
        MissingForQuorum(chain_.head().body.members, Voters(), chain_.config().quorum);
    if (needed.empty()) {
      Enter(PeerState::kJoining, "asking to be listed", out);
    } else {
      Enter(
          PeerState::kWaiting,
          "not a member, and the members have no quorum; waiting for " + WhoIsNeeded(needed.size()),
          out);
    }
  } else {
    const std::vector<Member>& members = chain_.head().body.members;
    const std::set<PeerId> voters = Voters();
    const auto needed = MissingForQuorum(members, voters, chain_.config().quorum);
    if (!needed.empty()) {
      Enter(PeerState::kWaiting, "no quorum; waiting for " + WhoIsNeeded(needed.size()), out);
    } else if (machine_ == nullptr && fence_) {
      Enter(PeerState::kStarting, "hearing from the others", out);
    } else {
      Enter(PeerState::kWorking, "", out);
    }
  }
}

// R11: a peer whose link can never catch up is told the rate it would need.
std::string Peer::TooSlow(Time now) const {
  if (!fetcher_ || chain_.rounds() == 0) return {};
  const Duration work = SlowestWork(chain_.head()).value_or(1ms);
  const double round = Seconds(work + exchange_time_);
  const double needed = static_cast<double>(layout_.total()) / round;
  const double has = fetcher_->Progress(now).bytes_per_second;
  if (has <= 0 || has >= needed) return {};
  return fmt::format("; {:.0f} kB/s arrive, to catch up it takes more than {:.0f} kB/s", has / 1e3,
                     needed / 1e3);
}

// Members who are here and whose votes count; who came back behind its own words has none (R9).
std::set<PeerId> Peer::Voters() const {
  std::set<PeerId> voters;
  for (const Member& m : chain_.head().body.members) {
    const bool here = m.id == env_.self ? !rolled_back_ : presence_.Present(m.id);
    if (here && !unfit_.contains(m.id)) voters.insert(m.id);
  }
  return voters;
}

// Members whose return would help: who is away, or, when all are here, who has no vote.
std::vector<PeerId> Peer::Needed() const {
  std::vector<PeerId> away;
  std::vector<PeerId> voteless;
  const std::set<PeerId> voters = Voters();
  for (const Member& m : chain_.head().body.members) {
    if (m.id == env_.self || voters.contains(m.id)) continue;
    (presence_.Present(m.id) ? voteless : away).push_back(m.id);
  }
  return away.empty() ? voteless : away;
}

// "A, B", "1 of A, B, C", or "1 or 2 of A, B, C" where the most senior one's word counts for more.
std::string Peer::WhoIsNeeded(std::size_t least) const {
  const std::vector<Member>& members = chain_.head().body.members;
  const std::vector<PeerId> needed = Needed();
  std::set<PeerId> voters = Voters();
  std::size_t most = 0;
  for (auto it = needed.rbegin(); it != needed.rend(); ++it) {
    if (IsQuorum(members, voters, chain_.config().quorum)) break;
    voters.insert(*it);
    ++most;
  }
  std::string who;
  for (const PeerId& p : needed) who += (who.empty() ? "" : ", ") + p.Short();
  if (most > least) return fmt::format("{} or {} of {}", least, most, who);
  return needed.size() > least ? fmt::format("{} of {}", least, who) : who;
}

void Peer::Problem(const PeerId& peer, std::string text, Effects& out) const {
  out.push_back(Tell{{Event::Kind::kProblem, state_round_, peer, std::move(text)}});
}

// What the members here say of their links (R35), and those who are paused: they carry, too.
LinkReports Peer::Links() const {
  LinkReports reports;
  for (const Member& m : chain_.head().body.members) {
    if (m.id == env_.self) {
      const Hello own = MyHello();
      reports[m.id] = {own.links.begin(), own.links.end()};
    } else if (const auto it = remotes_.find(m.id);
               it != remotes_.end() && it->second.greeted && presence_.Present(m.id)) {
      const std::vector<PeerId>& links = it->second.hello.links;
      reports[m.id] = {links.begin(), links.end()};
    }
  }
  for (const auto& [peer, remote] : remotes_) {
    if (!remote.greeted || !remote.hello.paused || !direct_.contains(peer)) continue;
    reports[peer] = {remote.hello.links.begin(), remote.hello.links.end()};
  }
  if (paused_) {
    const Hello own = MyHello();
    reports[env_.self] = {own.links.begin(), own.links.end()};
  }
  return reports;
}

// Whose single loss would leave nobody who reaches a quorum, by links and carriers.
std::vector<PeerId> Peer::CriticalNow(const Isolations& isolations) const {
  const std::vector<Member>& members = applied().body.members;
  const std::set<PeerId> voters = Voters();
  std::vector<PeerId> critical = Critical(members, voters, chain_.config().quorum);
  for (const Isolation& isolation : isolations.by_one) {
    const bool some_quorum = std::any_of(voters.begin(), voters.end(), [&](const PeerId& voter) {
      if (voter == isolation.without) return false;
      std::set<PeerId> reached = voters;
      reached.erase(isolation.without);
      for (const PeerId& cut : CutFrom(isolations.now, voter)) reached.erase(cut);
      for (const PeerId& cut : CutFrom(isolation.apart, voter)) reached.erase(cut);
      return IsQuorum(members, reached, chain_.config().quorum);
    });
    const bool known =
        std::find(critical.begin(), critical.end(), isolation.without) != critical.end();
    if (!some_quorum && !known) critical.push_back(isolation.without);
  }
  return critical;
}

PeerView Peer::View(Time now) const {
  PeerView view;
  view.state = state_;
  view.reason = reason_;
  view.failure = failure_;
  view.hint = hint_;
  view.head = HeadOf(applied());
  view.tokens = applied().body.tokens;
  view.members = applied().body.members;
  view.isolations = FindIsolations(Links());
  view.critical = CriticalNow(view.isolations);
  view.via = via_;
  view.unfit = unfit_;
  for (const auto& [peer, remote] : remotes_) {
    if (remote.hello.paused) view.paused.insert(peer);
  }
  if (state_ == PeerState::kWaiting) view.waits_for = Needed();
  if (view.waits_for.empty() && behind_alone_since_ && state_ == PeerState::kWaiting) {
    for (const Member& m : view.members) {
      if (m.id != env_.self) view.waits_for.push_back(m.id);
    }
  }
  if (machine_) {
    view.leader = machine_->leader();
    view.term = machine_->term();
    view.phase = machine_->phase();
  } else if (!view.members.empty()) {
    view.leader = LeaderOf(view.members, view.head.round + 1, 0);
  }
  if (measured_round_ == state_round_) {
    view.measured = true;
    view.loss = loss_;
    view.grad_norm = grad_norm_;
    view.learning_rate = learning_rate_;
  }
  if (fetcher_) view.fetch = fetcher_->Progress(now);
  return view;
}

}  // namespace loom::collab
