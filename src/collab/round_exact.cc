// Exact mode in a round (rules R24-R26): the set is fixed only when it holds the units of every
// worker. The record deals the workers to hosts, and each host sends one sum of all its units.
// Workers of a host that is gone, late or unwilling are computed by another one, each by itself;
// so the sets of workers that commitments cover are nested or disjoint, and a cover is found by
// taking the dealt ones that arrived first. A unit that breaks its bounds lets everybody sum the
// step again under wider ones; one that two hosts find not finite lets everybody skip the step.
#include <algorithm>

#include "collab/round.h"

namespace loom::collab {

void RoundMachine::StartExact(Time now) {
  exact_.bounds = BoundsAfter(parent_.body.exponents, env_.layout->num_tensors());
  exact_.bounds_id = BoundsId(exact_.bounds);
  exact_.plan.id = id();
  for (const WorkerEntry& w : parent_.body.workers) {
    exact_.plan.hosts.push_back(w.host);
    exact_.given[w.worker] = now;
  }
  QueueUnits();
}

// What this member has to compute under the present bounds and has neither done nor begun.
void RoundMachine::QueueUnits() {
  const auto begun = [&](WorkerIndex worker) {
    return (working_ && working_->bounds == exact_.bounds_id && working_->Has(worker)) ||
           std::ranges::any_of(to_do_, [&](const Task& t) { return t.Has(worker); }) ||
           std::ranges::any_of(own_, [&](const auto& own) {
             return own.second.commitment.Covers(worker) && own.second.commitment.samples() > 0;
           });
  };
  std::vector<WorkOrder> dealt = DealtTo(env_.self);
  if (!dealt.empty() && !begun(dealt.front().worker))
    to_do_.push_back({std::move(dealt), exact_.bounds_id});
  const auto& workers = parent_.body.workers;
  for (std::size_t i = 0; i < workers.size(); ++i) {
    if (exact_.plan.hosts[i] != env_.self || workers[i].host == env_.self ||
        begun(workers[i].worker)) {
      continue;
    }
    if (auto order = OrderOf(parent_.body, workers[i].worker, *env_.config))
      to_do_.push_back({{std::move(*order)}, exact_.bounds_id});
  }
}

void RoundMachine::OnHostPlan(const PeerId& from, const HostPlan& plan, Time now, Effects& out) {
  if (!exact() || decided_ || fix_ ||
      LeaderOf(parent_.body.members, id().round, plan.term) != from ||
      plan.term < agreement_.promised() || plan.hosts.size() != parent_.body.workers.size() ||
      std::pair(plan.term, plan.number) <= std::pair(exact_.plan.term, exact_.plan.number)) {
    return;
  }
  exact_.plan = plan;
  term_ = std::max(term_, plan.term);
  term_since_ = now;
  Progress(now);
  QueueUnits();
  StartWork(out);
}

// Once the exponents of every worker's units are known and one breaks its bound, the step is done
// again under bounds that follow from them (R25): every member comes to that by itself. What was
// committed to under the old bounds is void, but kept for members that lack it.
void RoundMachine::ConsiderRaise(Time now, Effects& out) {
  if (exact_.raised || fix_ || decided_) return;
  bool breaks = false;
  std::vector<Exponent> exponents;
  std::set<WorkerIndex> known;
  for (const auto& [commitment, c] : commitments_) {
    if (!c.not_finite.empty()) continue;
    breaks = breaks || Breaks(c.exponents, exact_.bounds);
    Widen(exponents, c.exponents);
    for (const WorkShare& share : c.shares) known.insert(share.worker);
  }
  if (!breaks || known.size() != parent_.body.workers.size()) return;
  exact_.raised = true;
  exact_.first = std::move(commitments_);
  exact_.bounds = std::move(exponents);
  exact_.bounds_id = BoundsId(exact_.bounds);
  exact_.late.clear();
  for (auto& [worker, since] : exact_.given) since = now;
  commitments_.clear();
  parts_.clear();
  own_.clear();
  reported_.clear();
  to_do_.clear();
  if (lead_) {
    lead_->arrived.clear();
    lead_->first_commitment.reset();
    lead_->since = now;
  }
  term_since_ = now;
  if (working_) out.push_back(CutWork{});
  out.push_back(Tell{{Event::Kind::kPhase, id().round, env_.self, "wider bounds"}});
  QueueUnits();
  StartWork(out);
}

bool RoundMachine::BelievableUnits(const Commitment& c) const {
  if (c.exponents.size() != env_.layout->num_tensors()) return false;
  for (const WorkShare& share : c.shares) {
    const auto entry = std::ranges::find(parent_.body.workers, share.worker, &WorkerEntry::worker);
    if (share.samples != CountSamples(entry->issued)) return false;
  }
  const std::vector<WorkOrder> dealt = DealtTo(c.peer);
  const bool as_dealt =
      std::ranges::equal(c.shares, dealt, {}, &WorkShare::worker, &WorkOrder::worker);
  if (!as_dealt && c.shares.size() != 1) return false;
  for (const WorkerIndex w : c.not_finite) {
    if (!c.Covers(w)) return false;
  }
  const bool breaks = Breaks(c.exponents, exact_.bounds);
  if (breaks && exact_.raised) return false;
  return c.tiles.empty() == (breaks || !c.not_finite.empty());
}

bool RoundMachine::CoversStep(const std::vector<Commitment>& set) const {
  std::set<WorkerIndex> covered;
  std::size_t shares = 0;
  for (const Commitment& c : set) {
    shares += c.shares.size();
    for (const WorkShare& share : c.shares) covered.insert(share.worker);
  }
  return covered.size() == shares && shares == parent_.body.workers.size();
}

// Disjoint commitments that arrived everywhere: what was dealt first, then single workers.
std::vector<const Commitment*> RoundMachine::Cover() const {
  std::vector<const Commitment*> cover;
  std::set<WorkerIndex> covered;
  for (const bool dealt : {true, false}) {
    for (const auto& [commitment, c] : commitments_) {
      const bool is_dealt =
          DealtTo(c.peer).size() == c.shares.size() &&
          std::ranges::find(parent_.body.workers, c.worker(), &WorkerEntry::worker)->host == c.peer;
      if (is_dealt != dealt || c.tiles.empty() || !FullyArrived(commitment)) continue;
      if (std::ranges::any_of(c.shares,
                              [&](const WorkShare& s) { return covered.contains(s.worker); })) {
        continue;
      }
      for (const WorkShare& share : c.shares) covered.insert(share.worker);
      cover.push_back(&c);
    }
  }
  return cover;
}

void RoundMachine::ConsiderFixExact(Time now, Effects& out) {
  if (ConsiderSkip(now, out)) return;
  const std::vector<const Commitment*> cover = Cover();
  bool whole = true;
  bool moved = false;
  bool hopeless = false;
  auto& hosts = exact_.plan.hosts;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    const WorkerIndex worker = parent_.body.workers[i].worker;
    if (std::ranges::any_of(cover, [&](const Commitment* c) { return c->Covers(worker); }))
      continue;
    whole = false;
    if (Await(i, now)) continue;
    if (const auto host = FindHost(worker)) {
      hosts[i] = *host;
      exact_.given[worker] = now;
      moved = true;
      out.push_back(Tell{{Event::Kind::kPhase, id().round, *host,
                          fmt::format("worker {} is computed elsewhere", worker)}});
    } else {
      hopeless = true;
    }
  }
  if (moved) SendHostPlan(now, out);
  if (whole) {
    FixSet fix{id(), lead_->term, lead_->attempt, {}, false};
    for (const Commitment* c : cover) fix.set.push_back(*c);
    std::ranges::sort(fix.set, {}, [](const Commitment& c) { return c.worker(); });
    FixTo(std::move(fix), now, out);
  } else if (hopeless && WorthARecord(now)) {
    FixTo({id(), lead_->term, lead_->attempt, {}, false}, now, out);
  }
}

