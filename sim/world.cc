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

constexpr std::uint64_t kMostEvents = 200'000;  ///< a run of the matrix takes a few thousand

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
  agreed::State first =
      agreed::State::Make(grid_, collab::MakeStepRule(options_.config)->num_slots()).value();
  std::ranges::copy(first_weights_, first.weights().begin());
  const Hash root = agreed::StateRoot(grid_, std::as_const(first).planes());
  const collab::Body body = GenesisBody(genesis.Encode(), nodes_[0]->key, root, options_.config);
  genesis_ = collab::Record::FromBody(MakeBlob(body.Encode())).value();
  genesis_.owner = nodes_[0]->signer->Sign(collab::Chain::kGenesisDomain, genesis_.hash.View());
  LOOM_CHECK(collab::Chain::CheckGenesis(genesis_, *nodes_[0]->signer).ok(), "genesis");
  audit_ =
      std::make_unique<Audit>(grid_, options_.config, options_.model, genesis_, first_weights_);
}

World::~World() = default;

// The settings of the simulator's orders are the text "rounds N".
collab::ReadSettings World::SettingsReader() const {
  return [config = options_.config](ByteView, ByteView after) -> Result<collab::SyncConfig> {
    const std::string text(AsText(after));
    if (!text.starts_with("rounds ")) return MakeError(Code::kInvalid, "unknown settings");
    collab::SyncConfig amended = config;
    amended.rounds = std::strtoull(text.c_str() + 7, nullptr, 10);
    return amended;
  };
}

collab::Order World::SignedOrder(std::optional<Round> revert, std::string_view settings) const {
  collab::Order order;
  order.number = audit_->At(audit_->rounds()).body.orders + 1;
  order.revert = revert;
  order.settings = ToBytes(AsBytes(settings));
  order.owner = nodes_[0]->key;
  RunId run;
  run.bytes = genesis_.hash.bytes;
  order.signature = nodes_[0]->signer->Sign(collab::kOrderDomain, order.Text(run));
  return order;
}

collab::Seal World::SignedSeal(Era era, bool end) const {
  collab::Seal seal{era, end, nodes_[0]->key, {}};
  RunId run;
  run.bytes = genesis_.hash.bytes;
  seal.signature = nodes_[0]->signer->Sign(collab::kSealDomain, seal.Text(run));
  return seal;
}

Status World::CommitReset(std::size_t peer, bool leave_behind) {
  Node& node = *nodes_[peer];
  LOOM_ASSIGN(collab::ResetDraft draft, node.peer->DraftReset(leave_behind));
  draft.record.owner = nodes_[0]->signer->Sign(
      draft.is_reset ? collab::kResetDomain : collab::kCertifyDomain, draft.record.hash.View());
  Status done;
  Call(node,
       [&](Peer& p, Effects& out) { done = p.TakeSigned(std::move(draft.record), now_, out); });
  return done;
}

std::size_t World::Orphans(std::size_t peer) const {
  const auto log = store::ReadLog(nodes_[peer]->fs, fmt::format("{}/orphaned.log", kFolder), {});
  return log ? log->entries.size() : 0;
}

Status World::Ask(std::size_t peer, const std::function<Status(Peer&, Time, Effects&)>& what) {
  Status done;
  Call(*nodes_[peer], [&](Peer& p, Effects& out) { done = what(p, now_, out); });
  return done;
}

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

void World::Start(std::size_t peer) {
  if (const Status begun = Begin(*nodes_[peer]); !begun)
    audit_->Fail(fmt::format("peer {} cannot start: {}", peer, begun.error().ToString()));
}

Status World::StartDamaged(std::size_t peer) {
  Node& node = *nodes_[peer];
  node.old_state = true;
  Status begun = Begin(node);
  if (!begun) {
    End(node);
    node.fs.Kill();
  }
  return begun;
}

