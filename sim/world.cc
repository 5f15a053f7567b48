#include "sim/world.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "agreed/random.h"
#include "agreed/state.h"
#include "crypto/hash.h"

namespace loom::sim {
namespace {

using collab::Effects;
using collab::Message;
using collab::Peer;

constexpr Duration kSyncTime = 3ms;
constexpr Duration kSilence = 2s;
constexpr std::uint64_t kMostEvents = 200'000;  ///< a run of the matrix takes a few thousand
constexpr const char* kFolder = "/peer";

}  // namespace

World::World(WorldOptions options) : options_(std::move(options)), random_(options_.seed) {
  std::vector<agreed::TensorShape> tensors;
  tensors.reserve(options_.tensors.size());
  for (std::size_t i = 0; i < options_.tensors.size(); ++i) {
    tensors.push_back({fmt::format("t{}", i), {options_.tensors[i]}});
  }
  grid_ = agreed::TileGrid::Make(std::move(tensors), options_.config.tile_elements).value();
  codec_ = codec::ParseCodec(options_.config.codec).value();
  first_weights_.assign(grid_.flat_size(), 0.0F);
  for (const agreed::Tile& tile : grid_.tiles()) {
    agreed::FillNormal(std::span(first_weights_).subspan(tile.offset, tile.size),
                       options_.config.seed, tile.offset, 0.5F);
  }
  for (std::size_t i = 0; i < options_.peers; ++i) {
    auto node = std::make_unique<Node>();
    node->index = i;
    node->key.bytes =
        crypto::Sha256(AsBytes(fmt::format("sim peer {} of {}", i, options_.seed))).bytes;
    node->id = crypto::PeerIdOf(node->key);
    node->signer = std::make_unique<FakeSigner>(node->key);
    index_.emplace(node->id, i);
    nodes_.push_back(std::move(node));
  }
  collab::Genesis genesis;
  genesis.nonce = crypto::Sha256(AsBytes(fmt::format("nonce {}", options_.seed)));
  genesis.owners.push_back(nodes_[0]->key);
  genesis.name = "sim";
  const std::vector<float> zeros(grid_.flat_size(), 0.0F);
  const Hash root = agreed::StateRoot(grid_, first_weights_, zeros);
  const collab::Body body = GenesisBody(genesis.Encode(), nodes_[0]->key, root, options_.config);
  genesis_ = collab::Record::FromBody(MakeBlob(body.Encode())).value();
  genesis_.owner = nodes_[0]->signer->Sign(collab::Chain::kGenesisDomain, genesis_.hash.View());
  LOOM_CHECK(collab::Chain::CheckGenesis(genesis_, *nodes_[0]->signer).ok(), "genesis");
  audit_ = std::make_unique<Audit>(grid_, options_.config, genesis_, first_weights_);
}

World::~World() = default;

std::optional<std::size_t> World::IndexOf(const PeerId& id) const {
  const auto it = index_.find(id);
  if (it == index_.end()) return std::nullopt;
  return it->second;
}

void World::Note(std::string line) {
  if (options_.keep_trace)
    trace_.push_back(fmt::format("{:9.3f} {}", Seconds(now_.time_since_epoch()), line));
}

void World::At(Time at, std::function<void()> run) {
  queue_.push({std::max(at, now_), order_++, std::move(run)});
}

void World::After(Duration delay, std::function<void()> action) {
  At(now_ + delay, std::move(action));
}

void World::ForNode(Node& node, std::uint64_t life, std::function<void()> run) {
  if (node.life != life || node.peer == nullptr) return;
  if (node.frozen) {
    node.held.push_back([this, &node, life, run = std::move(run)]() mutable {
      ForNode(node, life, std::move(run));
    });
    return;
  }
  run();
}

void World::AtNode(Time at, Node& node, std::function<void()> run) {
  At(at, [this, &node, life = node.life, run = std::move(run)]() mutable {
    ForNode(node, life, std::move(run));
  });
}

template <class F>
void World::Call(Node& node, F&& call) {
  Effects out;
  call(*node.peer, out);
  LookAtRecords(node);
  Carry(node, std::move(out));
}

// --- processes

void World::Start(std::size_t peer) {
  Node& node = *nodes_[peer];
  if (node.peer != nullptr) return;
  ++node.life;
  node.powered_off = false;
  auto folder = store::PeerFolder::Open(node.fs, kFolder, {.pid = 1, .keep_checkpoints = 2});
  if (!folder) {
    audit_->Fail(fmt::format("peer {}: {}", peer, folder.error().ToString()));
    return;
  }
  node.folder.emplace(std::move(*folder));
  if (const Status ok = node.folder->SetGenesis(genesis_.Encode()); !ok) {
    audit_->Fail(fmt::format("peer {}: {}", peer, ok.error().ToString()));
    return;
  }
  const agreed::Isa isa = peer < options_.isa.size() ? options_.isa[peer] : agreed::BestIsa();
  node.engine = std::make_unique<collab::Engine>(
      grid_, options_.config, codec_, isa,
      [this, &node](WorkerIndex) -> Result<std::unique_ptr<collab::Worker>> {
        auto worker = std::make_unique<PlainWorker>(grid_, options_.model, &node.step_limit);
        if (node.poisoned) worker->Poison();
        return std::unique_ptr<collab::Worker>(std::move(worker));
      });
  node.disk.emplace(*node.folder, grid_, node.engine->layout());
  node.runner.emplace(*node.engine);
  auto restored = node::RestorePeer(
      *node.folder, *node.engine, genesis_, options_.config, [&](std::span<float> w) {
        std::copy(first_weights_.begin(), first_weights_.end(), w.begin());
        return Status{};
      });
  if (!restored) {
    audit_->Fail(fmt::format("peer {} cannot restore: {}", peer, restored.error().ToString()));
    return;
  }
  for (const std::string& note : restored->notes) Note(fmt::format("peer {}: {}", peer, note));
  node.disk->Know(restored->peer.records);
  if (!node.old_state && restored->peer.voter.seq < node.said_seq) {
    audit_->Fail(
        fmt::format("peer {}: its disk ends at word {}, it said word {}: not synced before it left",
                    peer, restored->peer.voter.seq, node.said_seq));
  }
  node.engine_round = restored->state;
  audit_->SawState(fmt::format("peer {} restored", peer), restored->state, node.engine->Root());
  Note(fmt::format("peer {} starts at round {} of {}{}", peer, restored->state,
                   restored->peer.records.size(), node.old_state ? ", old state" : ""));
  node.old_state = false;
  collab::PeerOptions peer_options;
  peer_options.config = options_.config;
  peer_options.timing = options_.timing;
  peer_options.key = node.key;
  peer_options.checkpoint_every = options_.checkpoint_every;
  peer_options.finish_limit = 3600s;
  peer_options.seed = random_.Next();
  node.peer = std::make_unique<Peer>(
      peer_options, node.engine->layout(), *node.signer, genesis_, std::move(restored->peer),
      [](const collab::JoinAsk&, const collab::Chain&) -> Result<std::optional<Hash>> {
        return std::optional<Hash>{};
      });
  Call(node, [&](Peer& p, Effects& out) { p.Start(now_, out); });
  AtNode(now_ + random_.Between(0ms, options_.timing.tick), node, [this, &node] { Tick(node); });
  for (auto& other : nodes_) {
    if (other->index == peer) continue;
    Pair& pair = PairOf(node, *other);
    if (pair.up) Disconnect(node, *other, true);  // of the process before, which nobody heard die
    Connect(node, *other);
  }
}

void World::Connect(Node& a, Node& b) {
  const Duration delay = random_.Between(2 * options_.latency, 6 * options_.latency);
  At(now_ + delay, [this, &a, &b, la = a.life, lb = b.life] {
    Pair& pair = PairOf(a, b);
    if (a.life != la || b.life != lb || a.peer == nullptr || b.peer == nullptr || pair.up ||
        pair.cut)
      return;
    if (a.frozen || b.frozen) {  // the other side does not answer; dialled again later
      Connect(a, b);
      return;
    }
    pair.up = true;
    ++pair.generation;
    pair.silent = {};
    pair.free = {};
    pair.arrived = {};
    Call(a, [&](Peer& p, Effects& out) { p.OnPeerUp(b.id, now_, out); });
    Call(b, [&](Peer& p, Effects& out) { p.OnPeerUp(a.id, now_, out); });
  });
}

void World::Disconnect(Node& a, Node& b, bool refused) {
  Pair& pair = PairOf(a, b);
  if (!pair.up) return;
  pair.up = false;
  ++pair.generation;
  pair.waiting.clear();
  const auto tell = [&](Node& at, Node& about) {
    if (at.peer == nullptr) return;
    AtNode(now_ + random_.Between(options_.latency, 3 * options_.latency), at,
           [this, &at, &about, refused] {
             if (PairOf(at, about).up) return;
             Call(at, [&](Peer& p, Effects& out) { p.OnPeerDown(about.id, refused, now_, out); });
           });
  };
  tell(a, b);
  tell(b, a);
}

void World::End(Node& node) {
  ++node.life;
  node.peer.reset();
  node.runner.reset();
  node.disk.reset();
  node.engine.reset();
  node.folder.reset();
  node.jobs.clear();
  node.computing = false;
  node.step_limit = UINT32_MAX;
  node.writes.clear();
  node.disk_free = {};
  node.held.clear();
  node.frozen = false;
}

// The process ends in the middle of the write it is at.
void World::TearWrite(Node& node) {
  if (node.writes.empty() || !random_.Chance(0.5)) return;
  node.fs.FailAt(node.fs.operations() + random_.Below(4), Code::kIo, true);
  (void)node.disk->Write(node.writes.front());
}

void World::Kill(std::size_t peer) {
  Node& node = *nodes_[peer];
  if (node.peer == nullptr) return;
  Note(fmt::format("peer {} is killed", peer));
  TearWrite(node);
  End(node);
  node.fs.Kill();
  for (auto& other : nodes_) {
    if (other->index != peer) Disconnect(node, *other, true);
  }
}

void World::PowerCut(std::size_t peer) {
  Node& node = *nodes_[peer];
  if (node.peer == nullptr) return;
  Note(fmt::format("peer {} loses power", peer));
  TearWrite(node);
  End(node);
  node.fs.Crash(random_.Next());
  node.powered_off = true;
  for (auto& other : nodes_) {
    if (other->index == peer) continue;
    WatchSilence(*other, node);
    At(now_ + 8s, [this, &node, &other = *other, life = node.life] {
      if (node.life == life) Disconnect(node, other, false);
    });
  }
}

void World::Freeze(std::size_t peer) {
  Node& node = *nodes_[peer];
  if (node.peer == nullptr || node.frozen) return;
  Note(fmt::format("peer {} is frozen", peer));
  node.frozen = true;
  for (auto& other : nodes_) {
    if (other->index != peer) WatchSilence(*other, node);
  }
}

void World::Thaw(std::size_t peer) {
  Node& node = *nodes_[peer];
  if (node.peer == nullptr || !node.frozen) return;
  Note(fmt::format("peer {} is thawed", peer));
  node.frozen = false;
  std::deque<std::function<void()>> held;
  held.swap(node.held);
  for (auto& run : held) At(now_, std::move(run));
  for (auto& other : nodes_) {
    if (other->index == peer) continue;
    AtNode(now_ + random_.Between(options_.latency, 2 * options_.latency), *other,
           [this, &node, &other = *other] {
             if (!node.frozen && Reachable(node, other)) BecomeSilent(other, node, false);
           });
  }
}

void World::Partition(const std::vector<std::size_t>& minority) {
  const bool close = random_.Chance(0.5);
  Note(fmt::format("partition: {} against the rest{}", fmt::join(minority, ","),
                   close ? ", connections close" : ""));
  for (const std::size_t a : minority) {
    for (std::size_t b = 0; b < nodes_.size(); ++b) {
      if (std::find(minority.begin(), minority.end(), b) == minority.end()) CutLink(a, b, close);
    }
  }
}

void World::Heal() {
  Note("the partition heals");
  for (const auto& [ends, pair] : pairs_) MendLink(ends.first, ends.second);
}

void World::CutLink(std::size_t a, std::size_t b, bool close) {
  PairOf(*nodes_[a], *nodes_[b]).cut = true;
  WatchSilence(*nodes_[a], *nodes_[b]);
  WatchSilence(*nodes_[b], *nodes_[a]);
  if (!close) return;
  At(now_ + random_.Between(3s, 8s), [this, a, b] {
    if (PairOf(*nodes_[a], *nodes_[b]).cut) Disconnect(*nodes_[a], *nodes_[b], false);
  });
}

void World::MendLink(std::size_t first, std::size_t second) {
  Node& a = *nodes_[first];
  Node& b = *nodes_[second];
  Pair& pair = PairOf(a, b);
  if (!pair.cut) return;
  pair.cut = false;
  if (!pair.up) {
    Connect(a, b);
    return;
  }
  for (auto& run : pair.waiting) At(now_ + options_.latency, std::move(run));
  pair.waiting.clear();
  for (const auto& ends : {std::pair(&a, &b), std::pair(&b, &a)}) {
    if (ends.first->peer == nullptr) continue;
    AtNode(now_ + options_.latency, *ends.first, [this, ends] {
      if (Reachable(*ends.first, *ends.second) && !ends.second->frozen) {
        BecomeSilent(*ends.first, *ends.second, false);
      }
    });
  }
}

bool World::Reachable(const Node& a, const Node& b) {
  const Pair& pair = PairOf(a, b);
  return pair.up && !pair.cut;
}

// Two seconds without a heartbeat of `about`.
void World::WatchSilence(Node& at, Node& about) {
  if (at.peer == nullptr) return;
  AtNode(now_ + kSilence, at, [this, &at, &about] {
    Pair& pair = PairOf(at, about);
    if (pair.up && (pair.cut || about.frozen || about.peer == nullptr))
      BecomeSilent(at, about, true);
  });
}

void World::BecomeSilent(Node& at, Node& about, bool silent) {
  Pair& pair = PairOf(at, about);
  bool& now_silent = pair.silent[at.index < about.index ? 0 : 1];
  if (now_silent == silent || !pair.up || at.peer == nullptr) return;
  now_silent = silent;
  Call(at, [&](Peer& p, Effects& out) { p.OnPeerSilent(about.id, silent, now_, out); });
}

void World::Leave(std::size_t peer) {
  Node& node = *nodes_[peer];
  if (node.peer == nullptr) return;
  Note(fmt::format("peer {} leaves", peer));
  Call(node, [&](Peer& p, Effects& out) { p.Leave(now_, out); });
}

void World::SnapshotDisk(std::size_t peer) { nodes_[peer]->snapshot = nodes_[peer]->fs.Snapshot(); }

void World::RestoreDisk(std::size_t peer) {
  Node& node = *nodes_[peer];
  LOOM_CHECK(node.peer == nullptr && node.snapshot != nullptr, "a dead peer with a snapshot");
  node.fs.Restore(node.snapshot);
  node.old_state = true;
}

// --- network

World::Pair& World::PairOf(const Node& a, const Node& b) {
  return pairs_[std::minmax(a.index, b.index)];
}

void World::Transmit(Node& from, const PeerId& to, const Message& message) {
  const auto index = IndexOf(to);
  if (!index || *index == from.index) return;
  Node& node = *nodes_[*index];
  Pair& pair = PairOf(from, node);
  if (!pair.up) return;
  if ((loss_ > 0 && random_.Chance(loss_)) || (drop_ && drop_(from.index, node.index, message))) {
    Note(fmt::format("lost: {} of peer {} to peer {}", MessageName(message), from.index,
                     node.index));
    return;
  }
  const Blob bytes = MakeBlob(EncodeMessage(message));
  const std::uint16_t type = TypeOf(message);
  Time& free = pair.free[from.index < node.index ? 0 : 1][IsBulk(message) ? 1 : 0];
  const Time sent = std::max(now_, free) + FromSeconds(static_cast<double>(bytes->size() + 32) /
                                                       options_.bytes_per_second);
  free = sent;
  Time& last = pair.arrived[from.index < node.index ? 0 : 1][IsBulk(message) ? 1 : 0];
  last = std::max(last, sent + options_.latency + random_.Between(0ms, options_.latency / 2));
  const Time arrives = last;  // TCP keeps the order: nothing overtakes
  auto deliver = [this, &from, &node, type, bytes, generation = pair.generation] {
    if (PairOf(from, node).generation == generation) Deliver(from, node, type, bytes);
  };
  At(arrives, [this, &from, &node, deliver = std::move(deliver)]() mutable {
    Pair& link = PairOf(from, node);
    if (link.cut) {
      link.waiting.push_back(std::move(deliver));
    } else {
      deliver();
    }
  });
}

void World::Deliver(Node& from, Node& to, std::uint16_t type, const Blob& bytes) {
  ForNode(to, to.life, [this, &from, &to, type, bytes] {
    if (!PairOf(from, to).up) return;
    auto message = collab::DecodeMessage(type, *bytes);
    if (!message) {
      audit_->Fail(
          fmt::format("message type {} does not decode: {}", type, message.error().ToString()));
      return;
    }
    Call(to, [&](Peer& p, Effects& out) { p.OnMessage(from.id, std::move(*message), now_, out); });
  });
}

// --- effects

void World::Carry(Node& node, Effects effects) {
  const std::uint64_t life = node.life;
  for (collab::Effect& effect : effects) {
    if (watch_) watch_(node.index, effect);
    if (node.life != life || node.peer == nullptr) return;  // the watcher ended it
    if (auto* send = std::get_if<collab::Send>(&effect)) {
      if (const auto* vote = std::get_if<collab::VoteMessage>(&send->message);
          vote != nullptr && vote->vote.peer == node.id) {
        node.said_seq = std::max(node.said_seq, vote->vote.seq);
      } else if (const auto* promise = std::get_if<collab::PromiseMessage>(&send->message)) {
        node.said_seq = std::max(node.said_seq, promise->promise.seq);
      } else if (const auto* c = std::get_if<collab::Commitment>(&send->message)) {
        audit_->SawCommitment(*c);
      }
      Transmit(node, send->to, send->message);
    } else if (auto* persist = std::get_if<collab::Persist>(&effect)) {
      StartWrite(node, std::move(*persist));
    } else if (auto* compute = std::get_if<collab::Compute>(&effect)) {
      node.jobs.push_back(std::move(*compute));
      StartJob(node);
    } else if (std::holds_alternative<collab::CutWork>(effect)) {
      CutWork(node);
    } else if (const auto* serve = std::get_if<collab::Serve>(&effect)) {
      AtNode(now_ + 1ms, node, [this, &node, serve = *serve] {
        const Blob bytes = node.disk->Find(serve);
        if (bytes != nullptr) {
          Transmit(node, serve.to, swarm::ObjectData{serve.id, bytes});
        } else {
          Transmit(node, serve.to, swarm::NotHere{{serve.id}, false});
        }
      });
    } else if (const auto* tell = std::get_if<collab::Tell>(&effect)) {
      static constexpr const char* kKinds[] = {"round",    "phase",    "excluded", "listed",
                                               "delisted", "takeover", "waiting",  "syncing",
                                               "problem",  "stopped"};
      const collab::Event& e = tell->event;
      const auto who = IndexOf(e.peer);
      if (options_.keep_trace) {
        Note(fmt::format(
            "peer {}: {} {}{} {}", node.index, kKinds[static_cast<std::size_t>(e.kind)], e.round,
            who && *who != node.index ? fmt::format(" of peer {}", *who) : "", e.text));
      }
      if (e.kind == collab::Event::Kind::kStopped &&
          node.peer->state() == collab::PeerState::kFailed) {
        audit_->Fail(fmt::format("peer {} failed: {}", node.index, e.text));
      }
    }
  }
}

void World::StartWrite(Node& node, collab::Persist persist) {
  node.writes.push_back(std::move(persist));
  node.disk_free = std::max(node.disk_free, now_) + kSyncTime + random_.Between(0ms, kSyncTime);
  AtNode(node.disk_free, node, [this, &node] { FinishWrite(node); });
}

void World::FinishWrite(Node& node) {
  const collab::Persist persist = std::move(node.writes.front());
  node.writes.pop_front();
  node.fs.IgnoreSyncs(options_.planted.vote_not_synced &&
                      std::holds_alternative<collab::AppendVote>(persist.what));
  const Status written = node.disk->Write(persist);
  node.fs.IgnoreSyncs(false);
  Call(node, [&](Peer& p, Effects& out) {
    if (!written) {
      p.OnPersistFailed(written.error(), now_, out);
    } else if (persist.token != 0) {
      p.OnPersisted(persist.token, now_, out);
    }
  });
}

Duration World::CostOf(const Node& node, const collab::Job& job) const {
  if (const auto* work = std::get_if<collab::WorkJob>(&job)) {
    const std::uint64_t samples = collab::CountSamples(work->order.ranges);
    const std::uint64_t steps = (samples + work->order.batch - 1) / work->order.batch;
    const double speed = node.index < options_.speed.size() ? options_.speed[node.index] : 1.0;
    return FromSeconds(Seconds(options_.step_time) * static_cast<double>(steps) / speed);
  }
  return std::holds_alternative<collab::LoadStateJob>(job) ||
                 std::holds_alternative<collab::CheckpointJob>(job)
             ? 6ms
             : 2ms;
}

void World::StartJob(Node& node) {
  if (node.computing || node.jobs.empty()) return;
  node.computing = true;
  node.job_started = now_;
  const std::uint64_t number = ++node.job_number;
  AtNode(now_ + CostOf(node, node.jobs.front().what), node, [this, &node, number] {
    if (node.job_number == number && node.computing) FinishJob(node);
  });
}

void World::CutWork(Node& node) {
  if (!node.computing || !std::holds_alternative<collab::WorkJob>(node.jobs.front().what)) return;
  const double speed = node.index < options_.speed.size() ? options_.speed[node.index] : 1.0;
  const double step = Seconds(options_.step_time) / speed;
  const auto steps = static_cast<std::uint32_t>(Seconds(now_ - node.job_started) / step) + 1;
  if (steps >= node.step_limit) return;
  node.step_limit = steps;
  const Time ends = node.job_started + FromSeconds(step * steps);
  const std::uint64_t number = node.job_number;
  AtNode(ends, node, [this, &node, number] {
    if (node.job_number == number && node.computing) FinishJob(node);
  });
}

void World::FinishJob(Node& node) {
  collab::Compute job = std::move(node.jobs.front());
  node.jobs.pop_front();
  node.computing = false;
  ++node.job_number;
  collab::JobResult result = Status{};
  const std::string who = fmt::format("peer {}", node.index);
  if (const auto* checkpoint = std::get_if<collab::CheckpointJob>(&job.what)) {
    result = node.disk->Checkpoint(*checkpoint, *node.engine);
  } else {
    if (const auto* apply = std::get_if<collab::ApplyJob>(&job.what)) {
      // R5: nothing overwrites W before the record is held on disk.
      if (node.folder->records().synced() < apply->round) {
        audit_->Fail(fmt::format("{}: W({}) is overwritten before record {} is on disk", who,
                                 apply->round - 1, apply->round));
      }
    }
    result = node.runner->Run(job.what, std::atomic<bool>(false));
  }
  if (auto* work = std::get_if<collab::WorkResult>(&result)) {
    node.step_limit = UINT32_MAX;
    work->millis = static_cast<std::uint32_t>(Seconds(now_ - node.job_started) * 1000.0);
    if (work->work && node.corrupt) {
      node.corrupt = false;
      Bytes bad = *work->work->encoded;
      std::fill(bad.begin(), bad.end(), std::byte{0xFF});
      work->work->encoded = MakeBlob(bad);
      for (std::size_t i = 0; i < work->work->hashes.size(); ++i) {
        work->work->hashes[i] = crypto::Sha256(node.engine->layout().View(bad, i));
      }
    }
    if (work->work) {
      const auto& order = std::get<collab::WorkJob>(job.what).order;
      audit_->SawWork(order.round, order.worker, *work->work);
    }
  } else if (const auto* apply = std::get_if<collab::ApplyJob>(&job.what)) {
    if (std::get<Status>(result)) node.engine_round = apply->round;
  } else if (const auto* load = std::get_if<collab::LoadStateJob>(&job.what)) {
    if (std::get<Status>(result)) node.engine_round = load->round;
  } else if (const auto* next = std::get_if<collab::NextJob>(&job.what)) {
    if (options_.planted.early_overwrite) (void)node.engine->Apply(*next->reduced);
  }
  if (std::holds_alternative<collab::NextJob>(job.what) ||
      std::holds_alternative<collab::ApplyJob>(job.what) ||
      std::holds_alternative<collab::LoadStateJob>(job.what)) {
    audit_->SawState(who, node.engine_round, node.engine->Root());
  }
  Call(node, [&](Peer& p, Effects& out) { p.OnComputed(job.job, std::move(result), now_, out); });
  StartJob(node);
}

void World::Tick(Node& node) {
  Call(node, [&](Peer& p, Effects& out) { p.OnTick(now_, out); });
  AtNode(now_ + options_.timing.tick, node, [this, &node] { Tick(node); });
}

void World::LookAtRecords(Node& node) {
  const collab::Chain& chain = node.peer->chain();
  const Round before = audit_->rounds();
  // Everything it holds was compared when it came; only what came now is new.
  const Round held = chain.rounds();
  if (held == 0) return;
  for (Round r = std::min(held, before + 1); r <= held; ++r)
    audit_->SawRecord(fmt::format("peer {}", node.index), chain.At(r));
  if (audit_->rounds() > before) {
    if (quorum_)
      longest_wait_ = std::max(longest_wait_, now_ - std::max(last_commit_, quorum_since_));
    last_commit_ = now_;
    Note(fmt::format("record {} held by peer {} (term {})", audit_->rounds(), node.index,
                     chain.head().term));
  }
}

// --- R37

bool World::QuorumConnected() const {
  for (const auto& node : nodes_) {
    if (node->peer == nullptr || node->frozen) continue;
    const auto& members = node->peer->chain().head().body.members;
    if (!collab::IsMember(members, node->id)) continue;
    std::set<PeerId> who{node->id};
    for (const auto& other : nodes_) {
      if (other == node || other->peer == nullptr || other->frozen) continue;
      const auto pair = pairs_.find(std::minmax(node->index, other->index));
      if (pair != pairs_.end() && pair->second.up && !pair->second.cut) who.insert(other->id);
    }
    if (node->peer->chain().rounds() == audit_->rounds() &&
        IsQuorum(members, who, options_.config.quorum)) {
      return true;
    }
  }
  return false;
}

void World::CheckHang() {
  const bool quorum = QuorumConnected();
  if (quorum && !quorum_) quorum_since_ = now_;
  quorum_ = quorum;
  if (!quorum || !hang_bound_) return;
  if (options_.config.rounds > 0 && audit_->rounds() >= options_.config.rounds) return;
  const Time from = std::max(last_commit_, quorum_since_);
  if (now_ - from > *hang_bound_) {
    audit_->Fail(fmt::format(
        "hang (R37): a quorum is connected and nothing was committed after round {} for {:.1f} s",
        audit_->rounds(), Seconds(now_ - from)));
  }
}

bool World::RunUntil(const std::function<bool()>& done, Duration limit) {
  const Time end = now_ + limit;
  Time checked = now_;
  while (!queue_.empty() && audit_->failures().empty()) {
    Item item = std::move(const_cast<Item&>(queue_.top()));
    queue_.pop();
    if (item.at > end) {
      queue_.push(std::move(item));
      now_ = end;
      return done();
    }
    now_ = item.at;
    ++events_;
    item.run();
    if (events_ > kMostEvents) {
      audit_->Fail(fmt::format("a livelock: {} events in {:.1f} s", events_,
                               Seconds(now_.time_since_epoch())));
    }
    if (now_ - checked >= 50ms) {
      checked = now_;
      CheckHang();
      if (done()) return true;
    }
  }
  return audit_->failures().empty() && done();
}

}  // namespace loom::sim
