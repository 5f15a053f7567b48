// Becoming a member and ceasing to be one (R11, R12, R15).
#include <algorithm>

#include "base/printable.h"
#include "collab/peer.h"

namespace loom::collab {

// Proves possession of the head's state and asks every member, again while nothing happens.
void Peer::AskToJoin(Time now, Effects& out) {
  if (leaving_since_ || paused_ || !AtHead() || Listed()) return;
  const Head head = HeadOf(chain_.head());
  if (!own_ask_ || own_ask_->head != head) {
    own_ask_ = JoinAsk{head, options_.key, {}, options_.invite};
    own_possession_job_ = ids_.Take();
    out.push_back(Compute{own_possession_job_, PossessionJob{env_.self, head.hash}});
    return;
  }
  if (own_possession_job_ != 0 || (asked_to_join_ != Time{} && now - asked_to_join_ < 2s)) return;
  asked_to_join_ = now;
  for (const Member& m : chain_.head().body.members) {
    if (presence_.connected.contains(m.id)) out.push_back(Send{m.id, *own_ask_});
  }
}

void Peer::OnJoinAsk(const PeerId& from, const JoinAsk& ask, Time, Effects& out) {
  if (crypto::PeerIdOf(ask.key) != from || ask.head != HeadOf(chain_.head())) return;
  if (IsMember(chain_.head().body.members, from)) return;
  if (chain_.Banned(from)) {
    out.push_back(Send{from, JoinRefused{"this key is banned from the run"}});
    return;
  }
  const auto held = asked_.find(from);
  if (held != asked_.end() && held->second.ask.head == ask.head) return;
  Asked asked{ask, {ask.key, std::nullopt}};
  if (!chain_.WasMember(from)) {
    const auto admission = admit_(ask, chain_);
    if (!admission) {
      out.push_back(Send{from, JoinRefused{admission.error().ToString()}});
      return;
    }
    asked.joiner.invite = admission->invite;
    asked.uses_left = admission->uses_left;
  }
  asked_[from] = std::move(asked);
  const std::uint64_t job = ids_.Take();
  possession_jobs_.emplace(job, from);
  out.push_back(Compute{job, PossessionJob{from, ask.head.hash}});
}

// One member may lack news that another has; a quorum that refuses will not list this peer.
void Peer::OnJoinRefused(const PeerId& from, const JoinRefused& refused, Effects& out) {
  if (Listed() || leaving_since_ || !own_ask_) return;
  const bool news = refused_by_.insert(from).second;
  const std::string why = "refused to list this peer: " + OneLine(refused.reason);
  if (news) Problem(from, why, out);
  if (IsQuorum(chain_.head().body.members, refused_by_, chain_.config().quorum)) {
    Fail(MakeError(Code::kRefused, why), out);
  }
}

// Those who hold the head's state; a proof about an older one is forgotten. One record lists no
// more of an invite than are left of it (R15).
void Peer::UpdateJoiners() {
  const Head head = HeadOf(chain_.head());
  std::erase_if(asked_, [&](const auto& asked) { return asked.second.ask.head != head; });
  if (!machine_) return;
  std::vector<Joiner> joiners;
  std::map<Hash, std::uint32_t> uses;
  for (const auto& [peer, asked] : asked_) {
    if (!asked.proved) continue;
    if (asked.joiner.invite && ++uses[*asked.joiner.invite] > asked.uses_left) continue;
    joiners.push_back(asked.joiner);
  }
  machine_->SetJoiners(std::move(joiners));
}

void Peer::Leave(Time now, Effects& out) {
  if (leaving_since_ || state_ == PeerState::kStopped) return;
  leaving_since_ = now;
  out.push_back(CutWork{});
  if (!Listed() || chain_.head().body.members.size() == 1) {
    Enter(PeerState::kStopped, "left", out);
    return;
  }
  leaving_.insert(env_.self);
  if (machine_) machine_->SetLeaving(leaving_);
  for (const PeerId& peer : presence_.connected) {
    out.push_back(Send{peer, LeaveAsk{HeadOf(chain_.head())}});
  }
  HelloAll(out);
  AfterMachine(now, out);
}

void Peer::TellAgain(const Told& told, Time now, Effects& out) {
  if (told.paused) Pause(true, now, out);
  if (told.leaving) Leave(now, out);
}

bool Peer::Pause(bool pause, Time now, Effects& out) {
  if (paused_ == pause) return false;
  paused_ = pause;
  if (pause) {
    out.push_back(CutWork{});
    if (chain_.head().body.members.size() > 1) leaving_.insert(env_.self);
  } else {
    leaving_.erase(env_.self);
  }
  if (machine_) machine_->SetLeaving(leaving_);
  HelloAll(out);
  if (machine_ == nullptr) Advance(now, out);
  AfterMachine(now, out);
  return true;
}

// A leaving peer goes when a quorum of the new members holds the record that delists it; a finished
// one when everybody connected is at the head. Both are bounded.
void Peer::LeaveTick(Time now, Effects& out) {
  if (finished_since_) {
    const bool all = std::all_of(remotes_.begin(), remotes_.end(), [&](const auto& r) {
      return r.second.greeted && r.second.hello.head.round >= chain_.rounds();
    });
    // One who was started again after the end is there for those who missed it.
    const bool served = all && (resumed_at_ < chain_.rounds() ||
                                chain_.head().body.members.size() == 1 || !remotes_.empty());
    const Time idle_since = std::max(*finished_since_, last_served_);
    if (AtHead() && (served || now - idle_since > options_.finish_limit)) {
      Enter(PeerState::kStopped, fmt::format("finished: all {} rounds are done", chain_.rounds()),
            out);
    }
    return;
  }
  if (!leaving_since_) return;
  constexpr Duration kPatience = 3s;
  constexpr Duration kPatienceForLost = 10s;  ///< of whom it is not known that they have ended
  const Duration leaving = now - *leaving_since_;
  const auto& members = chain_.head().body.members;
  const auto quorum_of = [&](const auto& counts) {
    std::set<PeerId> who;
    for (const Member& m : members) {
      if (counts(m.id)) who.insert(m.id);
    }
    return IsQuorum(members, who, chain_.config().quorum);
  };
  if (Listed()) {  // the others went, too: nobody is left to leave to
    const bool here =
        quorum_of([&](const PeerId& id) { return id == env_.self || presence_.Present(id); });
    if (members.size() == 1 || (!here && leaving > kPatience)) {
      Enter(PeerState::kStopped,
            "it could not leave, since no quorum of the others is here; it counts as away", out);
      return;
    }
  } else if (AtHead()) {
    const bool held = quorum_of([&](const PeerId& id) {
      const auto remote = remotes_.find(id);
      return remote != remotes_.end() && remote->second.greeted &&
             remote->second.hello.head.round >= chain_.rounds();
    });
    // Processes that have ended ask for nothing; when they come back they fetch from each other.
    const bool run = quorum_of([&](const PeerId& id) { return !presence_.gone.contains(id); });
    const bool linked =
        quorum_of([&](const PeerId& id) { return presence_.connected.contains(id); });
    if (held || (!run && leaving > kPatience) || (!linked && leaving > kPatienceForLost)) {
      Enter(PeerState::kStopped, "left", out);
      return;
    }
  }
  if (leaving > options_.leave_limit) {
    Enter(PeerState::kStopped,
          Listed() ? "left without being delisted: it counts as killed"
                   : "left; the others have not confirmed that they hold the record of it",
          out);
  }
}

}  // namespace loom::collab