// Whether the host of the i-th worker is still worth waiting for.
bool RoundMachine::Await(std::size_t i, Time now) {
  const WorkerIndex worker = parent_.body.workers[i].worker;
  const PeerId& host = exact_.plan.hosts[i];
  if (host != env_.self && !env_.presence->Present(host)) return false;
  if (unfit_.contains(host) || exact_.unwilling[worker].contains(host) ||
      exact_.not_finite[worker].contains(host)) {
    return false;
  }
  bool committed = false;
  for (const auto& [commitment, c] : commitments_) {
    if (c.peer != host || !c.Covers(worker)) continue;
    if (!c.not_finite.empty() || !WhyBad(commitment).empty()) {
      exact_.unwilling[worker].insert(host);  // no sum with the worker in it comes from there
      return false;
    }
    committed = true;
  }
  // Parts of a commitment that do not arrive are first of all a matter of the owners (LeadTick).
  const Duration limit =
      committed ? 2 * Allowed(exchange_) : Allowed(std::max(start_.predicted_work, work_time_));
  if (now - exact_.given[worker] <= limit) return true;
  exact_.late[worker].insert(host);
  if (FindHost(worker)) return false;
  exact_.late[worker].clear();
  exact_.given[worker] = now;
  return true;
}

// The present member with the fewest workers in hand that has not failed at this one.
std::optional<PeerId> RoundMachine::FindHost(WorkerIndex worker) const {
  const auto fails = [&](const std::map<WorkerIndex, std::set<PeerId>>& who, const PeerId& peer) {
    const auto it = who.find(worker);
    return it != who.end() && it->second.contains(peer);
  };
  std::optional<PeerId> best;
  std::ptrdiff_t fewest = 0;
  for (const Member& m : parent_.body.members) {
    const bool here = m.id == env_.self ? start_.may_work : env_.presence->Present(m.id);
    if (!here || unfit_.contains(m.id) || leaving_.contains(m.id) ||
        fails(exact_.unwilling, m.id) || fails(exact_.late, m.id) ||
        fails(exact_.not_finite, m.id)) {
      continue;
    }
    const std::ptrdiff_t load = std::ranges::count(exact_.plan.hosts, m.id);
    if (!best || load < fewest) {
      best = m.id;
      fewest = load;
    }
  }
  return best;
}

void RoundMachine::SendHostPlan(Time now, Effects& out) {
  exact_.plan.number = exact_.plan.term == lead_->term ? exact_.plan.number + 1 : 1;
  exact_.plan.term = lead_->term;
  lead_->since = now;
  Broadcast(exact_.plan, out);
  QueueUnits();
  StartWork(out);
}

// R26: two hosts found a unit of the same worker that is not finite, or nobody else can look.
bool RoundMachine::ConsiderSkip(Time now, Effects& out) {
  for (const auto& [worker, found] : exact_.not_finite) {
    if (found.empty() || (found.size() < 2 && FindHost(worker))) continue;
    out.push_back(Tell{{Event::Kind::kExcluded, id().round, *found.begin(),
                        fmt::format("worker {} has a gradient that is not finite, found by {} "
                                    "members: everybody skips the step",
                                    worker, found.size())}});
    FixTo({id(), lead_->term, lead_->attempt, {}, true}, now, out);
    return true;
  }
  return false;
}

}  // namespace loom::collab
