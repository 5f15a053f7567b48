// The frame of a peer: presence, and who of it hears which message or completion.
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
  if (const auto* part = std::get_if<Part>(&message)) return part->tiles.size;
  if (const auto* reduced = std::get_if<Reduced>(&message)) return reduced->tiles.size;
  return 256;
}

}  // namespace

Peer::Peer(PeerOptions options, const TileLayout& layout, const Signer& signer, Record genesis,
           PeerRestore restore, AdmitJoiner admit)
    : options_(std::move(options)),
      layout_(layout),
      signer_(signer),
      chain_(std::move(genesis), options_.config, layout.num_tiles(), signer,
             options_.read_settings),
      restore_(std::move(restore)),
      admit_(std::move(admit)) {
  env_.config = &chain_.config();
  env_.check_order = [this](const Body& body) { return CheckOrder(body); };
  env_.layout = &layout_;
  env_.signer = &signer_;
  env_.presence = &presence_;
  env_.rates = &rates_;
  env_.ids = &ids_;
  env_.run = chain_.run();
  env_.self = crypto::PeerIdOf(options_.key);
  env_.timing = options_.timing;
  env_.bulk_bytes = options_.bulk_bytes;
  work_time_ = options_.timing.first_work;
  exchange_time_ = options_.timing.first_exchange;
  voter_ = restore_.voter;
  state_round_ = restore_.state;
}

void Peer::Start(Time now, Effects& out) {
  for (Record& record : restore_.records) {
    if (const Status ok = chain_.AppendOwn(std::move(record)); !ok) {
      Fail(ok.error(), out);
      return;
    }
  }
  restore_.records.clear();
  if (state_round_ > chain_.rounds()) {
    Fail(MakeError(Code::kCorrupt, fmt::format("the state is of round {}, the newest record of {}",
                                               state_round_, chain_.rounds())),
         out);
    return;
  }
  for (Round r = restore_.oldest; r != 0 && r <= state_round_; ++r) IndexRound(r);
  for (std::uint32_t i = 0; i < restore_.leaves.size(); ++i)
    leaf_index_.emplace(restore_.leaves[i], i);
  checkpoint_round_ = restore_.checkpoint;
  // Which older ones there are is not told: none is counted on once a new one is written.
  if (checkpoint_round_ > 0) kept_.assign(options_.keep_checkpoints, checkpoint_round_);
  resumed_at_ = chain_.rounds();
  for (Round r = chain_.rounds(); r > 0 && work_time_ == options_.timing.first_work; --r) {
    LearnWorkTime(chain_.At(r));
  }
  ThinOut();
  started_ = true;
  // After a return to an older state nobody else has this one on disk yet.
  if (Reverts(applied().body) && checkpoint_round_ != state_round_) Save(out);
  Advance(now, out);
}

void Peer::ThinOut() {
  if (state_round_ > options_.keep_records) chain_.ThinOut(state_round_ - options_.keep_records);
}

bool Peer::Listed() const { return IsMember(chain_.head().body.members, env_.self); }

Hello Peer::MyHello() const {
  Hello hello;
  hello.head = HeadOf(applied());
  hello.seq = machine_ ? machine_->seq() : voter_.seq;
  hello.oldest = restore_.oldest;
  hello.checkpoint = checkpoint_round_;
  hello.leaving = leaving_since_.has_value() || paused_;
  hello.paused = paused_;
  if (const Record* reset = chain_.last_reset()) {
    hello.reset_round = reset->body.round;
    hello.reset = reset->hash;
  }
  for (const PeerId& peer : direct_) {
    if (!mute_.contains(peer)) hello.links.push_back(peer);
  }
  hello.rates = rates_.Measured();
  return hello;
}

void Peer::SayHello(const PeerId& to, Effects& out) {
  Hello hello = MyHello();
  hello.asks = !remotes_[to].greeted;
  if (const Word* seen = NewestWord(to)) hello.seen = *seen;
  out.push_back(Send{to, hello});
  if (order_) out.push_back(Send{to, OrderMessage{*order_}});
}