Status World::Begin(Node& node) {
  const std::size_t peer = node.index;
  if (node.peer != nullptr) return {};
  ++node.life;
  node.powered_off = false;
  node.disk_fault.reset();
  LOOM_ASSIGN(store::PeerFolder folder,
              store::PeerFolder::Open(node.fs, kFolder, {.pid = 1, .keep_checkpoints = 2}));
  node.folder.emplace(std::move(folder));
  LOOM_RETURN_IF_ERROR(node.folder->SetGenesis(genesis_.Encode()));
  const agreed::Isa isa = peer < options_.isa.size() ? options_.isa[peer] : agreed::BestIsa();
  node.engine = std::make_unique<collab::Engine>(
      collab::Engine::Make(grid_, options_.config, codec_, isa,
                           [this, &node](WorkerIndex) -> Result<std::unique_ptr<collab::Worker>> {
                             auto worker = std::make_unique<PlainWorker>(grid_, options_.model,
                                                                         &node.step_limit);
                             if (node.poisoned) worker->Poison();
                             return std::unique_ptr<collab::Worker>(std::move(worker));
                           })
          .value());
  node.disk.emplace(*node.folder, grid_, node.engine->layout());
  node.runner.emplace(*node.engine);
  auto restored = node::RestorePeer(
      *node.folder, *node.engine,
      {genesis_, node.id, options_.config, *node.signer, SettingsReader(), [&](std::span<float> w) {
         std::copy(first_weights_.begin(), first_weights_.end(), w.begin());
         return Status{};
       }});
  if (!restored) return restored.error();
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
  peer_options.read_settings = SettingsReader();
  peer_options.timing = options_.timing;
  peer_options.key = node.key;
  peer_options.checkpoint_every = options_.checkpoint_every;
  peer_options.finish_limit = 3600s;
  peer_options.bulk_bytes = options_.bulk_bytes;
  peer_options.keep_records = 3;
  peer_options.seed = random_.Next();
  peer_options.session = static_cast<std::uint64_t>(now_.time_since_epoch().count());
  node.peer = std::make_unique<Peer>(
      peer_options, node.engine->layout(), *node.signer, genesis_, std::move(restored->peer),
      [this](const collab::JoinAsk&, const collab::Chain& chain) -> Result<collab::Admission> {
        if (options_.invite_uses == 0) return collab::Admission{};
        const Hash invite = crypto::Sha256(AsBytes("the invite"));
        const std::uint32_t used = chain.InviteUses(invite);
        if (used >= options_.invite_uses) return MakeError(Code::kRefused, "the invite is used up");
        return collab::Admission{invite, options_.invite_uses - used};
      });
  Call(node, [&](Peer& p, Effects& out) { p.Start(now_, out); });
  AtNode(now_ + random_.Between(0ms, options_.timing.tick), node, [this, &node] { Tick(node); });
  for (auto& other : nodes_) {
    if (other->index == peer) continue;
    Pair& pair = PairOf(node, *other);
    if (pair.up) Disconnect(node, *other, true);  // of the process before, which nobody heard die
    Connect(node, *other);
    if (other->peer == nullptr && random_.Chance(0.5)) {  // its machine is up and says so
      AtNode(now_ + 2 * options_.latency, node, [this, &node, other = other.get()] {
        if (other->peer != nullptr || PairOf(node, *other).cut) return;
        Call(node, [&](Peer& p, Effects& out) { p.OnNobodyThere(other->id, now_, out); });
      });
    }
  }
  return {};
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

void World::FailDisk(std::size_t peer, const DiskFault& fault) {
  Node& node = *nodes_[peer];
  Note(fmt::format("peer {}: its disk will fail ({}{})", peer, CodeName(fault.code),
                   fault.for_good ? ", for good" : ""));
  node.disk_fault = fault;
  node.fs.FailAt(node.fs.operations() + fault.after, fault.code, fault.for_good);
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
  if (collab::Finished(audit_->At(audit_->rounds()).body, options_.config)) return;
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
