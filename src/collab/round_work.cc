// Work, commitments and parts: what a contributor sends, and what an owner takes in (R17-R19).
#include <algorithm>

#include "collab/round.h"
#include "crypto/hash.h"

namespace loom::collab {
namespace {

constexpr std::string_view kCommitmentDomain = "loom commitment";

/// All tokens times the mean loss of those that one is taken on; 0 when there are none.
double LossOfTokens(const WorkDone& done) {
  if (done.targets == done.tokens || done.targets == 0) return done.loss_sum;
  return done.loss_sum / static_cast<double>(done.targets) * static_cast<double>(done.tokens);
}

}  // namespace

std::vector<WorkOrder> RoundMachine::DealtTo(const PeerId& host) const {
  std::vector<WorkOrder> orders;
  for (const WorkerEntry& w : parent_.body.workers) {
    if (w.host != host) continue;
    if (auto order = OrderOf(parent_.body, w.worker, *env_.config))
      orders.push_back(std::move(*order));
  }
  return orders;
}

bool RoundMachine::Task::Has(WorkerIndex worker) const {
  return std::ranges::any_of(orders, [&](const WorkOrder& o) { return o.worker == worker; });
}

void RoundMachine::StartWork(Effects& out) {
  if (working_ || decided_) return;
  while (!to_do_.empty()) {
    Task task = std::move(to_do_.front());
    to_do_.erase(to_do_.begin());
    if (!start_.may_work) {
      for (const WorkOrder& order : task.orders) {
        Resign(order.worker, "its host restarted in this round, or pauses", out);
      }
      continue;
    }
    const std::uint64_t job = env_.ids->Take();
    out.push_back(Compute{job, WorkJob{task.orders, exact_.bounds}});
    work_jobs_.emplace(job, task);
    working_ = std::move(task);
    out.push_back(Tell{{Event::Kind::kPhase, id().round, env_.self, "work"}});
    return;
  }
}

void RoundMachine::OnWorkDone(const Task& task, WorkResult result, Time now, Effects& out) {
  working_.reset();
  exchange_since_ = now;
  // Too late for this set, or for these bounds: the work is left out, its samples come back.
  if (decided_ || fix_ || task.bounds != exact_.bounds_id) {
    StartWork(out);
    return;
  }
  if (!result.work) {
    failed_work_ = result.work.error();
    out.push_back(Tell{{Event::Kind::kProblem, id().round, env_.self,
                        fmt::format("own work left out: {}", result.work.error().ToString())}});
    for (const WorkOrder& order : task.orders) {
      Resign(order.worker, result.work.error().message, out);
    }
    StartWork(out);
    return;
  }
  EncodedWork& work = *result.work;
  work_time_ = std::max<Duration>(work_time_, std::chrono::milliseconds(result.millis));
  grad_norm_ = work.done.grad_norm;
  learning_rate_ = work.done.learning_rate;
  if (work.done.samples == 0) {
    for (const WorkOrder& order : task.orders) {
      Resign(order.worker, "it was cut before its first step", out);
    }
    StartWork(out);
    return;
  }
  if (work.not_finite.empty()) {
    worked_ = true;
  } else {
    failed_work_ = MakeError(Code::kInvalid, "a gradient is not finite");
  }
  Own own;
  own.commitment.id = id();
  own.commitment.peer = env_.self;
  own.commitment.shares = std::move(work.shares);
  own.commitment.millis = std::max<std::uint32_t>(1, result.millis);
  own.commitment.loss_sum = LossOfTokens(work.done);
  own.commitment.grad_norm = work.done.grad_norm;
  own.commitment.bounds = task.bounds;
  own.commitment.exponents = std::move(work.exponents);
  own.commitment.not_finite = std::move(work.not_finite);
  own.commitment.tiles = std::move(work.hashes);
  own.commitment.signature = env_.signer->Sign(kCommitmentDomain, own.commitment.Text());
  own.encoded = std::move(work.encoded);
  const Hash commitment = own.commitment.Id();
  if (own.encoded != nullptr) {
    const std::uint64_t width = WidthOf(own.commitment);
    PartStore& store = parts_[commitment];
    store.tiles.resize(env_.layout->num_tiles());
    for (std::size_t i = 0; i < store.tiles.size(); ++i) {
      store.tiles[i] = {own.encoded, width * env_.layout->Offset(i), width * env_.layout->Size(i)};
    }
  }
  Broadcast(own.commitment, out);
  Own& kept = own_.emplace(commitment, std::move(own)).first->second;
  OnCommitment(kept.commitment, now, out);
  if (own_.contains(commitment)) Scatter(kept, out);
  StartWork(out);
}

// A commitment without samples: "do not wait for this worker". It never replaces a real one.
void RoundMachine::Resign(WorkerIndex worker, const std::string& why, Effects& out) {
  Own own;
  own.commitment.id = id();
  own.commitment.peer = env_.self;
  own.commitment.shares.push_back({worker, 0, 0});
  own.commitment.bounds = exact_.bounds_id;
  own.commitment.signature = env_.signer->Sign(kCommitmentDomain, own.commitment.Text());
  Broadcast(own.commitment, out);
  out.push_back(Tell{{Event::Kind::kExcluded, id().round, env_.self, why, ByOrder()}});
  const Commitment copy = own.commitment;
  own_.emplace(copy.Id(), std::move(own));
  OnCommitment(copy, last_progress_, out);
}

std::uint64_t RoundMachine::UnitsOf(const Commitment& c) const {
  return exact() ? c.shares.size() * env_.config->accumulation : 1;
}

const Commitment* RoundMachine::CommitmentOf(WorkerIndex worker) const {
  const auto it = std::ranges::find_if(
      commitments_, [&](const auto& known) { return known.second.worker() == worker; });
  return it == commitments_.end() ? nullptr : &it->second;
}

// What only its author can have said, about work that was issued.
bool RoundMachine::Believable(const Commitment& c) const {
  const Member* member = FindMember(parent_.body.members, c.peer);
  if (member == nullptr || c.shares.empty()) return false;
  const bool resigns = c.samples() == 0;
  for (std::size_t i = 0; i < c.shares.size(); ++i) {
    const WorkShare& share = c.shares[i];
    if (i > 0 && share.worker <= c.shares[i - 1].worker) return false;
    const auto entry = std::ranges::find(parent_.body.workers, share.worker, &WorkerEntry::worker);
    if (entry == parent_.body.workers.end() || entry->issued.empty()) return false;
    if (!exact() && entry->host != c.peer) return false;
    if (!resigns && (!Prefix(entry->issued, share.samples) || share.tokens == 0 ||
                     share.tokens > share.samples * env_.config->context)) {
      return false;
    }
  }
  if (resigns ? c.shares.size() != 1 || !c.tiles.empty() : c.millis == 0) return false;
  if (!c.tiles.empty() && c.tiles.size() != env_.layout->num_tiles()) return false;
  if (!exact() && (c.shares.size() != 1 || !c.bounds.IsZero() || c.tiles.empty() != resigns ||
                   !c.exponents.empty() || !c.not_finite.empty())) {
    return false;
  }
  if (exact() && !resigns && !BelievableUnits(c)) return false;
  return env_.signer->Verify(member->key, kCommitmentDomain, c.Text(), c.signature);
}

void RoundMachine::OnCommitment(const Commitment& c, Time now, Effects& out) {
  if (c.bounds != exact_.bounds_id || !Believable(c)) return;
  if (c.samples() == 0) {
    if (exact()) exact_.unwilling[c.worker()].insert(c.peer);
    resigned_.insert(c.worker());
    ConsiderFix(now, out);
    return;
  }
  const Hash id = c.Id();
  if (commitments_.contains(id)) return;
  if (exact()) {
    const std::size_t most = 4 * (parent_.body.workers.size() + 1);
    const auto by_peer = std::ranges::count_if(
        commitments_, [&](const auto& known) { return known.second.peer == c.peer; });
    if (static_cast<std::size_t>(by_peer) >= most) return;
    for (const WorkerIndex w : c.not_finite) exact_.not_finite[w].insert(c.peer);
    // The work is done; now its parts get their time.
    for (const WorkShare& share : c.shares) exact_.given[share.worker] = now;
  } else if (CommitmentOf(c.worker()) != nullptr) {
    if (conflicted_.insert(c.worker()).second) {
      out.push_back(
          Tell{{Event::Kind::kExcluded, this->id().round, c.peer,
                fmt::format("worker {} committed to two different results", c.worker())}});
    }
    return;
  }
  KeepCommitment(c, now, out);
}

void RoundMachine::KeepCommitment(const Commitment& c, Time now, Effects& out) {
  const Hash id = c.Id();
  commitments_.emplace(id, c);
  parts_[id].tiles.resize(env_.layout->num_tiles());
  Progress(now);
  std::vector<std::pair<PeerId, Part>> early;
  early.swap(early_parts_);
  early_bytes_ = 0;
  for (auto& [from, part] : early) OnPart(from, part, out);
  if (exact()) ConsiderRaise(now, out);
  ReportArrivals(now, out);
}

void RoundMachine::Scatter(Own& own, Effects& out) {
  if (!plan_ || own.encoded == nullptr) return;
  for (const OwnedRun& o : plan_->owners) {
    if (o.owner != env_.self) SendParts(o.owner, own, o.run, out);
  }
}

void RoundMachine::SendParts(const PeerId& to, Own& own, TileRun run, Effects& out, bool again) {
  if (own.encoded == nullptr || !env_.presence->connected.contains(to)) return;
  const std::uint64_t width = WidthOf(own.commitment);
  const Hash commitment = own.commitment.Id();
  const auto send = [&](TileRun of) {
    for (const TileRun& piece : Pieces(of, width)) {
      const std::uint64_t begin = width * env_.layout->Offset(piece.first);
      const std::uint64_t end = width * env_.layout->Offset(piece.first + piece.count);
      SendTo(to, Part{id(), commitment, piece, {own.encoded, begin, end - begin}}, out, again);
    }
  };
  if (again) return send(run);
  std::vector<bool>& sent = own.sent[to];
  sent.resize(env_.layout->num_tiles());
  const std::uint32_t last = run.first + run.count;
  for (std::uint32_t i = run.first; i < last; ++i) {
    if (sent[i]) continue;
    const std::uint32_t first = i;
    while (i < last && !sent[i]) sent[i++] = true;
    send({first, i - first});
  }
}

std::vector<TileRun> RoundMachine::Pieces(TileRun run, std::uint64_t width) const {
  std::vector<TileRun> pieces;
  const std::uint32_t end = run.first + run.count;
  for (std::uint32_t first = run.first; first < end;) {
    std::uint32_t next = first + 1;
    while (next < end && width * (env_.layout->Offset(next + 1) - env_.layout->Offset(first)) <=
                             env_.bulk_bytes) {
      ++next;
    }
    pieces.push_back({first, next - first});
    first = next;
  }
  return pieces;
}

void RoundMachine::OnPart(const PeerId& from, const Part& part, Effects& out) {
  const std::uint64_t tiles = env_.layout->num_tiles();
  if (part.run.count == 0 || part.run.first >= tiles || part.run.count > tiles - part.run.first)
    return;
  const std::uint64_t size =
      env_.layout->Offset(part.run.first + part.run.count) - env_.layout->Offset(part.run.first);
  const auto known = commitments_.find(part.commitment);
  if (known == commitments_.end()) {
    const std::size_t held = sizeof(Part) + part.tiles.size;
    if (part.tiles.size <= kWide * size &&
        early_bytes_ + held <= 2 * env_.layout->total() + kMaxPartBytes) {
      early_bytes_ += held;
      early_parts_.emplace_back(from, part);
    }
    return;
  }
  const Commitment& c = known->second;
  // Only its author can show what it committed to; from anybody else a bad part proves nothing.
  if (from != c.peer || c.tiles.empty() || part.tiles.size != WidthOf(c) * size) return;
  PartStore& store = parts_[part.commitment];
  const std::uint32_t first = part.run.first;
  const bool news =
      std::any_of(store.tiles.begin() + first, store.tiles.begin() + first + part.run.count,
                  [](const Slice& s) { return s.blob == nullptr; });
  if (!news || !store.bad.empty() || !store.checking.insert(first).second) return;
  const std::uint64_t job = env_.ids->Take();
  part_jobs_.emplace(job, PartJob{part.commitment, part.run, part.tiles});
  TileClaim claim;
  claim.first = first;
  claim.hashes.assign(c.tiles.begin() + first, c.tiles.begin() + first + part.run.count);
  if (exact()) {
    claim.units = UnitsOf(c);
    claim.exponents = c.exponents;
    claim.bounds = exact_.bounds;
  }
  out.push_back(Compute{job, CheckPartJob{std::move(claim), part.tiles}});
}

void RoundMachine::OnPartChecked(const Hash& commitment, TileRun run, const Slice& tiles,
                                 const Status& status, Time now, Effects& out) {
  const auto known = commitments_.find(commitment);
  if (known == commitments_.end()) return;  // of bounds that were given up
  PartStore& store = parts_[commitment];
  store.checking.erase(run.first);
  if (!status) {
    store.bad = status.error().message;
  } else {
    const std::uint64_t width = WidthOf(known->second);
    const std::uint64_t begin = env_.layout->Offset(run.first);
    for (std::uint32_t i = run.first; i < run.first + run.count; ++i) {
      store.tiles[i] = {tiles.blob, tiles.offset + width * (env_.layout->Offset(i) - begin),
                        width * env_.layout->Size(i)};
    }
  }
  Progress(now);
  ReportArrivals(now, out);
  TryReduce(out);
}

bool RoundMachine::CompleteIn(const PartStore& store, TileRun run) const {
  return std::all_of(store.tiles.begin() + run.first, store.tiles.begin() + run.first + run.count,
                     [](const Slice& s) { return s.blob != nullptr; });
}

// The narrowest run with all that has neither come nor waits for its check.
std::optional<TileRun> RoundMachine::Lacking(const Hash& commitment, TileRun run) const {
  const PartStore& store = parts_.at(commitment);
  std::vector<bool> have(run.count);
  for (std::uint32_t k = 0; k < run.count; ++k)
    have[k] = store.tiles[run.first + k].blob != nullptr;
  for (const auto& [job, part] : part_jobs_) {
    if (part.commitment != commitment) continue;
    for (std::uint32_t i = part.run.first; i < part.run.first + part.run.count; ++i)
      if (run.Contains(i)) have[i - run.first] = true;
  }
  const auto first = std::find(have.begin(), have.end(), false);
  if (first == have.end()) return std::nullopt;
  const auto last = std::find(have.rbegin(), have.rend(), false).base();
  return TileRun{run.first + static_cast<std::uint32_t>(first - have.begin()),
                 static_cast<std::uint32_t>(last - first)};
}

void RoundMachine::ReportArrivals(Time now, Effects& out) {
  const OwnedRun* mine = plan_ ? RunOf(env_.self) : nullptr;
  if (mine != nullptr) {
    for (const auto& [commitment, c] : commitments_) {
      const PartStore& store = parts_.at(commitment);
      if (reported_.contains(commitment) || c.tiles.empty()) continue;
      if (store.bad.empty() && !CompleteIn(store, mine->run)) continue;
      reported_.insert(commitment);
      const Arrived arrived{id(),       plan_->term,       plan_->attempt,
                            commitment, store.bad.empty(), store.bad.substr(0, 500)};
      const PeerId to = LeaderOf(parent_.body.members, id().round, plan_->term);
      if (to == env_.self) {
        OnArrived(env_.self, arrived, now, out);
      } else {
        SendTo(to, arrived, out);
      }
    }
  }
  ConsiderFix(now, out);
}

}  // namespace loom::collab