void Peer::HelloAll(Effects& out) {
  for (const PeerId& peer : presence_.connected) SayHello(peer, out);
}

void Peer::SendRecord(const PeerId& to, Round round, Effects& out) const {
  if (chain_.Whole(round)) {
    out.push_back(Send{to, RecordMessage{chain_.At(round).Encode()}});
  } else {
    out.push_back(Serve{to, {}, Serve::From::kRecords, round, 0});
  }
}

void Peer::OnPeerUp(const PeerId& peer, Time now, Effects& out) {
  direct_.insert(peer);
  refused_.erase(peer);
  mute_.erase(peer);
  via_.erase(peer);
  Attach(peer, now, out);
  HelloAll(out);
  AfterMachine(now, out);
}

void Peer::OnPeerDown(const PeerId& peer, bool refused, Time now, Effects& out) {
  direct_.erase(peer);
  mute_.erase(peer);
  if (refused) refused_.insert(peer);
  // R33: another member has to have lost it, too. While one still says that it hears it, that one
  // carries for it (R35), and the word that it no longer does comes as soon as its own link closes.
  const auto carrier = FindCarrier(peer);
  if (carrier && presence_.connected.contains(peer)) {
    via_[peer] = *carrier;
    presence_.silent.erase(peer);
    if (machine_) machine_->OnPresence(now, out);
  } else {
    via_.erase(peer);
    Detach(peer, now, out);
  }
  HelloAll(out);
  ConsiderRelays(now, out);
  AfterMachine(now, out);
}

