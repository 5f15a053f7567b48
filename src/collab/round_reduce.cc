// Plan, set, reduce and gather, as every member sees them (R20, R23), and the gossip about what is
// missing that makes a lost message cost a moment.
#include <algorithm>

#include "agreed/combine.h"
#include "collab/chain.h"
#include "collab/mutations.h"
#include "collab/round.h"
#include "crypto/hash.h"

namespace loom::collab {

const OwnedRun* RoundMachine::RunOf(const PeerId& owner) const {
  const auto it = std::find_if(plan_->owners.begin(), plan_->owners.end(),
                               [&](const OwnedRun& o) { return o.owner == owner; });
  return it == plan_->owners.end() ? nullptr : &*it;
}

void RoundMachine::OnPlan(const PeerId& from, const Plan& plan, Time now, Effects& out) {
  if (decided_ || LeaderOf(parent_.body.members, id().round, plan.term) != from) return;
  if (plan.term < agreement_.promised()) {
    if (from != env_.self) SendTo(from, NackMessage{id(), agreement_.promised()}, out);
    return;
  }
  if (plan_ && std::pair(plan.term, plan.attempt) <= std::pair(plan_->term, plan_->attempt)) return;
  std::uint64_t next = 0;  // the runs are in order and cover the grid once
  for (const OwnedRun& o : plan.owners) {
    if (o.run.first != next || !IsMember(parent_.body.members, o.owner)) return;
    next += o.run.count;
  }
  if (next != env_.layout->num_tiles()) return;
  if (plan.term > term_) {
    term_ = plan.term;
  }
  term_since_ = now;
  Progress(now);
  plan_ = plan;
  fix_.reset();
  to_reduce_.reset();
  reported_.clear();
  if (!LOOM_PLANTED(attempts_mixed) || !gather_) {
    gather_ = Gather{};
    gather_->hashes.resize(env_.layout->num_tiles());
    gather_->have.assign(env_.layout->num_tiles(), false);
    gather_->missing = env_.layout->num_tiles();
  }
  gather_->term = plan.term;
  gather_->attempt = plan.attempt;
  for (auto& [commitment, own] : own_) Scatter(own, out);
  ReportArrivals(now, out);
}

void RoundMachine::OnFixSet(const PeerId& from, const FixSet& fix, Time now, Effects& out) {
  if (decided_ || fix_ || !plan_ || LeaderOf(parent_.body.members, id().round, fix.term) != from ||
      fix.term != plan_->term || fix.attempt != plan_->attempt ||
      fix.term < agreement_.promised()) {
    return;
  }
  WorkerIndex last = 0;
  std::vector<Exponent> exponents;
  for (const Commitment& c : fix.set) {
    if (c.shares.empty() || c.tiles.empty()) return;
    if (&c != &fix.set.front() && c.worker() <= last) return;  // canonical order
    last = c.worker();
    OnCommitment(c, now, out);
    if (!commitments_.contains(c.Id())) return;
    Widen(exponents, c.exponents);
  }
  if (exact() && !fix.set.empty() && !CoversStep(fix.set)) return;
  fix_ = fix;
  gather_->exponents = std::move(exponents);
  term_since_ = now;
  Progress(now);
  if (working_) out.push_back(CutWork{});  // this round no longer needs it
  to_do_.clear();
  out.push_back(Tell{{Event::Kind::kPhase, id().round, env_.self, "reduce"}});
  if (fix.set.empty()) {
    gather_->missing = 0;
    gather_->bytes.reset();
    gather_->whole = MakeBlob({});
    gather_->next = NextState{parent_.body.root, {}};
    ConsiderPropose(out);
    AdvanceCheck(now, out);
    return;
  }
  ComputeNext(out);
  TryReduce(out);
}

void RoundMachine::TryReduce(Effects& out) {
  if (!fix_ || to_reduce_ || fix_->set.empty()) return;
  const OwnedRun* mine = RunOf(env_.self);
  if (mine == nullptr || mine->run.count == 0) return;
  for (const Commitment& c : fix_->set) {
    if (!CompleteIn(parts_.at(c.Id()), mine->run)) return;
  }
  const std::vector<TileRun> pieces = Pieces(mine->run, 1);
  to_reduce_.emplace(pieces.begin(), pieces.end());
  ReduceNext(out);
}

// A few pieces at a time: a result is as large as a message, and they would all wait here at once.
void RoundMachine::ReduceNext(Effects& out) {
  constexpr std::size_t kAtOnce = 3;
  if (decided_ || !fix_ || !to_reduce_) return;
  std::vector<std::uint64_t> tokens;
  tokens.reserve(fix_->set.size());
  for (const Commitment& c : fix_->set) tokens.push_back(c.tokens());
  const std::vector<float> weights = agreed::TokenWeights(tokens);
  while (!to_reduce_->empty() && reduce_jobs_.size() < kAtOnce) {
    ReduceJob job{to_reduce_->front(), {}, exact_.bounds};
    to_reduce_->pop_front();
    for (std::size_t k = 0; k < fix_->set.size(); ++k) {
      const auto& tiles = parts_.at(fix_->set[k].Id()).tiles;
      const auto first = tiles.begin() + job.run.first;
      job.inputs.push_back({weights[k], UnitsOf(fix_->set[k]), {first, first + job.run.count}});
    }
    const std::uint64_t number = env_.ids->Take();
    reduce_jobs_.emplace(number, RunJob{plan_->term, plan_->attempt, job.run});
    out.push_back(Compute{number, std::move(job)});
  }
}

void RoundMachine::OnReducedRun(TileRun run, Result<Bytes> bytes, Time now, Effects& out) {
  if (!bytes) {
    out.push_back(Tell{{Event::Kind::kProblem, id().round, env_.self,
                        fmt::format("the reduce failed: {}", bytes.error().message)}});
    return;
  }
  PutReduced(run, *bytes, HashesOf(run, *bytes));
  PartSignature part{env_.self, plan_->term, plan_->attempt, run, {}};
  const auto hashes = std::span(gather_->hashes).subspan(run.first, run.count);
  part.signature = env_.signer->Sign(kReducedDomain, PartText(id(), part, hashes));
  Broadcast(Reduced{id(), part.term, part.attempt, run, Gathered(run), part.signature}, out);
  OnGathered(part, now, out);
}

void RoundMachine::SendReduced(const PeerId& to, std::span<const TileRun> wanted,
                               Effects& out) const {
  for (const PartSignature& part : gather_->parts) {
    if (part.owner != env_.self || part.term != plan_->term || part.attempt != plan_->attempt ||
        std::ranges::none_of(wanted,
                             [&](const TileRun& run) { return run.Contains(part.run.first); })) {
      continue;
    }
    SendTo(to, Reduced{id(), part.term, part.attempt, part.run, Gathered(part.run), part.signature},
           out, true);
  }
}

void RoundMachine::OnReduced(const PeerId& from, const Reduced& reduced, Time now, Effects& out) {
  const bool current = plan_ && reduced.term == plan_->term && reduced.attempt == plan_->attempt;
  if (decided_ || !plan_ || (!current && !LOOM_PLANTED(attempts_mixed))) return;
  const OwnedRun* owned = RunOf(from);
  const Member* member = FindMember(parent_.body.members, from);
  if (owned == nullptr || member == nullptr || reduced.run.count == 0 ||
      !owned->run.Contains(reduced.run.first) ||
      reduced.run.count > owned->run.first + owned->run.count - reduced.run.first ||
      reduced.tiles.size != env_.layout->Offset(reduced.run.first + reduced.run.count) -
                                env_.layout->Offset(reduced.run.first)) {
    return;
  }
  const PartSignature part{from, reduced.term, reduced.attempt, reduced.run, reduced.signature};
  if (gather_->missing == 0 || gather_->have[reduced.run.first]) return;
  const std::vector<Hash> hashes = HashesOf(reduced.run, reduced.tiles.View());
  if (!env_.signer->Verify(member->key, kReducedDomain, PartText(id(), part, hashes),
                           reduced.signature)) {
    return;
  }
  PutReduced(reduced.run, reduced.tiles.View(), hashes);
  OnGathered(part, now, out);
}

std::vector<Hash> RoundMachine::HashesOf(TileRun run, ByteView tiles) const {
  std::vector<Hash> hashes;
  const std::uint64_t begin = env_.layout->Offset(run.first);
  for (std::uint32_t i = run.first; i < run.first + run.count; ++i) {
    hashes.push_back(
        crypto::Sha256(tiles.subspan(env_.layout->Offset(i) - begin, env_.layout->Size(i))));
  }
  return hashes;
}

void RoundMachine::PutReduced(TileRun run, ByteView tiles, std::span<const Hash> hashes) {
  if (gather_->missing == 0) return;
  if (gather_->bytes == nullptr) gather_->bytes = std::make_shared<Bytes>(env_.layout->total());
  const std::uint64_t begin = env_.layout->Offset(run.first);
  for (std::uint32_t i = run.first; i < run.first + run.count; ++i) {
    if (gather_->have[i]) continue;
    const ByteView tile = tiles.subspan(env_.layout->Offset(i) - begin, env_.layout->Size(i));
    std::copy(tile.begin(), tile.end(),
              gather_->bytes->begin() + static_cast<std::ptrdiff_t>(env_.layout->Offset(i)));
    gather_->hashes[i] = hashes[i - run.first];
    gather_->have[i] = true;
    --gather_->missing;
  }
}

Slice RoundMachine::Gathered(TileRun run) const {
  const std::uint64_t begin = env_.layout->Offset(run.first);
  return {gather_->bytes, begin, env_.layout->Offset(run.first + run.count) - begin};
}

void RoundMachine::OnGathered(const PartSignature& part, Time now, Effects& out) {
  gather_->parts.push_back(part);
  Progress(now);
  if (gather_->missing > 0 || gather_->whole != nullptr) return;
  gather_->whole = gather_->bytes;
  ComputeNext(out);
}

// Needs the bytes and, for the clock, the set; either may come first.
void RoundMachine::ComputeNext(Effects& out) {
  if (gather_->whole == nullptr || !fix_ || gather_->asked) return;
  gather_->asked = true;
  const std::uint64_t job = env_.ids->Take();
  next_jobs_.emplace(job, gather_->whole);
  agreed::StepClock clock{parent_.body.steps + 1, parent_.body.tokens};
  for (const Commitment& c : fix_->set) clock.tokens += c.tokens();
  out.push_back(Compute{job, NextJob{gather_->whole, clock, gather_->hashes}});
  out.push_back(Tell{{Event::Kind::kPhase, id().round, env_.self, "vote"}});
}

// As runs, and no more of them than a question takes.
std::vector<TileRun> RoundMachine::NotGathered() const {
  std::vector<TileRun> runs;
  for (std::uint32_t i = 0; i < gather_->have.size(); ++i) {
    if (gather_->have[i]) continue;
    if (!runs.empty() && runs.back().first + runs.back().count == i) {
      ++runs.back().count;
    } else if (runs.size() < kMaxRuns) {
      runs.push_back({i, 1});
    }
  }
  return runs;
}

Missing RoundMachine::WhatIsMissing() const {
  Missing missing;
  missing.id = id();
  missing.newest = term_;
  missing.term = plan_ ? plan_->term : term_;
  missing.attempt = plan_ ? plan_->attempt : 0;
  missing.fixed = fix_.has_value();
  missing.bounds = exact_.bounds_id;
  for (std::size_t i = 0; i < parent_.body.workers.size(); ++i) {
    const WorkerEntry& w = parent_.body.workers[i];
    const bool held = std::ranges::any_of(commitments_, [&](const auto& known) {
      // What another one has committed to instead is of use only where everybody has it.
      return known.second.Covers(w.worker) &&
             (!exact() || known.second.peer == exact_.plan.hosts[i]);
    });
    if (!w.issued.empty() && !held && !resigned_.contains(w.worker)) {
      missing.commitments.push_back(w.worker);
    }
  }
  if (plan_ != std::nullopt) {
    if (const OwnedRun* mine = RunOf(env_.self)) {
      for (const auto& [commitment, c] : commitments_) {
        if (!parts_.at(commitment).bad.empty() || c.tiles.empty()) continue;
        if (const auto run = Lacking(commitment, mine->run))
          missing.parts.push_back({commitment, *run});
      }
    }
    if (fix_ && gather_->missing > 0) missing.reduced = NotGathered();
  }
  for (const Member& m : parent_.body.members) {
    const auto& votes = agreement_.votes();
    if (std::none_of(votes.begin(), votes.end(),
                     [&](const Vote& v) { return v.peer == m.id && v.term >= missing.term; })) {
      missing.votes.push_back(m.id);
    }
  }
  return missing;
}

void RoundMachine::SayMissing(Effects& out) { Broadcast(WhatIsMissing(), out); }

void RoundMachine::OnMissing(const PeerId& from, const Missing& missing, Time now, Effects& out) {
  if (!IsMember(parent_.body.members, from)) return;
  HeardTerm(missing.newest, now);
  if (lead_ && exact_.plan.number > 0) SendTo(from, exact_.plan, out);
  if (missing.bounds != exact_.bounds_id) {
    if (exact_.raised) {
      for (const auto& [commitment, c] : exact_.first) SendTo(from, c, out);
    } else {
      SendTo(from, WhatIsMissing(), out);  // who has wider bounds has what leads to them
    }
  }
  // Everything once, however often a question repeats itself: the answer is no larger than what is
  // held.
  for (auto& [commitment, own] : own_) {
    if (std::ranges::none_of(missing.commitments,
                             [&](WorkerIndex w) { return own.commitment.Covers(w); })) {
      continue;
    }
    SendTo(from, own.commitment, out);
    // Who did not get the commitment did not get the parts after it either.
    const OwnedRun* run = plan_ ? RunOf(from) : nullptr;
    if (run != nullptr) SendParts(from, own, run->run, out, true);
  }
  if (lead_ && plan_ && plan_->term == lead_->term &&
      std::pair(missing.term, missing.attempt) < std::pair(plan_->term, plan_->attempt)) {
    SendTo(from, *plan_, out);
    if (fix_) SendTo(from, *fix_, out);
  }
  const bool same_attempt =
      plan_ && missing.term == plan_->term && missing.attempt == plan_->attempt;
  if (lead_ && same_attempt && !missing.fixed && fix_) SendTo(from, *fix_, out);
  for (auto& [commitment, own] : own_) {
    const auto want = std::ranges::find(missing.parts, commitment, &Missing::Want::commitment);
    if (want != missing.parts.end() &&
        want->run.first + std::uint64_t{want->run.count} <= env_.layout->num_tiles()) {
      SendParts(from, own, want->run, out, true);
    }
  }
  if (same_attempt) SendReduced(from, missing.reduced, out);
  const auto vote = agreement_.DurableVote();
  if (vote &&
      std::find(missing.votes.begin(), missing.votes.end(), env_.self) != missing.votes.end()) {
    SendTo(from, VoteMessage{id(), *vote}, out);
  }
  if (const auto proposal = agreement_.OwnProposal();
      proposal &&
      std::find(missing.votes.begin(), missing.votes.end(), from) != missing.votes.end()) {
    SendTo(from, ProposalMessage{id(), proposal->term, 0, *proposal->body}, out);
  }
  if (agreement_.Preparing(term_)) SendTo(from, PrepareMessage{id(), term_}, out);
  // Arrivals reported into the void are reported again.
  if (plan_ && LeaderOf(parent_.body.members, id().round, plan_->term) == from && !fix_ &&
      !missing.fixed) {
    reported_.clear();
    ReportArrivals(now, out);
  }
}

}  // namespace loom::collab
