// What owners want of a run (R14). With a quorum: an order, which the next record takes up. Without
// one: a reset. For it every survivor seals itself, by a promise on disk not to vote below the
// named era, and reports how far it is and what it last voted for to the peer at which the owner
// is. That peer drafts what the owner has to sign: first the body of the highest vote after the
// newest record, because a quorum may have agreed on it; then, when the survivors hold the state
// after it, the reset that names them.
#include <algorithm>

#include "collab/peer.h"
#include "crypto/hash.h"

namespace loom::collab {
namespace {

constexpr Duration kOrderPatience = 60s;
constexpr std::string_view kLaterRound =
    "choose a later round, or keep more checkpoints ([local] keep_checkpoints)";

/// Checkpoints are kept with the rounds since the older one.
struct Kept {
  Round state = 0;
  Round checkpoint = 0;
  Round oldest = 0;  ///< 0: no rounds
  bool Rebuilds(Round round) const {
    if (round == state || round == checkpoint) return true;
    return round < state && (round == 0 ? oldest <= 1 : oldest != 0 && round + 1 >= oldest);
  }
  /// The first state that can be rebuilt.
  Round First() const { return oldest == 0 ? checkpoint : oldest - 1; }
};

}  // namespace

Status Peer::TakeOrder(const Order& order, Time now, Effects& out) {
  if (finished_since_ || state_ == PeerState::kStopped) {
    return MakeError(Code::kConflict, "the run has finished",
                     "an order needs a run that goes on: give it before the last round");
  }
  LOOM_RETURN_IF_ERROR(chain_.CheckOrder(order));
  // One that nobody takes up does not stand in the way for ever.
  if (order_ && *order_ != order && now - order_since_ < kOrderPatience) {
    return MakeError(
        Code::kConflict,
        fmt::format("order {} is on its way and no record has taken it up yet", order_->number),
        "give the new one when it is: loom log shows it, loom status for whom the "
        "run waits");
  }
  if (order.revert && !CanRebuild(*order.revert)) {
    return MakeError(
        Code::kInvalid,
        fmt::format("the state after round {} cannot be rebuilt here any more: this "
                    "folder goes back to round {}",
                    *order.revert, Kept{state_round_, checkpoint_round_, restore_.oldest}.First()),
        std::string(kLaterRound));
  }
  if (order.revert) LOOM_RETURN_IF_ERROR(CheckOthersCanRebuild(*order.revert));
  if (!order_ || *order_ != order) order_since_ = now;
  order_ = order;
  UpdateOrder();
  HelloAll(out);
  AfterMachine(now, out);
  return {};
}

void Peer::UpdateOrder() {
  if (order_ && !chain_.CheckOrder(*order_)) order_.reset();
  if (!machine_) return;
  std::optional<OrderPlan> plan;
  if (order_) {
    plan = OrderPlan{*order_, {}, 0, {}};
    if (order_->revert) {
      const Body& target = chain_.At(*order_->revert).body;
      plan->root = target.root;
      plan->steps = target.steps;
      plan->exponents = target.exponents;
    }
  }
  machine_->SetOrder(std::move(plan));
}

bool Peer::CanRebuild(Round round) const {
  return Kept{state_round_, checkpoint_round_, restore_.oldest}.Rebuilds(round);
}

// Whoever cannot rebuild the state does not vote for it: without the others' words the order would
// wait for ever. By what each member said last.
Status Peer::CheckOthersCanRebuild(Round round) const {
  const std::vector<Member>& members = chain_.head().body.members;
  std::set<PeerId> can{env_.self};
  const Hello* first = nullptr;
  PeerId who;
  for (const Member& m : members) {
    const auto remote = remotes_.find(m.id);
    if (m.id == env_.self || remote == remotes_.end() || !remote->second.greeted) continue;
    const Hello& hello = remote->second.hello;
    const Kept kept{hello.head.round, hello.checkpoint, hello.oldest};
    if (kept.Rebuilds(round)) {
      can.insert(m.id);
    } else if (first == nullptr) {
      first = &hello;
      who = m.id;
    }
  }
  if (first == nullptr || IsQuorum(members, can, chain_.config().quorum)) return {};
  return MakeError(
      Code::kInvalid,
      fmt::format("the state after round {} cannot be rebuilt by {} of {} members, which a quorum "
                  "needs: {} goes back to round {}",
                  round, members.size() - can.size(), members.size(), who.Short(),
                  Kept{first->head.round, first->checkpoint, first->oldest}.First()),
      std::string(kLaterRound));
}

Status Peer::CheckOrder(const Body& body) const {
  LOOM_RETURN_IF_ERROR(chain_.CheckOrder(*body.order));
  LOOM_RETURN_IF_ERROR(chain_.CheckRevert(body));
  if (!body.order->revert || CanRebuild(*body.order->revert)) return {};
  return MakeError(Code::kInvalid, fmt::format("the state after round {} cannot be rebuilt here",
                                               *body.order->revert));
}

Status Peer::BeginReset(const Seal& seal, Time now, Effects& out) {
  LOOM_RETURN_IF_ERROR(chain_.CheckSeal(seal));
  if (seal.end || seal.era <= chain_.head().body.era || seal.era < voter_.sealed) {
    return MakeError(Code::kConflict,
                     fmt::format("a seal for era {}; this peer is in era {} and sealed for {}",
                                 seal.era, chain_.head().body.era, voter_.sealed));
  }
  if (!Listed()) {
    return MakeError(Code::kRefused, "this peer is no member of the run",
                     "run loom continue beside a peer that is");
  }
  collect_ = Collect{};
  collect_->seal = seal;
  OnSeal(env_.self, seal, now, out);
  ResetTick(now, out);
  AfterMachine(now, out);
  return {};
}

Status Peer::EndReset(const Seal& seal, Time now, Effects& out) {
  LOOM_RETURN_IF_ERROR(chain_.CheckSeal(seal));
  if (!seal.end) return MakeError(Code::kInvalid, "the seal does not end one");
  collect_.reset();
  for (const PeerId& peer : presence_.connected) out.push_back(Send{peer, SealMessage{seal}});
  OnSeal(env_.self, seal, now, out);
  AfterMachine(now, out);
  return {};
}

void Peer::OnSeal(const PeerId& from, const Seal& seal, Time now, Effects& out) {
  if (!chain_.CheckSeal(seal) || seal.era <= chain_.head().body.era) return;
  if (seal.end) {
    if (voter_.sealed != seal.era) return;
    voter_.sealed = 0;
    collector_.reset();
    sealed_machine_.reset();
    out.push_back(Persist{0, AppendVote{VoterState::SealEntry(0)}});
    Advance(now, out);
    return;
  }
  if (seal.era < voter_.sealed) return;
  collector_ = from;
  if (voter_.sealed == seal.era) {
    Report(out);
    return;
  }
  if (machine_) {
    voter_ = machine_->voter();
    sealed_machine_ = std::move(machine_);
    out.push_back(CutWork{});
  }
  voter_.sealed = seal.era;
  seal_token_ = ids_.Take();
  out.push_back(Persist{seal_token_, AppendVote{VoterState::SealEntry(seal.era)}});
}

// Only once the seal is on disk.
void Peer::Report(Effects& out) {
  if (!collector_ || seal_token_ != 0 || !Sealed()) return;
  SealReport report;
  report.era = voter_.sealed;
  report.head = HeadOf(chain_.head());
  const Record& head = chain_.head();
  const DecisionId next{head.body.era, head.body.round + 1, head.hash};
  if (voter_.vote && voter_.id == next) {
    report.body = *voter_.vote->body;
    report.term = voter_.vote->vote.term;
  }
  report_ = std::move(report);
  if (!AtHead()) {
    ReportProved({}, {}, out);
    return;
  }
  report_job_ = ids_.Take();
  out.push_back(Compute{report_job_, PossessionJob{env_.self, head.hash}});
}

void Peer::ReportProved(const Hash& possession, Time, Effects& out) {
  if (!report_ || !collector_ || report_->head != HeadOf(chain_.head())) return;
  report_->possession = possession;
  if (*collector_ == env_.self) {
    if (collect_) collect_->reports[env_.self] = *report_;
    if (collect_ && !possession.IsZero()) collect_->proved.insert(env_.self);
  } else {
    out.push_back(Send{*collector_, *report_});
  }
}

void Peer::OnSealReport(const PeerId& from, const SealReport& report, Effects& out) {
  if (!collect_ || report.era != collect_->seal.era ||
      !IsMember(chain_.head().body.members, from)) {
    return;
  }
  collect_->reports[from] = report;
  collect_->proved.erase(from);
  if (report.head == HeadOf(chain_.head()) && AtHead() && !report.possession.IsZero()) {
    const std::uint64_t job = ids_.Take();
    collect_->jobs.emplace(job, std::pair(from, report.possession));
    out.push_back(Compute{job, PossessionJob{from, report.head.hash}});
  }
}

void Peer::ResetTick(Time now, Effects& out) {
  if (!collect_) return;
  if (chain_.head().body.era >= collect_->seal.era) {
    collect_.reset();
    return;
  }
  if (now - collect_->asked < 1s) return;
  collect_->asked = now;
  for (const Member& m : chain_.head().body.members) {
    if (m.id == env_.self || !presence_.connected.contains(m.id)) continue;
    if (!collect_->proved.contains(m.id)) out.push_back(Send{m.id, SealMessage{collect_->seal}});
  }
  if (!collect_->proved.contains(env_.self)) Report(out);
}

std::optional<ResetView> Peer::ViewReset() const {
  if (!collect_) return std::nullopt;
  ResetView view;
  view.era = collect_->seal.era;
  const auto add = [&](const PeerId& peer) {
    const auto report = collect_->reports.find(peer);
    if (report == collect_->reports.end()) return false;
    view.survivors.push_back(
        {peer, report->second.head, collect_->proved.contains(peer), !report->second.body.empty()});
    return true;
  };
  add(env_.self);
  for (const Member& m : chain_.head().body.members) {
    if (m.id != env_.self && !add(m.id)) view.abandoned.push_back(m.id);
  }
  return view;
}

Result<ResetDraft> Peer::DraftReset(bool leave_behind) const {
  if (!collect_ || seal_token_ != 0) {
    return MakeError(Code::kConflict, "the survivors are not sealed yet");
  }
  const Head head = HeadOf(chain_.head());
  std::optional<Record> voted;  // by a survivor, in the highest term; words that follow nothing do
                                // not count: no honest member votes for them
  for (const auto& [peer, report] : collect_->reports) {
    if (report.head.round > head.round) {
      return MakeError(Code::kConflict, fmt::format("{} holds record {}, which is being fetched",
                                                    peer.Short(), report.head.round));
    }
    if (report.head != head || report.body.empty() || (voted && report.term <= voted->term))
      continue;
    auto record = Record::FromBody(MakeBlob(report.body));
    if (!record || !chain_.Follows(*record)) continue;
    voted = std::move(*record);
    voted->term = report.term;
  }
  ResetDraft draft;
  if (voted) {
    draft.record = std::move(*voted);
    return draft;
  }
  Choices choices;
  for (const Member& m : chain_.head().body.members) {
    if (collect_->proved.contains(m.id)) {
      choices.stay.push_back(m.id);
    } else if (collect_->reports.contains(m.id) && !leave_behind) {
      return MakeError(Code::kConflict, fmt::format("{} does not hold the state after round {} yet",
                                                    m.id.Short(), head.round));
    }
  }
  if (choices.stay.empty()) {
    return MakeError(Code::kConflict, "no survivor has shown that it holds the newest state");
  }
  choices.reset = collect_->seal.era;
  choices.root = chain_.head().body.root;
  const Body body =
      NextBody(chain_.head().body, chain_.head().hash, env_.run, chain_.config(), choices);
  LOOM_ASSIGN(draft.record, Record::FromBody(MakeBlob(body.Encode())));
  draft.is_reset = true;
  return draft;
}

Status Peer::TakeSigned(Record record, Time now, Effects& out) {
  if (record_token_ != 0 || rewind_token_ != 0 || restarting_)
    return MakeError(Code::kConflict, "a record is being written");
  LOOM_RETURN_IF_ERROR(chain_.CertifiedByOwner(record));
  const Bytes encoded = record.Encode();
  LOOM_RETURN_IF_ERROR(chain_.Append(std::move(record)));
  if (collect_) collect_->proved.clear();
  record_token_ = ids_.Take();
  out.push_back(Persist{record_token_, AppendRecord{encoded}});
  for (const PeerId& peer : presence_.connected) out.push_back(Send{peer, RecordMessage{encoded}});
  Advance(now, out);
  AfterMachine(now, out);
  return {};
}

// Bytes that were kept for a vote: a restart's, or of the round that the seal ended.
Blob Peer::HeldBytes(const Body& body) const {
  if (sealed_machine_ != nullptr) {
    if (Blob held = sealed_machine_->ReducedOf(body)) return held;
  }
  const Blob& kept = restore_.voted_bytes;
  if (kept == nullptr || kept->size() != layout_.total()) return nullptr;
  for (std::size_t i = 0; i < body.tiles.size(); ++i) {
    if (crypto::Sha256(layout_.View(*kept, i)) != body.tiles[i]) return nullptr;
  }
  return kept;
}

}  // namespace loom::collab
