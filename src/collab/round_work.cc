// Work, commitments and parts: what a contributor sends, and what an owner takes in (R17-R19).
#include <algorithm>

#include "collab/round.h"
#include "crypto/hash.h"

namespace loom::collab {
namespace {

constexpr std::string_view kCommitmentDomain = "loom commitment";

}  // namespace

void RoundMachine::StartWork(Effects& out) {
  if (working_ || decided_) return;
  while (!to_do_.empty()) {
    const WorkOrder order = to_do_.front();
    to_do_.erase(to_do_.begin());
    if (!start_.may_work) {
      Resign(order.worker, "its host restarted in this round, or pauses", out);
      continue;
    }
    working_ = order.worker;
    const std::uint64_t job = env_.ids->Take();
    work_jobs_.emplace(job, order.worker);
    out.push_back(Compute{job, WorkJob{order}});
    out.push_back(Tell{{Event::Kind::kPhase, id().round, env_.self, "work"}});
    return;
  }
}

void RoundMachine::OnWorkDone(WorkerIndex worker, WorkResult result, Time now, Effects& out) {
  working_.reset();
  exchange_since_ = now;
  if (decided_ || fix_) {  // too late for this set: the work is left out, its samples come back
    StartWork(out);
    return;
  }
  if (!result.work) {
    out.push_back(Tell{{Event::Kind::kProblem, id().round, env_.self,
                        fmt::format("own work left out: {}", result.work.error().ToString())}});
    Resign(worker, result.work.error().message, out);
    StartWork(out);
    return;
  }
  EncodedWork& work = *result.work;
  work_time_ = std::max<Duration>(work_time_, std::chrono::milliseconds(result.millis));
  grad_norm_ = work.done.grad_norm;
  learning_rate_ = work.done.learning_rate;
  Own own;
  own.commitment.id = id();
  own.commitment.worker = worker;
  own.commitment.peer = env_.self;
  own.commitment.samples = work.done.samples;
  own.commitment.tokens = work.done.tokens;
  own.commitment.millis = std::max<std::uint32_t>(1, result.millis);
  own.commitment.loss_sum = work.done.loss_sum;
  own.commitment.grad_norm = work.done.grad_norm;
  own.commitment.tiles = std::move(work.hashes);
  own.commitment.signature = env_.signer->Sign(kCommitmentDomain, own.commitment.Text());
  own.id = own.commitment.Id();
  own.encoded = std::move(work.encoded);
  if (own.commitment.samples == 0) {
    Resign(worker, "it was cut before its first step", out);
    StartWork(out);
    return;
  }
  PartStore& store = parts_[own.id];
  store.tiles.resize(env_.layout->num_tiles());
  for (std::size_t i = 0; i < store.tiles.size(); ++i) {
    store.tiles[i] = {own.encoded, env_.layout->Offset(i), env_.layout->Size(i)};
  }
  Broadcast(own.commitment, out);
  const Own& kept = own_.emplace(worker, std::move(own)).first->second;
  OnCommitment(kept.commitment, now, out);
  Scatter(kept, out);
  StartWork(out);
}

// A commitment without samples: "do not wait for this worker". It never replaces a real one.
void RoundMachine::Resign(WorkerIndex worker, const std::string& why, Effects& out) {
  Own own;
  own.commitment.id = id();
  own.commitment.worker = worker;
  own.commitment.peer = env_.self;
  own.commitment.signature = env_.signer->Sign(kCommitmentDomain, own.commitment.Text());
  own.id = own.commitment.Id();
  Broadcast(own.commitment, out);
  out.push_back(Tell{{Event::Kind::kExcluded, id().round, env_.self, why}});
  const Commitment copy = own.commitment;
  own_.emplace(worker, std::move(own));
  OnCommitment(copy, last_progress_, out);
}

void RoundMachine::OnCommitment(const Commitment& c, Time now, Effects& out) {
  const auto entry = std::find_if(parent_.body.workers.begin(), parent_.body.workers.end(),
                                  [&](const WorkerEntry& w) { return w.worker == c.worker; });
  if (entry == parent_.body.workers.end() || entry->host != c.peer || entry->issued.empty()) return;
  const Member* member = FindMember(parent_.body.members, c.peer);
  if (member == nullptr ||
      !env_.signer->Verify(member->key, kCommitmentDomain, c.Text(), c.signature)) {
    return;
  }
  if (c.samples == 0) {
    resigned_.insert(c.worker);
    ConsiderFix(now, out);
    return;
  }
  if (c.tiles.size() != env_.layout->num_tiles() || !Prefix(entry->issued, c.samples) ||
      c.tokens == 0 || c.tokens > c.samples * env_.config->context || c.millis == 0) {
    return;
  }
  const Hash commitment_id = c.Id();
  const auto held = commitments_.find(c.worker);
  if (held != commitments_.end()) {
    if (held->second.Id() != commitment_id && conflicted_.insert(c.worker).second) {
      out.push_back(Tell{{Event::Kind::kExcluded, id().round, c.peer,
                          fmt::format("worker {} committed to two different results", c.worker)}});
    }
    return;
  }
  commitments_.emplace(c.worker, c);
  commitment_ids_.emplace(commitment_id, c.worker);
  parts_[commitment_id].tiles.resize(env_.layout->num_tiles());
  Progress(now);
  std::vector<std::pair<PeerId, Part>> early;
  early.swap(early_parts_);
  early_bytes_ = 0;
  for (auto& [from, part] : early) OnPart(from, part, out);
  ReportArrivals(now, out);
}

void RoundMachine::Scatter(const Own& own, Effects& out) {
  if (!plan_ || own.encoded == nullptr) return;
  for (const OwnedRun& o : plan_->owners) {
    if (o.owner != env_.self) SendParts(o.owner, own, o.run, out);
  }
}

void RoundMachine::SendParts(const PeerId& to, const Own& own, TileRun run, Effects& out) const {
  if (own.encoded == nullptr) return;
  for (const TileRun& piece : Pieces(run)) {
    const std::uint64_t begin = env_.layout->Offset(piece.first);
    const std::uint64_t end = env_.layout->Offset(piece.first + piece.count);
    Part part{id(), own.id, piece, {}};
    part.tiles = ToBytes(ByteView(*own.encoded).subspan(begin, end - begin));
    SendTo(to, std::move(part), out);
  }
}

std::vector<TileRun> RoundMachine::Pieces(TileRun run) const {
  std::vector<TileRun> pieces;
  const std::uint32_t end = run.first + run.count;
  for (std::uint32_t first = run.first; first < end;) {
    std::uint32_t next = first + 1;
    while (next < end &&
           env_.layout->Offset(next + 1) - env_.layout->Offset(first) <= env_.bulk_bytes) {
      ++next;
    }
    pieces.push_back({first, next - first});
    first = next;
  }
  return pieces;
}

void RoundMachine::OnPart(const PeerId& from, const Part& part, Effects& out) {
  const std::uint64_t tiles = env_.layout->num_tiles();
  if (part.run.count == 0 || part.run.first >= tiles || part.run.count > tiles - part.run.first ||
      part.tiles.size() != env_.layout->Offset(part.run.first + part.run.count) -
                               env_.layout->Offset(part.run.first)) {
    return;
  }
  const auto worker = WorkerOf(part.commitment);
  if (!worker) {
    if (early_bytes_ + part.tiles.size() <= 2 * env_.layout->total() + kMaxPartBytes) {
      early_bytes_ += part.tiles.size();
      early_parts_.emplace_back(from, part);
    }
    return;
  }
  const Commitment& c = commitments_.at(*worker);
  PartStore& store = parts_[part.commitment];
  const std::uint32_t first = part.run.first;
  const bool news =
      std::any_of(store.tiles.begin() + first, store.tiles.begin() + first + part.run.count,
                  [](const Slice& s) { return s.blob == nullptr; });
  if (!news || !store.bad.empty() || !store.checking.insert(first).second) return;
  const Blob blob = MakeBlob(part.tiles);
  const std::uint64_t job = env_.ids->Take();
  part_jobs_.emplace(job, PartJob{part.commitment, part.run, blob});
  out.push_back(Compute{
      job, CheckPartJob{part.commitment,
                        part.run,
                        blob,
                        {c.tiles.begin() + first, c.tiles.begin() + first + part.run.count}}});
}

void RoundMachine::OnPartChecked(const Hash& commitment, TileRun run, const Blob& tiles,
                                 const Status& status, Time now, Effects& out) {
  PartStore& store = parts_[commitment];
  store.checking.erase(run.first);
  if (!status) {
    store.bad = status.error().message;
  } else {
    const std::uint64_t begin = env_.layout->Offset(run.first);
    for (std::uint32_t i = run.first; i < run.first + run.count; ++i) {
      store.tiles[i] = {tiles, env_.layout->Offset(i) - begin, env_.layout->Size(i)};
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

void RoundMachine::ReportArrivals(Time now, Effects& out) {
  const OwnedRun* mine = plan_ ? RunOf(env_.self) : nullptr;
  if (mine != nullptr) {
    for (const auto& [commitment, worker] : commitment_ids_) {
      const PartStore& store = parts_.at(commitment);
      if (reported_.contains(commitment)) continue;
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

std::optional<WorkerIndex> RoundMachine::WorkerOf(const Hash& commitment) const {
  const auto it = commitment_ids_.find(commitment);
  if (it == commitment_ids_.end()) return std::nullopt;
  return it->second;
}

}  // namespace loom::collab