// After a restart: as with a refused redial, unless a carrier is found (R33).
void Peer::OnNobodyThere(const PeerId& peer, Time now, Effects& out) {
  if (presence_.connected.contains(peer)) return;
  refused_.insert(peer);
  if (!presence_.gone.insert(peer).second) return;
  if (machine_) machine_->OnPresence(now, out);
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

void Peer::Detach(const PeerId& peer, Time now, Effects& out) {
  presence_.connected.erase(peer);
  presence_.silent.erase(peer);
  if (refused_.contains(peer)) presence_.gone.insert(peer);
  remotes_.erase(peer);
  rates_.Forget(peer);
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
  // Behind a rewind nothing of the history that it leaves may follow on the disk.
  const bool ends = restarting_ || rewind_token_ != 0;
  if (state_ == PeerState::kFailed || ends || !presence_.connected.contains(from)) return;
  Measure(from, message, now);
  Dispatch(from, message, now, out);
  AfterMachine(now, out);
}

// R23: what a contributor scatters to this owner, and what an owner reduced, comes back to back.
void Peer::Measure(const PeerId& from, const Message& message, Time now) {
  if (const auto* part = std::get_if<Part>(&message)) {
    rates_.OnBulk(from, part->commitment, part->tiles.size, now);
  } else if (const auto* reduced = std::get_if<Reduced>(&message)) {
    rates_.OnBulk(from, reduced->id.parent, reduced->tiles.size, now);
  }
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
          for (Round r = std::max<Round>(m.from, 1); r <= chain_.rounds() && r - m.from < kBatch;
               ++r) {
            SendRecord(from, r, out);
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
        } else if constexpr (std::is_same_v<T, OrderMessage>) {
          if (!order_ && TakeOrder(m.order, now, out)) HelloAll(out);
        } else if constexpr (std::is_same_v<T, SealMessage>) {
          OnSeal(from, m.seal, now, out);
        } else if constexpr (std::is_same_v<T, SealReport>) {
          OnSealReport(from, m, out);
        } else if constexpr (std::is_same_v<T, GetLeaves>) {
          if (m.round <= checkpoint_round_ &&
              !restore_.leaves.empty()) {  // the newest serves as well
            out.push_back(Send{from, Leaves{checkpoint_round_, restore_.leaves}});
          }
        } else if constexpr (std::is_same_v<T, Leaves>) {
          OnLeaves(from, m, now, out);
        } else if constexpr (std::is_same_v<T, swarm::GetObjects>) {
          OnGet(from, m, now, out);
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
    Remember(from, Word::Of(id, vote->vote));
  }
  if (const auto* p = std::get_if<PromiseMessage>(&message);
      p != nullptr && p->promise.peer == from) {
    Remember(from, Word::Of(id, p->promise));
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
      SendRecord(from, id.round, out);
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
  if (restarting_ || rewind_token_ != 0) return;
  ConsiderFailedWork(out);
  if (machine_ && machine_->decided() && record_token_ == 0 &&
      chain_.rounds() < machine_->id().round) {
    Decided(now, out);
  }
  Refresh(now, out);
  Route(out);
}

void Peer::OnComputed(std::uint64_t job, JobResult result, Time now, Effects& out) {
  if (state_ == PeerState::kFailed || restarting_) return;
  if (job == apply_job_ && applying_) {
    Applied(std::get<Status>(result), now, out);
  } else if (job == checkpoint_job_ && checkpoint_job_ != 0) {
    checkpoint_job_ = 0;
    auto& leaves = std::get<Result<std::vector<Hash>>>(result);
    if (!leaves) {
      Problem(env_.self, "the checkpoint was not written: " + leaves.error().ToString(), out);
    } else {
      restore_.leaves = std::move(*leaves);
      // The disk keeps that many checkpoints and the rounds since the oldest of them.
      checkpoint_round_ = saving_round_;
      kept_.push_back(checkpoint_round_);
      if (kept_.size() > options_.keep_checkpoints) kept_.pop_front();
      if (kept_.size() == options_.keep_checkpoints && restore_.oldest != 0) {
        restore_.oldest = std::max(restore_.oldest, kept_.front() + 1);
        std::erase_if(round_tiles_,
                      [&](const auto& tile) { return tile.second.first < restore_.oldest; });
      }
      leaf_index_.clear();
      for (std::uint32_t i = 0; i < restore_.leaves.size(); ++i)
        leaf_index_.emplace(restore_.leaves[i], i);
      HelloAll(out);
    }
    if (restart_when_saved_) Restart(out);
  } else if (job == report_job_ && report_job_ != 0) {
    report_job_ = 0;
    ReportProved(std::get<Hash>(result), now, out);
  } else if (collect_ && collect_->jobs.contains(job)) {
    const auto [peer, said] = collect_->jobs.at(job);
    collect_->jobs.erase(job);
    if (said == std::get<Hash>(result)) collect_->proved.insert(peer);
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
  if (state_ == PeerState::kFailed || restarting_) return;
  if (token == rewind_token_ && token != 0) {
    Restart(out);
    return;
  }
  if (token == seal_token_ && token != 0) {
    seal_token_ = 0;
    Report(out);
  } else if (token == record_token_ && token != 0) {
    record_token_ = 0;
    Advance(now, out);
  } else if (machine_) {
    machine_->OnPersisted(token, now, out);
  }
  AfterMachine(now, out);
}

void Peer::OnPersistFailed(const Error& error, Time, Effects& out) {
  Fail(Error(error).Context("cannot write to the folder"), out);
}

void Peer::OnTick(Time now, Effects& out) {
  if (!started_ || restarting_ || rewind_token_ != 0 || state_ == PeerState::kFailed ||
      state_ == PeerState::kStopped) {
    return;
  }
  ResetTick(now, out);
  AskForHellos(now, out);
  if (machine_) machine_->OnTick(now, out);
  if (fetcher_) CarryFetch(fetcher_->Tick(now), now, out);
  AskRecords(now, out);
  ConsiderRelays(now, out);
  FindPartial();
  if (machine_ == nullptr || !AtHead()) Advance(now, out);
  LeaveTick(now, out);
  AfterMachine(now, out);
}

}  // namespace loom::collab
