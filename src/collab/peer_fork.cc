// Two histories of one run: an owner reset one side of a partition while the other went on, or
// reset twice. Exactly one survives (R14): that of the later era; of two resets of one era that
// with the later parent, then the lower hash. A peer on the other one looks for the newest record
// that both have, keeps what it gives up in orphaned.log, and starts anew from there.
#include <algorithm>

#include "collab/peer.h"

namespace loom::collab {

bool Peer::Forked(const Remote& remote) const {
  const Record* own = chain_.last_reset();
  const Era era = chain_.head().body.era;
  if (remote.hello.head.era != era) return remote.hello.head.era > era;
  return own != nullptr && !remote.hello.reset.IsZero() && remote.hello.reset != own->hash;
}

// Asks for records from the reset on; OnOtherRecord goes further back if they do not fit.
void Peer::ConsiderFork(const PeerId& from, Time now, Effects& out) {
  if (rewind_token_ != 0 || now - asked_fork_ < 1s) return;
  asked_fork_ = now;
  fork_step_ = 1;
  const Round first = std::max<Round>(1, remotes_[from].hello.reset_round);
  out.push_back(Send{from, GetRecords{std::min(first, chain_.rounds() + 1)}});
}

bool Peer::Wins(const Hello& theirs) const {
  const Era ours = chain_.head().body.era;
  if (theirs.head.era != ours) return theirs.head.era > ours;
  const Record* own = chain_.last_reset();
  if (own == nullptr) return true;
  return theirs.reset_round != own->body.round ? theirs.reset_round > own->body.round
                                               : theirs.reset < own->hash;
}

// A record that is not in this chain. The other history begins with a reset, or with a body that
// the reset after it certifies; both are taken together.
void Peer::OnOtherRecord(const PeerId& from, Record record, Time, Effects& out) {
  const auto remote = remotes_.find(from);
  if (remote == remotes_.end() || rewind_token_ != 0) return;
  const Hello& theirs = remote->second.hello;
  const bool forked = Forked(remote->second);
  const Round round = record.body.round;
  if (fork_ && record.body.parent == fork_->hash) {
    if (forked && record.body.kind == Kind::kReset && round == fork_->body.round + 1 &&
        chain_.CertifiedByOwner(record) && Wins(theirs)) {
      RewindTo(round - 2, {*fork_, std::move(record)}, out);
    }
    return;
  }
  if (round > chain_.rounds() + 1) return;
  if (chain_.At(round - 1).hash != record.body.parent) {  // the fork is further back
    if (!forked) {
      if (theirs.head.era == chain_.head().body.era) {
        Problem(from, fmt::format("its record {} does not follow ours: two histories", round), out);
      }
      return;
    }
    const Round first = round - 1 > fork_step_ ? round - 1 - fork_step_ : 1;
    fork_step_ *= 2;
    out.push_back(Send{from, GetRecords{first}});
    return;
  }
  if (forked && chain_.CertifiedByOwner(record)) {
    if (!Wins(theirs)) return;
    if (record.body.kind == Kind::kReset) {
      RewindTo(round - 1, {std::move(record)}, out);
    } else {
      fork_ = std::move(record);
    }
  } else if (theirs.head.era == chain_.head().body.era && !forked) {
    Problem(from,
            fmt::format("its record {} is {}, ours is {}: two histories", round,
                        record.hash.Short(), chain_.At(round).hash.Short()),
            out);
  }
}

void Peer::RewindTo(Round keep, const std::vector<Record>& records, Effects& out) {
  if (machine_) voter_ = machine_->voter();
  machine_.reset();
  sealed_machine_.reset();
  StopFetching();
  ahead_.clear();
  ahead_bytes_ = 0;
  const Era era = records.back().body.era;
  out.push_back(CutWork{});
  out.push_back(
      Tell{{Event::Kind::kOwner, chain_.rounds(), env_.self,
            keep < chain_.rounds()
                ? fmt::format("an owner's reset (era {}) goes on from round {}: rounds {} to {} of "
                              "this peer's history are orphaned, orphaned.log keeps their records",
                              era, keep, keep + 1, chain_.rounds())
                : fmt::format("an owner's reset (era {}) goes on from round {}", era, keep)}});
  rewind_token_ = ids_.Take();
  Rewind rewind{keep, {}};
  for (const Record& record : records) rewind.records.push_back(record.Encode());
  out.push_back(Persist{rewind_token_, std::move(rewind)});
}

void Peer::Restart(Effects& out) {
  restarting_ = true;
  machine_.reset();
  StopFetching();
  out.push_back(CutWork{});
  out.push_back(Reload{});
}

}  // namespace loom::collab
