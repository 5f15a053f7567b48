// The frame of a peer: presence, dispatch, and the step from a decided round to the next one.
#include "collab/peer.h"

#include <algorithm>
#include <utility>

namespace loom::collab {
namespace {

constexpr std::size_t kMaxAhead = 4096;

/// The decision a round message belongs to; nullptr for other messages.
const DecisionId* DecisionOf(const Message& message) {
  return std::visit(
      [](const auto& m) -> const DecisionId* {
        if constexpr (requires { m.id.parent; }) {
          return &m.id;
        } else {
          return nullptr;
        }
      },
      message);
}

std::size_t SizeOf(const Message& message) {
  if (const auto* part = std::get_if<Part>(&message)) return part->tiles.size();
  if (const auto* reduced = std::get_if<Reduced>(&message)) return reduced->tiles.size();
  return 256;
}

}  // namespace

std::string_view PeerStateName(PeerState state) {
  static constexpr std::string_view kNames[] = {"starting", "joining", "syncing",
                                                "working",  "waiting", "paused",
                                                "leaving",  "stopped", "failed"};
  return kNames[static_cast<std::size_t>(state)];
}

Peer::Peer(PeerOptions options, const TileLayout& layout, const Signer& signer, Record genesis,
           PeerRestore restore, AdmitJoiner admit)
    : options_(std::move(options)),
      layout_(layout),
      signer_(signer),
      chain_(std::move(genesis), options_.config, layout.num_tiles(), signer),
      restore_(std::move(restore)),
      admit_(std::move(admit)) {
  env_.config = &options_.config;
  env_.layout = &layout_;
  env_.signer = &signer_;
  env_.presence = &presence_;
  env_.ids = &ids_;
  env_.run = chain_.run();
  env_.self = crypto::PeerIdOf(options_.key);
  env_.timing = options_.timing;
  work_time_ = options_.timing.first_work;
  exchange_time_ = options_.timing.first_exchange;
  voter_ = restore_.voter;
  state_round_ = restore_.state;
}

void Peer::Start(Time now, Effects& out) {
  for (Record& record : restore_.records) {
    if (const Status ok = chain_.AppendOwn(std::move(record)); !ok) {
      Fail(ok.error().ToString(), out);
      return;
    }
  }
  restore_.records.clear();
  if (state_round_ > chain_.rounds()) {
    Fail(fmt::format("the state is of round {}, the newest record of round {}", state_round_,
                     chain_.rounds()),
         out);
    return;
  }
  seen_seq_ = chain_.seen_seq();
  for (Round r = restore_.oldest; r != 0 && r <= state_round_; ++r) IndexRound(r);
  for (std::uint32_t i = 0; i < restore_.leaves.size(); ++i)
    leaf_index_.emplace(restore_.leaves[i], i);
  checkpoint_round_ = restore_.checkpoint;
  resumed_at_ = chain_.rounds();
  for (Round r = chain_.rounds(); r > 0 && work_time_ == options_.timing.first_work; --r) {
    LearnWorkTime(chain_.At(r));
  }
  started_ = true;
  Advance(now, out);
}

bool Peer::Listed() const { return IsMember(chain_.head().body.members, env_.self); }

// After a restart a member first hears from everyone it reaches, a quorum at least, so that words
// of its own key which its disk forgot are found out before it says new ones.
bool Peer::FenceOpen() const {
  if (!fence_) return true;
  std::set<PeerId> heard{env_.self};
  for (const auto& [peer, remote] : remotes_) {
    if (!remote.greeted && presence_.Present(peer) && IsMember(chain_.head().body.members, peer))
      return false;
    if (remote.greeted) heard.insert(peer);
  }
  return IsQuorum(chain_.head().body.members, heard, options_.config.quorum);
}

Hello Peer::MyHello() const {
  Hello hello;
  hello.head = HeadOf(applied());
  hello.seq = machine_ ? machine_->seq() : voter_.seq;
  hello.oldest = restore_.oldest;
  hello.checkpoint = checkpoint_round_;
  hello.leaving = leaving_since_.has_value() || paused_;
  for (const PeerId& peer : direct_) {
    if (!mute_.contains(peer)) hello.links.push_back(peer);
  }
  return hello;
}

void Peer::SayHello(const PeerId& to, Effects& out) {
  Hello hello = MyHello();
  if (const auto seen = seen_seq_.find(to); seen != seen_seq_.end()) hello.seen_seq = seen->second;
  out.push_back(Send{to, hello});
}

void Peer::HelloAll(Effects& out) {
  for (const PeerId& peer : presence_.connected) SayHello(peer, out);
}

void Peer::OnPeerUp(const PeerId& peer, Time now, Effects& out) {
  direct_.insert(peer);
  mute_.erase(peer);
  via_.erase(peer);
  Attach(peer, now, out);
  HelloAll(out);
  AfterMachine(now, out);
}

void Peer::OnPeerDown(const PeerId& peer, bool refused, Time now, Effects& out) {
  direct_.erase(peer);
  mute_.erase(peer);
  const auto carrier = refused ? std::nullopt : FindCarrier(peer);
  if (carrier && presence_.connected.contains(peer)) {
    via_[peer] = *carrier;
    presence_.silent.erase(peer);
    if (machine_) machine_->OnPresence(now, out);
  } else {
    via_.erase(peer);
    Detach(peer, refused, now, out);
  }
  HelloAll(out);
  ConsiderRelays(now, out);
  AfterMachine(now, out);
}

// A peer can be talked to, by a link of its own or through a carrier.
void Peer::Attach(const PeerId& peer, Time now, Effects& out) {
  presence_.connected.insert(peer);
  presence_.silent.erase(peer);
  presence_.gone.erase(peer);
  remotes_[peer] = {};
  SayHello(peer, out);
  if (machine_) machine_->OnPresence(now, out);
}

void Peer::Detach(const PeerId& peer, bool refused, Time now, Effects& out) {
  presence_.connected.erase(peer);
  presence_.silent.erase(peer);
  if (refused) presence_.gone.insert(peer);
  remotes_.erase(peer);
  unfit_.erase(peer);
  asked_.erase(peer);
  UpdateJoiners();
  if (fetcher_) CarryFetch(fetcher_->RemoveDonor(peer, now), now, out);
  if (machine_) machine_->OnPresence(now, out);
}

void Peer::Silence(const PeerId& peer, Time now, Effects& out) {
  presence_.silent.insert(peer);
  if (fetcher_) CarryFetch(fetcher_->RemoveDonor(peer, now), now, out);
  if (machine_) machine_->OnPresence(now, out);
}

void Peer::OnPeerSilent(const PeerId& peer, bool silent, Time now, Effects& out) {
  if (!direct_.contains(peer)) return;
  if (silent) {
    mute_.insert(peer);
    if (const auto carrier = FindCarrier(peer)) {
      via_[peer] = *carrier;
    } else {
      Silence(peer, now, out);
    }
  } else {
    mute_.erase(peer);
    via_.erase(peer);
    presence_.silent.erase(peer);
    SayHello(peer, out);
    if (fetcher_ && remotes_[peer].hello.head.round > state_round_) {
      CarryFetch(fetcher_->AddDonor(peer, std::nullopt, now), now, out);
    }
    if (machine_) machine_->OnPresence(now, out);
  }
  HelloAll(out);
  AfterMachine(now, out);
}

void Peer::OnMessage(const PeerId& from, Message message, Time now, Effects& out) {
  if (state_ == PeerState::kFailed || !presence_.connected.contains(from)) return;
  Dispatch(from, message, now, out);
  AfterMachine(now, out);
}

void Peer::Dispatch(const PeerId& from, Message& message, Time now, Effects& out) {
  if (const DecisionId* id = DecisionOf(message)) {
    const DecisionId copy = *id;
    OnRoundMessage(from, copy, message, now, out);
    return;
  }
  std::visit(
      [&](auto& m) {
        using T = std::decay_t<decltype(m)>;
        if constexpr (std::is_same_v<T, Relay>) {
          OnRelay(from, m, now, out);
        } else if constexpr (std::is_same_v<T, Hello>) {
          OnHello(from, m, now, out);
        } else if constexpr (std::is_same_v<T, GetRecords>) {
          constexpr Round kBatch = 64;
          for (Round r = m.from; r <= chain_.rounds() && r < m.from + kBatch; ++r) {
            if (r > 0) out.push_back(Send{from, RecordMessage{chain_.At(r).Encode()}});
          }
        } else if constexpr (std::is_same_v<T, RecordMessage>) {
          OnRecord(from, m, now, out);
        } else if constexpr (std::is_same_v<T, JoinAsk>) {
          OnJoinAsk(from, m, now, out);
        } else if constexpr (std::is_same_v<T, JoinRefused>) {
          OnJoinRefused(from, m, out);
        } else if constexpr (std::is_same_v<T, LeaveAsk>) {
          leaving_.insert(from);
          if (machine_) machine_->SetLeaving(leaving_);
        } else if constexpr (std::is_same_v<T, GetLeaves>) {
          if (m.round <= checkpoint_round_ &&
              !restore_.leaves.empty()) {  // the newest serves as well
            out.push_back(Send{from, Leaves{checkpoint_round_, restore_.leaves}});
          }
        } else if constexpr (std::is_same_v<T, Leaves>) {
          OnLeaves(from, m, now, out);
        } else if constexpr (std::is_same_v<T, swarm::GetObjects>) {
          OnGet(from, m, out);
        } else if constexpr (std::is_same_v<T, swarm::ObjectData>) {
          if (machine_) machine_->OnMessage(from, message, now, out);
          if (fetcher_) CarryFetch(fetcher_->OnData(from, m, now), now, out);
        } else if constexpr (std::is_same_v<T, swarm::NotHere>) {
          if (fetcher_) CarryFetch(fetcher_->OnNotHere(from, m, now), now, out);
        }
      },
      message);
}

// R7: only the current decision is acted on. What is older is answered with the record it lacks;
// what is of the next round waits until this peer is there.
void Peer::OnRoundMessage(const PeerId& from, const DecisionId& id, Message& message, Time now,
                          Effects& out) {
  if (const auto* vote = std::get_if<VoteMessage>(&message);
      vote != nullptr && vote->vote.peer == from) {
    seen_seq_[from] = std::max(seen_seq_[from], vote->vote.seq);
  }
  if (const auto* p = std::get_if<PromiseMessage>(&message);
      p != nullptr && p->promise.peer == from) {
    seen_seq_[from] = std::max(seen_seq_[from], p->promise.seq);
  }
  if (machine_ && machine_->id() == id) {
    machine_->OnMessage(from, message, now, out);
    return;
  }
  Remote& remote = remotes_[from];
  if (id.round <= chain_.rounds()) {
    if (id.round == 0 || now - remote.answered < 200ms) return;
    remote.answered = now;
    if (chain_.At(id.round - 1).hash == id.parent) {
      out.push_back(Send{from, RecordMessage{chain_.At(id.round).Encode()}});
    }
    SayHello(from, out);
    return;
  }
  if (id.round > chain_.rounds() + 1) {
    if (now - asked_records_ > 500ms) {
      asked_records_ = now;
      out.push_back(Send{from, GetRecords{chain_.rounds() + 1}});
    }
  }
  if (id.round > chain_.rounds() + 2) return;
  const std::size_t size = SizeOf(message);
  if (ahead_.size() >= kMaxAhead || ahead_bytes_ + size > 4 * layout_.total() + (8U << 20)) return;
  ahead_bytes_ += size;
  ahead_.emplace_back(from, std::move(message));
}

void Peer::AfterMachine(Time now, Effects& out) {
  if (machine_ && machine_->decided() && record_token_ == 0 &&
      chain_.rounds() < machine_->id().round) {
    Decided(now, out);
  }
  Refresh(now, out);
  Route(out);
}

void Peer::Decided(Time now, Effects& out) {
  const Record& record = *machine_->decided();
  Record copy = record;
  if (const Status ok = chain_.AppendOwn(std::move(copy)); !ok) {
    Fail(ok.error().ToString(), out);
    return;
  }
  loss_ = machine_->loss() > 0 ? machine_->loss() : loss_;
  grad_norm_ = machine_->grad_norm();
  learning_rate_ = machine_->learning_rate();
  if (machine_->term() == 0)
    LearnExchangeTime(std::max<Duration>(machine_->exchange_time(now), 1ms));
  record_token_ = ids_.Take();
  out.push_back(Persist{record_token_, AppendRecord{chain_.head().Encode()}});
  Advance(now, out);
}

// One step towards the newest record: apply what is held, fetch what is not, begin what is due.
void Peer::Advance(Time now, Effects& out) {
  if (!started_ || applying_ || state_ == PeerState::kFailed || state_ == PeerState::kStopped)
    return;
  if (state_round_ == chain_.rounds()) {
    StopFetching();
    if (record_token_ == 0) BeginRound(now, out);
    return;
  }
  if (record_token_ != 0) return;  // R5: the record is held, on disk, before W is overwritten
  const Record& next = chain_.At(state_round_ + 1);
  ApplyJob job;
  job.round = next.body.round;
  job.root = next.body.root;
  bool durable = false;
  if (!next.body.contributions.empty()) {
    if (machine_ && machine_->id().parent == applied().hash) {
      job.reduced = machine_->ReducedOf(next.body);
      durable = machine_->Durable(next.hash);
    }
    if (job.reduced == nullptr && fetched_round_ != nullptr && fetching_round_ == next.body.round) {
      job.reduced = fetched_round_;
    }
    if (job.reduced == nullptr) {
      WantRound(now, out);
      return;
    }
  }
  if (machine_ && machine_->id().parent == applied().hash)
    job.settle = machine_->Settlement(next.body);
  StopFetching();
  if (job.reduced != nullptr && !durable)
    out.push_back(Persist{0, WriteRound{next.body.round, job.reduced}});
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
    Fail(status.error().ToString(), out);
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
  if ((due || loaded) && checkpoint_job_ == 0) {
    checkpoint_job_ = ids_.Take();
    saving_round_ = state_round_;
    out.push_back(
        Compute{checkpoint_job_, CheckpointJob{state_round_, record.hash, record.body.root}});
  }
  if (AtHead()) HelloAll(out);
  Advance(now, out);
}

void Peer::LearnWorkTime(const Record& record) {
  std::uint32_t slowest = 0;
  for (const Contribution& c : record.body.contributions) slowest = std::max(slowest, c.millis);
  if (slowest > 0) work_time_ = std::chrono::milliseconds(slowest);
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

void Peer::BeginRound(Time now, Effects& out) {
  if (!AtHead() || state_ == PeerState::kStopped) return;
  const Record& head = chain_.head();
  if (machine_ && machine_->id().parent == head.hash) return;
  machine_.reset();
  UpdateJoiners();
  if (options_.config.rounds > 0 && head.body.round >= options_.config.rounds) {
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
  RoundStart start;
  start.voter = voter_;
  start.voted_bytes = restore_.voted_bytes;
  // In the round in which it ended it may have committed to work that it cannot repeat bit by bit.
  const bool repeats = restore_.resumed && head.body.round == resumed_at_;
  start.may_work = !leaving_since_ && !paused_ && (!repeats || restore_.inner_exact);
  start.predicted_work = work_time_;
  start.predicted_exchange = exchange_time_;
  own_ask_.reset();
  machine_ = std::make_unique<RoundMachine>(env_, head, std::move(start), now);
  UpdateJoiners();
  machine_->SetLeaving(leaving_);
  machine_->SetUnfit(unfit_);
  machine_->Start(now, out);
  std::deque<std::pair<PeerId, Message>> ahead;
  ahead.swap(ahead_);
  ahead_bytes_ = 0;
  for (auto& [from, message] : ahead) {
    if (presence_.connected.contains(from)) Dispatch(from, message, now, out);
  }
  AfterMachine(now, out);
}

void Peer::OnComputed(std::uint64_t job, JobResult result, Time now, Effects& out) {
  if (state_ == PeerState::kFailed) return;
  if (job == apply_job_ && applying_) {
    Applied(std::get<Status>(result), now, out);
  } else if (job == checkpoint_job_ && checkpoint_job_ != 0) {
    checkpoint_job_ = 0;
    auto& leaves = std::get<Result<std::vector<Hash>>>(result);
    if (!leaves) {
      Problem(env_.self, "the checkpoint was not written: " + leaves.error().ToString(), out);
    } else {
      restore_.leaves = std::move(*leaves);
      // The disk keeps two checkpoints and the rounds since the older one.
      if (checkpoint_round_ > 0 && restore_.oldest != 0) {
        restore_.oldest = std::max(restore_.oldest, checkpoint_round_ + 1);
      }
      checkpoint_round_ = saving_round_;
      leaf_index_.clear();
      for (std::uint32_t i = 0; i < restore_.leaves.size(); ++i)
        leaf_index_.emplace(restore_.leaves[i], i);
      HelloAll(out);
    }
  } else if (job == own_possession_job_ && own_possession_job_ != 0) {
    own_possession_job_ = 0;
    if (own_ask_) {
      own_ask_->possession = std::get<Hash>(result);
      asked_to_join_ = Time{};
      AskToJoin(now, out);
    }
  } else if (const auto proof = possession_jobs_.find(job); proof != possession_jobs_.end()) {
    const auto asked = asked_.find(proof->second);
    possession_jobs_.erase(proof);
    if (asked != asked_.end()) {
      asked->second.proved = asked->second.ask.possession == std::get<Hash>(result);
      UpdateJoiners();
    }
  } else if (machine_) {
    machine_->OnComputed(job, std::move(result), now, out);
  }
  AfterMachine(now, out);
}

void Peer::OnPersisted(std::uint64_t token, Time now, Effects& out) {
  if (state_ == PeerState::kFailed) return;
  if (token == record_token_ && token != 0) {
    record_token_ = 0;
    Advance(now, out);
  } else if (machine_) {
    machine_->OnPersisted(token, now, out);
  }
  AfterMachine(now, out);
}

void Peer::OnPersistFailed(const Error& error, Time, Effects& out) {
  Fail(fmt::format("cannot write to the folder: {}", error.ToString()), out);
}

void Peer::OnTick(Time now, Effects& out) {
  if (!started_ || state_ == PeerState::kFailed || state_ == PeerState::kStopped) return;
  if (machine_) machine_->OnTick(now, out);
  if (fetcher_) CarryFetch(fetcher_->Tick(now), now, out);
  AskRecords(now, out);
  ConsiderRelays(now, out);
  FindPartial();
  if (machine_ == nullptr || !AtHead()) Advance(now, out);
  LeaveTick(now, out);
  AfterMachine(now, out);
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

void Peer::Fail(const std::string& reason, Effects& out) {
  machine_.reset();
  state_ = PeerState::kFailed;
  reason_ = reason;
  out.push_back(Tell{{Event::Kind::kStopped, state_round_, env_.self, reason}});
}

void Peer::Refresh(Time, Effects& out) {
  if (!started_ || state_ == PeerState::kFailed || state_ == PeerState::kStopped) return;
  if (state_round_ < chain_.rounds()) {
    Enter(PeerState::kSyncing,
          fmt::format("applying round {} of {}", state_round_ + 1, chain_.rounds()), out);
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
  } else if (!Listed()) {
    Enter(PeerState::kJoining, reason_.empty() ? "asking to be listed" : reason_, out);
  } else {
    std::set<PeerId> present{env_.self};
    for (const Member& m : chain_.head().body.members) {
      if (presence_.Present(m.id)) present.insert(m.id);
    }
    const auto missing =
        MissingForQuorum(chain_.head().body.members, present, options_.config.quorum);
    if (!missing.empty()) {
      std::string who;
      for (const PeerId& p : missing) who += (who.empty() ? "" : ", ") + p.Short();
      Enter(PeerState::kWaiting, "no quorum; waiting for " + who, out);
    } else if (machine_ == nullptr && fence_) {
      Enter(PeerState::kStarting, "hearing from the others", out);
    } else {
      Enter(PeerState::kWorking, "", out);
    }
  }
}

void Peer::Problem(const PeerId& peer, std::string text, Effects& out) const {
  out.push_back(Tell{{Event::Kind::kProblem, state_round_, peer, std::move(text)}});
}

PeerView Peer::View(Time now) const {
  PeerView view;
  view.state = state_;
  view.reason = reason_;
  view.head = HeadOf(applied());
  view.tokens = applied().body.tokens;
  view.members = applied().body.members;
  std::set<PeerId> present{env_.self};
  for (const Member& m : view.members) {
    if (presence_.Present(m.id)) present.insert(m.id);
  }
  view.waits_for = MissingForQuorum(view.members, present, options_.config.quorum);
  view.critical = Critical(view.members, present, options_.config.quorum);
  if (machine_) {
    view.leader = machine_->leader();
    view.term = machine_->term();
    view.phase = machine_->phase();
  } else if (!view.members.empty()) {
    view.leader = LeaderOf(view.members, view.head.round + 1, 0);
  }
  view.loss = loss_;
  view.grad_norm = grad_norm_;
  view.learning_rate = learning_rate_;
  if (fetcher_) view.fetch = fetcher_->Progress(now);
  return view;
}

}  // namespace loom::collab
