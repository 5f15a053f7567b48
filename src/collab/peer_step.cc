// The step from a decided round to the next one: the record is kept, the state moves on, what was
// learnt of times and sizes is used, and the next round begins (R5, R6).
#include <algorithm>
#include <utility>

#include "collab/peer.h"

namespace loom::collab {

void Peer::Decided(Time now, Effects& out) {
  const Record& record = *machine_->decided();
  Record copy = record;
  if (const Status ok = chain_.AppendOwn(std::move(copy)); !ok) {
    Fail(ok.error(), out);
    return;
  }
  if (machine_->loss() > 0) {
    loss_ = machine_->loss();
    measured_round_ = record.body.round;
  }
  grad_norm_ = machine_->grad_norm();
  learning_rate_ = machine_->learning_rate();
  LearnExchangeTime(std::max<Duration>(machine_->exchange_time(now), 1ms));
  if (machine_->worked()) failed_works_ = 0;
  if (machine_->failed_work() != nullptr) ++failed_works_;
  record_token_ = ids_.Take();
  out.push_back(Persist{record_token_, AppendRecord{chain_.head().Encode()}});
  Advance(now, out);
}

// Who never has anything to contribute ends with the reason, instead of going through the run's
// rounds. Alone it does so before such a round is decided; in exact mode one that is skipped is
// right (R26).
void Peer::ConsiderFailedWork(Effects& out) {
  constexpr std::uint32_t kMostInARow = 5;
  if (!machine_ || machine_->decided() || machine_->failed_work() == nullptr) return;
  const bool alone = chain_.head().body.members.size() == 1 && !chain_.config().exact;
  if (!alone && failed_works_ + 1 < kMostInARow) return;
  const Error& last = *machine_->failed_work();
  Fail(MakeError(last.code,
                 alone ? fmt::format("the work of round {} failed: {}", machine_->id().round,
                                     last.message)
                       : fmt::format("the work of {} rounds in a row failed, the last time: {}",
                                     kMostInARow, last.message),
                 last.hint.empty() ? "if the loss has diverged: a smaller lr in [optim]; of a run "
                                     "that had a good state, loom continue --from ROUND"
                                   : last.hint),
       out);
}

// One step towards the newest record: apply what is held, fetch what is not, begin what is due.
void Peer::Advance(Time now, Effects& out) {
  if (!started_ || applying_ || restarting_ || rewind_token_ != 0 || restart_when_saved_ ||
      state_ == PeerState::kFailed || state_ == PeerState::kStopped) {
    return;
  }
  if (state_round_ == chain_.rounds()) {
    StopFetching();
    if (record_token_ == 0) BeginRound(now, out);
    return;
  }
  if (record_token_ != 0) return;  // R5: the record is held, on disk, before W is overwritten
  const Record& next = chain_.At(state_round_ + 1);
  if (Reverts(next.body)) {  // the folder leads there
    out.push_back(Tell{{Event::Kind::kOwner, next.body.round, env_.self,
                        fmt::format("the owner took the run back to the state after round {}",
                                    *next.body.order->revert),
                        true}});
    Restart(out);
    return;
  }
  ApplyJob job;
  job.round = next.body.round;
  job.root = next.body.root;
  job.clock = ClockOf(next.body);
  bool durable = false;
  if (!next.body.contributions.empty()) {
    if (machine_ && machine_->id().parent == applied().hash) {
      job.reduced = machine_->ReducedOf(next.body);
      durable = machine_->Durable(next.hash);
    }
    if (job.reduced == nullptr && fetched_round_ != nullptr && fetching_round_ == next.body.round) {
      job.reduced = fetched_round_;
    }
    if (job.reduced == nullptr) job.reduced = HeldBytes(next.body);
    if (job.reduced == nullptr) {
      WantRound(now, out);
      return;
    }
  }
  if (machine_ && machine_->id().parent == applied().hash)
    job.settle = machine_->Settlement(next.body);
  StopFetching();
  if (job.reduced != nullptr && !durable)
    out.push_back(Persist{0, WriteRound{next.body.round, job.reduced, next.body.tiles}});
  applying_ = true;
  apply_job_ = ids_.Take();
  applying_bytes_ = job.reduced;
  out.push_back(CutWork{});
  out.push_back(Compute{apply_job_, std::move(job)});
}

void Peer::Applied(const Status& status, Time now, Effects& out) {
  applying_ = false;
  const bool loaded = std::exchange(loading_state_, false);
  applying_bytes_.reset();
  if (!status) {
    Fail(status.error(), out);
    return;
  }
  ++state_round_;
  if (machine_) voter_.seq = std::max(voter_.seq, machine_->seq());
  machine_.reset();
  const Record& record = applied();
  const Member* self = FindMember(record.body.members, env_.self);
  if (rolled_back_ && self != nullptr && self->since > rolled_back_at_) {  // listed as new since
    rolled_back_ = false;
    voter_.seq = std::max(voter_.seq, seen_own_seq_);
  }
  if (loaded) {
    restore_.oldest = 0;  // what it serves begins with the next round
    round_tiles_.clear();
  } else {
    if (restore_.oldest == 0) restore_.oldest = state_round_;
    IndexRound(state_round_);
  }
  ThinOut();
  const Record& before = chain_.At(state_round_ - 1);
  for (const Member& m : record.body.members) {
    if (!IsMember(before.body.members, m.id))
      out.push_back(Tell{{Event::Kind::kListed, state_round_, m.id, ""}});
  }
  for (const Member& m : before.body.members) {
    if (!IsMember(record.body.members, m.id)) {
      out.push_back(Tell{{Event::Kind::kDelisted, state_round_, m.id, ""}});
      leaving_.erase(m.id);
    }
  }
  LearnWorkTime(record);
  out.push_back(Tell{{Event::Kind::kRound, state_round_, env_.self, ""}});
  // A fetched state has no rounds before it on this disk: it is saved before anything is voted for
  // (R6).
  const bool due = options_.checkpoint_every > 0 && state_round_ % options_.checkpoint_every == 0;
  const bool amended = record.body.order.has_value();
  if ((due || loaded || amended) && checkpoint_job_ == 0) Save(out);
  if (order_ && order_->number <= record.body.orders) order_.reset();
  if (record.body.kind == Kind::kReset || amended) {
    out.push_back(Tell{{Event::Kind::kOwner, state_round_, env_.self,
                        amended ? "the owner's new settings hold from here on"
                                : fmt::format("era {} begins by the owner's word", record.body.era),
                        amended}});
  }
  if (amended) {  // with the settings everything is made anew, once the state is on disk
    restart_when_saved_ = true;
    machine_.reset();
    return;
  }
  if (AtHead()) HelloAll(out);
  if (AtHead() && Sealed()) Report(out);
  Advance(now, out);
}

void Peer::Save(Effects& out) {
  checkpoint_job_ = ids_.Take();
  saving_round_ = state_round_;
  out.push_back(
      Compute{checkpoint_job_, CheckpointJob{state_round_, applied().hash, applied().body.root}});
}

// A round that ran out of time without any work teaches that all machines have become slower.
void Peer::LearnWorkTime(const Record& record) {
  constexpr Duration kLongest = 1h;
  if (const auto slowest = SlowestWork(record)) {
    work_time_ = *slowest;
  } else if (record.body.contributions.empty()) {
    work_time_ = std::max(work_time_, std::min(2 * work_time_, kLongest));
  }
}

// The middle one of the last five: one disturbed round predicts nothing.
void Peer::LearnExchangeTime(Duration measured) {
  constexpr std::size_t kKept = 5;
  exchange_times_.push_back(measured);
  if (exchange_times_.size() > kKept) exchange_times_.pop_front();
  std::vector<Duration> sorted(exchange_times_.begin(), exchange_times_.end());
  std::sort(sorted.begin(), sorted.end());
  exchange_time_ = sorted[(sorted.size() - 1) / 2];
}

// Alone, its vote was the decision. Who lost the records up to it, and comes back to it by doing
// them again, keeps that record. But what it voted for was the work of another life: the folder
// leads there, and restoring from it does the work again, inner state included (R22).
bool Peer::ReturnsToOwnVote(Effects& out) {
  const Record& head = chain_.head();
  const DecisionId next{head.body.era, head.body.round + 1, head.hash};
  if (head.body.members.size() != 1 || !voter_.vote || voter_.id != next) return false;
  auto record = Record::FromBody(voter_.vote->body);
  if (!record) return false;
  record->term = voter_.vote->vote.term;
  record->votes.push_back(voter_.vote->vote);
  rewind_token_ = ids_.Take();
  out.push_back(Persist{rewind_token_, AppendRecord{record->Encode()}});
  return true;
}

void Peer::BeginRound(Time now, Effects& out) {
  if (!AtHead() || state_ == PeerState::kStopped) return;
  const Record& head = chain_.head();
  if (machine_ && machine_->id().parent == head.hash) return;
  machine_.reset();
  UpdateJoiners();
  if (Sealed()) return;
  if (Finished(head.body, chain_.config())) {
    if (!finished_since_) finished_since_ = now;
    return;
  }
  if (!Listed() || rolled_back_) {
    AskToJoin(now, out);
    return;
  }
  // Alone and not to work: there is nothing to record but a newcomer.
  const bool newcomer = std::any_of(asked_.begin(), asked_.end(),
                                    [](const auto& asked) { return asked.second.proved; });
  if ((paused_ || leaving_since_) && head.body.members.size() == 1 && !newcomer) return;
  if (!FenceOpen()) return;
  fence_ = false;
  if (ReturnsToOwnVote(out)) return;
  RoundStart start;
  start.voter = voter_;
  if (voter_.id.round <= head.body.round) restore_.voted_bytes.reset();  // that round is over
  start.voted_bytes = restore_.voted_bytes;
  // In the round in which it ended it may have committed already: the same work done again takes
  // another time, and so is another commitment. Nobody can have seen that of one who is alone, and
  // in exact mode both say the same.
  const bool reopened = restore_.resumed && head.body.round == resumed_at_;
  const bool alone = head.body.members.size() == 1;
  if (reopened && !alone) {
    start.voter.Reopen({head.body.era, head.body.round + 1, head.hash});
  }
  const bool repeats = reopened && !chain_.config().exact;
  const bool unseen = restore_.inner_exact && alone;
  start.may_work = !leaving_since_ && !paused_ && (!repeats || unseen);
  start.predicted_work = work_time_;
  start.predicted_exchange = exchange_time_;
  own_ask_.reset();
  machine_ = std::make_unique<RoundMachine>(env_, head, std::move(start), now);
  UpdateJoiners();
  machine_->SetLeaving(leaving_);
  machine_->SetUnfit(unfit_);
  UpdateOrder();
  machine_->Start(now, out);
  std::deque<std::pair<PeerId, Message>> ahead;
  ahead.swap(ahead_);
  ahead_bytes_ = 0;
  for (auto& [from, message] : ahead) {
    if (presence_.connected.contains(from)) Dispatch(from, message, now, out);
  }
  AfterMachine(now, out);
}

}  // namespace loom::collab
