// What the leader of a term does (R2, R19, R20, R33), and how a silent one is replaced: deadlines
// come from predictions by one knob, a gone leader is passed over at once, and only a quorum of
// promises ever replaces anybody.
#include <algorithm>

#include "base/printable.h"
#include "collab/round.h"

namespace loom::collab {

// Owners are the present members, in order of seniority; their runs follow their measured rates.
void RoundMachine::StartAttempt(Term term, Time now, Effects& out) {
  if (!lead_ || lead_->term != term) {
    lead_ = Lead{};
    lead_->term = term;
  }
  ++lead_->attempt;
  lead_->phase = Lead::Phase::kCollect;
  lead_->since = now;
  lead_->arrived.clear();
  lead_->first_commitment.reset();
  for (auto& [worker, since] : exact_.given) since = now;
  std::vector<PeerId> owners;
  for (const bool also_partial : {false, true}) {
    if (!owners.empty()) break;
    for (const Member& m : parent_.body.members) {
      const bool reachable = m.id == env_.self || env_.presence->Present(m.id);
      if (reachable && !lead_->slow.contains(m.id) && !unfit_.contains(m.id) &&
          (also_partial || !env_.presence->partial.contains(m.id))) {
        owners.push_back(m.id);
      }
    }
  }
  if (owners.empty()) owners.push_back(env_.self);
  const Plan plan{id(), term, lead_->attempt,
                  ShareTiles(owners, env_.rates->Medians(), env_.layout->num_tiles())};
  Broadcast(plan, out);
  OnPlan(env_.self, plan, now, out);
}

void RoundMachine::OnArrived(const PeerId& from, const Arrived& arrived, Time now, Effects& out) {
  constexpr std::size_t kMostWords = 4 * kMaxMembers;  // of one owner in one attempt
  if (!lead_ || decided_ || arrived.term != lead_->term || arrived.attempt != lead_->attempt ||
      !plan_ || RunOf(from) == nullptr) {
    return;
  }
  auto& words = lead_->arrived[from];
  if (words.size() >= kMostWords && !words.contains(arrived.commitment)) return;
  const std::string word = arrived.good             ? std::string()
                           : arrived.reason.empty() ? "refused"
                                                    : OneLine(arrived.reason);
  const auto [known, fresh] = words.try_emplace(arrived.commitment, word);
  if (!fresh && known->second == word) return;
  known->second = word;
  Progress(now);
  ConsiderFix(now, out);
}

bool RoundMachine::FullyArrived(const Hash& commitment) const {
  return std::all_of(plan_->owners.begin(), plan_->owners.end(), [&](const OwnedRun& o) {
    if (o.run.count == 0) return true;
    const auto owner = lead_->arrived.find(o.owner);
    if (owner == lead_->arrived.end()) return false;
    const auto word = owner->second.find(commitment);
    return word != owner->second.end() && word->second.empty();
  });
}

std::string RoundMachine::WhyBad(const Hash& commitment) const {
  for (const auto& [owner, words] : lead_->arrived) {
    const auto word = words.find(commitment);
    if (word != words.end() && !word->second.empty()) return word->second;
  }
  return {};
}

// Fixes the set as soon as nobody is worth waiting for: every worker whose host is present has
// arrived everywhere, resigned, or was found bad.
void RoundMachine::ConsiderFix(Time now, Effects& out) {
  if (!lead_ || decided_ || lead_->phase != Lead::Phase::kCollect || !plan_ ||
      plan_->term != lead_->term || plan_->attempt != lead_->attempt) {
    return;
  }
  if (!commitments_.empty() && !lead_->first_commitment) lead_->first_commitment = now;
  if (order_) {  // R14: nobody contributes to the record that takes it up
    FixTo({id(), lead_->term, lead_->attempt, {}, false}, now, out);
    return;
  }
  if (exact()) {
    ConsiderFixExact(now, out);
    return;
  }
  bool waiting = false;
  bool any = false;
  for (const WorkerEntry& w : parent_.body.workers) {
    if (w.issued.empty()) continue;
    const Commitment* c = conflicted_.contains(w.worker) ? nullptr : CommitmentOf(w.worker);
    if (c != nullptr && FullyArrived(c->Id())) {
      any = true;
      continue;
    }
    if (conflicted_.contains(w.worker) || (c != nullptr && !WhyBad(c->Id()).empty()) ||
        resigned_.contains(w.worker)) {
      continue;
    }
    // A host that is silent or has committed to nothing is waited for until one deadline passed.
    const bool here =
        (w.host == env_.self || env_.presence->Present(w.host)) && (c != nullptr || !lead_->waited);
    const bool silent =
        env_.presence->connected.contains(w.host) && lead_->term == 0 && !lead_->waited;
    waiting = waiting || ((here || silent) && !unfit_.contains(w.host));
  }
  if (!waiting && (any || WorthARecord(now))) Fix(now, out);
}

// A round without work is worth a record when it changes who is listed. Otherwise it only lets
// everybody try again, and that is not urgent: peers that may not work must not race through it.
bool RoundMachine::WorthARecord(Time now) const {
  const auto& members = parent_.body.members;
  return !joiners_.empty() || PresentMembers().size() < members.size() ||
         std::any_of(
             members.begin(), members.end(),
             [&](const Member& m) { return leaving_.contains(m.id) || unfit_.contains(m.id); }) ||
         now - started_ >= env_.timing.slack;
}

void RoundMachine::Fix(Time now, Effects& out) {
  FixSet fix{id(), lead_->term, lead_->attempt, {}};
  for (const WorkerEntry& w : parent_.body.workers) {
    if (w.issued.empty()) continue;
    const Commitment* c = conflicted_.contains(w.worker) ? nullptr : CommitmentOf(w.worker);
    const std::string bad = c != nullptr ? WhyBad(c->Id()) : std::string();
    if (c != nullptr && bad.empty() && FullyArrived(c->Id())) {
      fix.set.push_back(*c);
    } else {
      const char* why = conflicted_.contains(w.worker) ? "two different commitments"
                        : !bad.empty()                 ? bad.c_str()
                        : resigned_.contains(w.worker) ? "nothing to contribute"
                        : c != nullptr                 ? "its parts did not all arrive"
                                                       : "no word from its host";
      out.push_back(Tell{{Event::Kind::kExcluded, id().round, w.host,
                          fmt::format("worker {}: {}", w.worker, why), ByOrder()}});
    }
  }
  FixTo(std::move(fix), now, out);
}

void RoundMachine::FixTo(FixSet fix, Time now, Effects& out) {
  lead_->phase = Lead::Phase::kReduce;
  lead_->since = now;
  Broadcast(fix, out);
  OnFixSet(env_.self, fix, now, out);
}

void RoundMachine::ConsiderPropose(Effects& out) {
  if (!lead_ || decided_ || lead_->phase != Lead::Phase::kReduce || !gather_ || !gather_->next ||
      !fix_ || fix_->term != lead_->term || fix_->attempt != lead_->attempt) {
    return;
  }
  Choices choices;
  for (const Commitment& c : fix_->set) {
    const auto shares = static_cast<std::uint32_t>(c.shares.size());
    for (std::uint32_t k = 0; k < shares; ++k) {
      const WorkShare& share = c.shares[k];
      const auto entry =
          std::ranges::find(parent_.body.workers, share.worker, &WorkerEntry::worker);
      const std::uint32_t millis = c.millis / shares + (k < c.millis % shares ? 1 : 0);
      choices.contributions.push_back({share.worker, c.peer, share.samples, share.tokens, millis,
                                       *Prefix(entry->issued, share.samples), c.Id()});
    }
  }
  std::ranges::sort(choices.contributions, {}, &Contribution::worker);
  if (fix_->skip) {
    for (const WorkerEntry& w : parent_.body.workers) choices.spoiled.push_back(w.worker);
  }
  for (const auto& [commitment, c] : commitments_) {
    if (!exact() && !WhyBad(commitment).empty()) choices.spoiled.push_back(c.worker());
  }
  std::sort(choices.spoiled.begin(), choices.spoiled.end());
  choices.exponents = gather_->exponents;
  for (const Member& m : parent_.body.members) {
    const bool here = m.id == env_.self || env_.presence->Present(m.id);
    if (here && !leaving_.contains(m.id) && !unfit_.contains(m.id)) choices.stay.push_back(m.id);
  }
  if (choices.stay.empty()) choices.stay.push_back(env_.self);
  const std::size_t most = std::max<std::size_t>(1, choices.stay.size() - 1);
  for (const Joiner& j : joiners_) {
    if (choices.join.size() < most && !IsMember(parent_.body.members, crypto::PeerIdOf(j.key))) {
      choices.join.push_back(j);
    }
  }
  choices.tiles = gather_->next->tiles;
  choices.root = gather_->next->root;
  if (order_ && fix_->set.empty()) {
    choices.order = order_->order;
    if (order_->order.revert) {
      choices.root = order_->root;
      choices.steps = order_->steps;
      choices.exponents = order_->exponents;
    }
  }
  lead_->phase = Lead::Phase::kPropose;
  const Body body = NextBody(parent_.body, parent_.hash, env_.run, *env_.config, choices);
  Actions actions;
  agreement_.Choose(lead_->term, MakeBlob(body.Encode()), actions);
  Carry(std::move(actions), last_progress_, out);
}

void RoundMachine::LeadTick(Time now, Effects& out) {
  if (!lead_ || decided_ || lead_->term < agreement_.promised()) return;
  if (Alone()) return;  // nobody else could do it sooner
  const Duration work = std::max(start_.predicted_work, work_time_);
  if (lead_->phase == Lead::Phase::kCollect) {
    if (!exact() && lead_->first_commitment && now - *lead_->first_commitment > work / 2 + 1s) {
      for (const WorkerEntry& w : parent_.body.workers) {
        if (w.issued.empty() || CommitmentOf(w.worker) != nullptr || resigned_.contains(w.worker)) {
          continue;
        }
        if (!lead_->cut.insert(w.worker).second) continue;
        const Cut cut{id(), w.worker};
        if (w.host == env_.self) {
          out.push_back(CutWork{});
        } else {
          SendTo(w.host, cut, out);
        }
      }
    }
    // Once somebody has committed, the rest of the work is nearly done; a new attempt that began
    // because a member died in the middle of the work still waits for all of it.
    const Duration limit = commitments_.empty() ? Allowed(work) + Allowed(exchange_)
                                                : Allowed(exchange_) + work / 2 + 1s;
    const Time from = lead_->first_commitment.value_or(lead_->since);
    if (now - std::max(from, lead_->since) > limit) {
      lead_->waited = true;
      RanOut();
      for (const OwnedRun& o :
           plan_->owners) {  // an owner that reported nothing owns nothing next time
        if (o.owner != env_.self && !commitments_.empty() && !lead_->arrived.contains(o.owner)) {
          lead_->slow.insert(o.owner);
        }
      }
      const bool any = std::any_of(commitments_.begin(), commitments_.end(),
                                   [&](const auto& c) { return FullyArrived(c.first); });
      if (exact()) {
        if (any || commitments_.empty()) return;  // what lacks is computed elsewhere
        StartAttempt(lead_->term, now, out);
      } else if (any || commitments_.empty() || lead_->attempt > 3) {
        Fix(now, out);
      } else {
        StartAttempt(lead_->term, now, out);
      }
      return;
    }
  }
  if (lead_->phase == Lead::Phase::kReduce && now - lead_->since > Allowed(exchange_)) {
    RanOut();
    for (const OwnedRun& o : plan_->owners) {
      if (o.owner == env_.self || o.run.count == 0) continue;
      for (std::uint32_t i = o.run.first; i < o.run.first + o.run.count; ++i) {
        if (!gather_->have[i]) {
          lead_->slow.insert(o.owner);
          break;
        }
      }
    }
    StartAttempt(lead_->term, now, out);
  }
}

Duration RoundMachine::Allowed(Duration predicted) const {
  return FromSeconds(env_.timing.factor * Seconds(predicted)) + env_.timing.slack;
}

// Nobody is known to be gone, so the prediction was wrong, perhaps that of a peer that has not
// measured yet: attempts that each take too long would follow each other for ever.
void RoundMachine::RanOut() {
  constexpr Duration kLongest = 10min;
  exchange_ = std::max(exchange_, std::min(2 * exchange_, kLongest));
}

Duration RoundMachine::TermDeadline() const {
  const Duration exchange = Allowed(exchange_);
  if (!plan_ || plan_->term < term_) return exchange;  // a leader's first word is its plan
  if (fix_) return exchange + exchange;
  const bool working = commitments_.empty() || exact();
  return (working ? Allowed(std::max(start_.predicted_work, work_time_)) : work_time_ / 2 + 1s) +
         exchange + exchange;
}

void RoundMachine::ConsiderTakeover(Time now, Effects& out) {
  if (decided_ || !IsMember(parent_.body.members, env_.self)) return;
  if (!HaveQuorum()) {
    term_since_ = now;
    return;
  }
  term_ = std::max(term_, agreement_.promised());
  const auto dead = [&](const PeerId& p) {
    return p != env_.self && (!env_.presence->Present(p) || unfit_.contains(p));
  };
  const std::size_t members = parent_.body.members.size();
  // R2: after a restart this member leads no term that it may have led before; the others hear it.
  const bool led_before =
      leader() == env_.self && !lead_ && !agreement_.MayLead(term_) && !agreement_.Preparing(term_);
  const bool leader_gone =
      led_before || (leader() != env_.self &&
                     (env_.presence->gone.contains(leader()) || unfit_.contains(leader())));
  if (leader_gone || (!Alone() && now - term_since_ > TermDeadline())) {
    ++term_;
    for (std::size_t k = 1; k < members && dead(leader()); ++k) ++term_;
    term_since_ = now;
    if (!leader_gone) RanOut();
    out.push_back(Tell{{Event::Kind::kTakeover, id().round, leader(),
                        led_before    ? "the leader has started anew"
                        : leader_gone ? "the leader is gone"
                                      : "the leader let its time pass",
                        led_before && ByOrder()}});
    if (led_before) SayMissing(out);
  }
  if (leader() == env_.self && agreement_.MayLead(term_)) {
    Actions actions;
    agreement_.Lead(term_, actions);
    Carry(std::move(actions), now, out);
  }
}

}  // namespace loom::collab
