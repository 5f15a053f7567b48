// Carrying out what the core asks for, and bringing completions back to the reactor thread.
#include "base/log.h"
#include "node/node.h"
#include "node/order_words.h"

namespace loom::node {
namespace {

const std::atomic<bool> kNever{false};

/// Jobs that leave the agreed state as it is and lead to no word of this peer: a vote for the next
/// state comes after the checkpoint that the state before it may need (R6).
bool RunsBesideSaving(const collab::Job& job) {
  return std::holds_alternative<collab::WorkJob>(job) ||
         std::holds_alternative<collab::CheckPartJob>(job) ||
         std::holds_alternative<collab::ReduceJob>(job);
}

}  // namespace

void Node::Carry(collab::Effects effects) {
  if (stopping_) return;
  // What was asked for again is sent as a whole, or not while anything waits.
  std::map<PeerId, bool> busy;
  for (const auto& effect : effects) {
    const auto* send = std::get_if<collab::Send>(&effect);
    if (send == nullptr || !send->again || busy.contains(send->to)) continue;
    const auto stats = transport_->StatsOf(send->to);
    busy.emplace(send->to, outbox_.Waits(send->to) || (stats && stats->bulk_queue > 0));
  }
  for (auto& effect : effects) {
    const auto* send = std::get_if<collab::Send>(&effect);
    if (send != nullptr && send->again && busy.at(send->to)) continue;
    std::visit([this](auto& e) { CarryOne(e); }, effect);
  }
}

void Node::SendCore(const PeerId& to, collab::Message message) {
  if (!transport_->IsUp(to)) return;
  if (collab::IsBulk(message)) {
    const auto* object = std::get_if<swarm::ObjectData>(&message);
    const Hash id = object != nullptr ? object->id : Hash{};
    if (!outbox_.Push(to, std::move(message))) SendCore(to, swarm::NotHere{{id}, true});
    return;
  }
  if (!transport_->Send(to, net::Channel::kControl, collab::TypeOf(message),
                        MakeBlob(collab::EncodeMessage(message)))) {
    Log(LogLevel::kDebug, "net", "{} to {} was not sent: its queue is full",
        collab::MessageName(message), to.Short());
  }
}

void Node::SendNode(const PeerId& to, const NodeMessage& message) {
  if (!transport_->Send(to, net::Channel::kControl, TypeOf(message),
                        MakeBlob(EncodeNodeMessage(message)))) {
    Log(LogLevel::kDebug, "net", "a message to {} was not sent", to.Short());
  }
}

void Node::CarryOne(collab::Send& send) { SendCore(send.to, std::move(send.message)); }

void Node::CarryOne(collab::Persist& persist) {
  auto shared = std::make_shared<collab::Persist>(std::move(persist));
  const bool posted = storage_->Post([this, shared, life = core_life_] {
    const Status done = disk_->Write(*shared);
    reactor_.Post([this, life, token = shared->token, done] {
      StepOf(life, [&](collab::Peer& core, Time now, collab::Effects& out) {
        if (!done) {
          core.OnPersistFailed(done.error(), now, out);
        } else if (token != 0) {
          core.OnPersisted(token, now, out);
        }
      });
    });
  });
  if (!posted) Stop({collab::PeerState::kFailed, "the storage thread does not keep up"});
}

void Node::CarryOne(collab::Compute& compute) {
  std::shared_ptr<std::atomic<bool>> cut;
  if (std::holds_alternative<collab::WorkJob>(compute.what)) {
    cut = std::make_shared<std::atomic<bool>>(false);
    running_work_[compute.job] = cut;
  }
  auto shared = std::make_shared<collab::Compute>(std::move(compute));
  const bool posted = compute_->Post([this, shared, cut, life = core_life_] {
    if (const auto* checkpoint = std::get_if<collab::CheckpointJob>(&shared->what)) {
      SaveCheckpoint(shared->job, *checkpoint, life);
      return;
    }
    if (!RunsBesideSaving(shared->what)) AwaitSaved();
    const Time begin = SystemClock().Now();
    auto result = std::make_shared<collab::JobResult>(
        runner_->Run(shared->what, cut != nullptr ? *cut : kNever));
    if (auto* work = std::get_if<collab::WorkResult>(result.get())) {
      work->millis = static_cast<std::uint32_t>(
          std::chrono::duration_cast<std::chrono::milliseconds>(SystemClock().Now() - begin)
              .count());
    }
    Complete(shared->job, life, std::move(result));
  });
  if (!posted) Stop({collab::PeerState::kFailed, "the compute thread does not keep up"});
}

void Node::Complete(std::uint64_t job, std::uint64_t life,
                    std::shared_ptr<collab::JobResult> result) {
  reactor_.Post([this, life, job, result = std::move(result)] {
    if (life == core_life_) running_work_.erase(job);
    StepOf(life, [&](collab::Peer& core, Time now, collab::Effects& out) {
      core.OnComputed(job, std::move(*result), now, out);
    });
  });
}

void Node::AwaitSaved() const {
  if (saved_.valid()) saved_.wait();
}

void Node::SaveCheckpoint(std::uint64_t job, const collab::CheckpointJob& what,
                          std::uint64_t life) {
  AwaitSaved();
  auto begun =
      std::make_shared<Result<store::PendingCheckpoint>>(disk_->BeginCheckpoint(what, *engine_));
  auto done = std::make_shared<std::promise<void>>();
  saved_ = done->get_future().share();
  const auto finish = [this, job, life, begun, done, round = what.round] {
    auto result = std::make_shared<collab::JobResult>(
        *begun ? disk_->FinishCheckpoint(round, std::move(**begun), *engine_)
               : Result<std::vector<Hash>>(begun->error()));
    Complete(job, life, std::move(result));  // before that of any job that waits for it
    done->set_value();
  };
  if (!saving_->Post(finish)) finish();
}

void Node::CarryOne(collab::CutWork&) {
  for (auto& [job, cut] : running_work_) cut->store(true);
}

void Node::CarryOne(collab::Reload&) {
  reactor_.Post([this] { ReloadPeer(); });  // not while the core is at work
}

void Node::CarryOne(collab::Serve& serve) {
  const bool posted = Answer(serve.to, [this, serve] {
    std::optional<collab::Message> found;
    if (serve.from == collab::Serve::From::kObjects) found = DataPiece(serve.id);
    return found ? std::move(found) : disk_->Answer(serve);
  });
  if (!posted && serve.from != collab::Serve::From::kRecords)
    SendCore(serve.to, swarm::NotHere{{serve.id}, true});
}

// While this peer still starts: pieces of data, and of all else that it is not there yet.
void Node::ServeData(const PeerId& to, const swarm::GetObjects& get) {
  if (!data_) return SendCore(to, swarm::NotHere{get.ids, true});
  for (const Hash& id : get.ids) {
    const swarm::NotHere busy{{id}, true};
    if (!Answer(to, [this, id, busy] { return DataPiece(id).value_or(busy); })) SendCore(to, busy);
  }
}

std::optional<collab::Message> Node::DataPiece(const Hash& id) const {
  auto piece = data_ ? data_->Read(id) : std::nullopt;
  if (!piece) return std::nullopt;
  return swarm::ObjectData{id, MakeBlob(std::move(*piece))};
}

bool Node::Answer(const PeerId& to, std::function<std::optional<collab::Message>()> find) {
  return storage_->Post([this, to, find = std::move(find)] {
    auto found = find();
    if (!found) return;
    auto answer = std::make_shared<collab::Message>(std::move(*found));
    reactor_.Post([this, to, answer] { SendCore(to, std::move(*answer)); });
  });
}

void Node::TellOwner(const collab::Event& e) {
  const collab::Chain& chain = peer_->chain();
  const collab::Order* order = e.by_order ? &*chain.At(e.round).body.order : nullptr;
  const std::string words = order != nullptr ? OrderWords(*order, SettingsBefore(e.round)) : e.text;
  json::Object event{{"event", json::Value("owner")},
                     {"round", json::Value(e.round)},
                     {"peer", json::Value(e.peer.Hex())},
                     {"text", json::Value(words)}};
  if (order != nullptr) event.emplace_back("order", json::Value(order->number));
  Event(std::move(event));
  Say(fmt::format("Round {}: {}.", e.round, words));
}

ByteView Node::SettingsBefore(Round round) const {
  for (Round r = round; r-- > 1;) {
    const auto& order = peer_->chain().At(r).body.order;
    if (order && !order->settings.empty()) return order->settings;
  }
  return run_->content.spec;
}

void Node::CarryOne(collab::Tell& tell) {
  using Kind = collab::Event::Kind;
  const collab::Event& e = tell.event;
  const auto with_peer = [&](const char* name) {
    Event({{"event", json::Value(name)},
           {"round", json::Value(e.round)},
           {"peer", json::Value(e.peer.Hex())},
           {"text", json::Value(e.text)}});
  };
  const bool own = e.peer == key_.id();
  switch (e.kind) {
    case Kind::kRound:
      outbox_.DropBefore(e.round);
      ReportRound(e.round);
      break;
    case Kind::kPhase:
      Event({{"event", json::Value("phase")},
             {"phase", json::Value(e.text)},
             {"round", json::Value(e.round)},
             {"leading",
              json::Value(peer_ != nullptr && peer_->View(reactor_.Now()).leader == key_.id())}});
      break;
    case Kind::kExcluded:
      with_peer("excluded");
      if (e.by_order) break;
      Say(fmt::format("Round {}: {} is left out: {}", e.round, own ? "this peer" : e.peer.Short(),
                      e.text));
      break;
    case Kind::kListed:
      with_peer("joined");
      Say(fmt::format("Round {}: {} joined the run.", e.round, own ? "this peer" : e.peer.Short()));
      break;
    case Kind::kDelisted:
      with_peer("left");
      Say(fmt::format("Round {}: {} is no longer a member.", e.round,
                      own ? "this peer" : e.peer.Short()));
      break;
    case Kind::kTakeover:
      with_peer("leader");
      if (e.by_order) break;
      Say(fmt::format("Round {}: {}; {} leads now.", e.round, e.text,
                      own ? "this peer" : e.peer.Short()));
      break;
    case Kind::kWaiting:
      with_peer("waiting");
      Say(fmt::format("Waiting: {}.", e.text));
      break;
    case Kind::kSyncing:
      with_peer("sync");
      break;
    case Kind::kOwner:
      TellOwner(e);
      break;
    case Kind::kProblem:
      with_peer("problem");
      Log(LogLevel::kWarn, "round", "round {}, {}: {}", e.round, own ? "this peer" : e.peer.Short(),
          e.text);
      break;
    case Kind::kStopped:
      break;
  }
}

}  // namespace loom::node
