// The life of a node: opening, listening, dialling, the tick, control requests, the end.
#include "node/node.h"

#include <unistd.h>

#include <algorithm>

#include "base/log.h"
#include "node/interfaces.h"
#include "node/owner_key.h"

namespace loom::node {
namespace {

constexpr std::size_t kComputeQueue = 65536;
constexpr std::size_t kStorageQueue = 65536;

Result<crypto::SigningKey> PeerKey(const std::string& dir) {
  const std::string path = dir + "/keys/peer";
  auto key = crypto::SigningKey::Load(path);
  if (key || key.error().code != Code::kNotFound) return key;
  const crypto::SigningKey made = crypto::SigningKey::Generate();
  LOOM_RETURN_IF_ERROR(made.Save(path));
  return made;
}

store::FileSystem& Disk() {
  static store::PosixFileSystem disk;
  return disk;
}

}  // namespace

Result<std::unique_ptr<Node>> Node::Open(NodeOptions options) {
  LOOM_ASSIGN(store::PeerFolder folder,
              store::PeerFolder::Open(
                  Disk(), options.dir,
                  {.pid = ::getpid(), .keep_checkpoints = options.local.keep_checkpoints}));
  LOOM_RETURN_IF_ERROR(Disk().MakeDirs(options.dir + "/keys", store::Access::kPrivate));
  LOOM_ASSIGN(crypto::SigningKey key, PeerKey(options.dir));
  if (const auto id = folder.ReadKey("peer-id")) {  // a damaged key must not pass for a stranger's
    if (std::string(AsText(*id)) != key.id().Hex()) {
      return MakeError(
          Code::kCorrupt,
          fmt::format("{}/keys/peer is the key of {}, this folder is {}'s", options.dir,
                      key.id().Short(), std::string(AsText(*id)).substr(0, 8)),
          "bring back a copy of keys/peer, or join anew with an empty folder");
    }
  } else {
    const std::string hex = key.id().Hex();
    LOOM_RETURN_IF_ERROR(folder.WriteKey("peer-id", AsBytes(hex)));
  }
  if (!options.invite_token.empty()) {
    LOOM_RETURN_IF_ERROR(folder.WriteKey("invite", AsBytes(options.invite_token)));
  } else if (const auto kept = folder.ReadKey("invite")) {  // killed before it was listed, say
    options.invite_token = std::string(AsText(*kept));
  }
  std::unique_ptr<Node> node(new Node(std::move(options), std::move(folder), std::move(key)));
  for (const std::string& note : node->folder_.notes()) Log(LogLevel::kWarn, "folder", "{}", note);
  if (node->folder_.has_run()) {
    LOOM_ASSIGN(node->run_, ReadRun(node->folder_.genesis()));
    if (node->options_.invite && node->options_.invite->run != node->run_->id) {
      return MakeError(
          Code::kConflict,
          fmt::format("{} belongs to run {}, the invite is for run {}", node->options_.dir,
                      node->run_->id.Short(), node->options_.invite->run.Short()),
          "give another --dir");
    }
  }
  return node;
}

Node::Node(NodeOptions options, store::PeerFolder folder, crypto::SigningKey key)
    : options_(std::move(options)),
      folder_(std::move(folder)),
      key_(std::move(key)),
      signer_(key_),
      directory_(key_.id(), 1) {}

Node::~Node() {
  if (compute_) compute_->Finish();
  if (storage_) storage_->Finish();
}

Status Node::Host(const train::RunFile& file, const std::string& name) {
  bool made = false;
  const std::string owner_path = OwnerKeyPath();
  LOOM_ASSIGN(const crypto::SigningKey owner, LoadOrMakeKey(owner_path, &made));
  if (made)
    Say(fmt::format("Made your owner key at {}. Keep a copy: it signs runs and invites.",
                    owner_path));
  LOOM_ASSIGN(run_,
              MakeRun(file, options_.dir, name, owner, key_.public_key(), reactor_.WallSeconds()));
  return folder_.SetGenesis(run_->genesis.Encode());
}

void Node::BuildTransport(const RunId& run) {
  net::TransportOptions transport;
  transport.run = run;
  transport.generation = 1;
  transport.version = "loom 0.1";
  if (!options_.local.announce.empty()) transport.announce = {options_.local.announce};
  transport.total = {options_.local.max_up, options_.local.max_down};
  transport.control_caps = {64U << 20, {}};
  transport.bulk_caps = {8U << 20, {}};
  transport.control_queue = 256U << 20;
  transport.hello = ToBytes(AsBytes(options_.invite_token));
  transport_ = std::make_unique<net::Transport>(reactor_, key_, std::move(transport), *this);
  transport_->SetAdmitHello([this](const net::PeerInfo& peer) { return AdmitPeer(peer); });
}

// The port is chosen once and kept, so that invites and the others' address books stay right.
Result<std::vector<std::uint16_t>> Node::Listen() {
  if (!transport_) BuildTransport(run_ ? run_->id : options_.invite->run);
  if (options_.listen.empty()) return std::vector<std::uint16_t>{};
  std::vector<std::string> kept = options_.listen;
  if (const auto port = folder_.ReadKey("port")) {
    for (std::string& address : kept) {
      if (address.ends_with(":0"))
        address = address.substr(0, address.size() - 1) + std::string(AsText(*port));
    }
  }
  auto bound = transport_->Listen(kept);
  if (!bound && kept != options_.listen) bound = transport_->Listen(options_.listen);
  if (!bound) return std::move(bound).error();
  ports_ = *bound;
  const std::string port = std::to_string(ports_[0]);
  LOOM_RETURN_IF_ERROR(folder_.WriteKey("port", AsBytes(port)));
  return ports_;
}

std::vector<std::string> Node::OwnAddresses() const {
  std::vector<std::string> out;
  const auto add = [&](std::string host, std::uint16_t port) {
    const std::string text = swarm::Address{std::move(host), port}.ToString();
    if (out.size() < swarm::kMaxInviteAddresses &&
        std::find(out.begin(), out.end(), text) == out.end()) {
      out.push_back(text);
    }
  };
  if (!options_.local.announce.empty()) out.push_back(options_.local.announce);
  for (std::size_t i = 0; i < options_.listen.size() && i < ports_.size(); ++i) {
    const auto address = swarm::ParseAddress(options_.listen[i], true);
    const bool every = !address || address->host == "0.0.0.0" || address->host == "::";
    if (!every) {
      add(address->host, ports_[i]);
      continue;
    }
    for (const std::string& host : InterfaceAddresses()) add(host, ports_[i]);
  }
  return out;
}

Result<NodeEnd> Node::Live() {
  began_ = reactor_.Now();
  if (!transport_) LOOM_RETURN_IF_ERROR(Listen());
  compute_ = std::make_unique<WorkerThread>(kComputeQueue);
  storage_ = std::make_unique<WorkerThread>(kStorageQueue);
  auto control = net::ControlServer::Listen(
      reactor_, folder_.control_socket_path(),
      [this](const std::string& request, const net::ControlServer::Reply& reply) {
        OnControl(request, reply);
      });
  if (control) {
    control_ = std::move(*control);
  } else {
    Log(LogLevel::kWarn, "control", "{}", control.error().ToString());
  }
  if (options_.invite) {
    for (const swarm::InviteAddress& a : options_.invite->addresses) {
      directory_.Learn(a.peer, a.address, swarm::AddressSource::kInvite);
    }
  }
  if (!options_.invite && !options_.invite_token.empty()) {  // of the first start, kept
    if (const auto invite = swarm::ParseInvite(options_.invite_token)) {
      for (const swarm::InviteAddress& address : invite->addresses) {
        directory_.Learn(address.peer, address.address, swarm::AddressSource::kInvite);
      }
    }
  }
  if (auto saved = folder_.ReadKey("addresses")) {
    if (auto told = DecodeNodeMessage(kFirstNodeType + 4, *saved)) {
      for (const auto& e : std::get<Addresses>(*told).entries) {
        directory_.Learn(e.peer, e.address, swarm::AddressSource::kInvite);
      }
    }
  }
  reactor_.Post([this] { BeginBootstrap(); });
  reactor_.SetTimer(reactor_.Now(), [this] { Tick(); });
  reactor_.Run();
  control_.reset();
  transport_.reset();
  compute_->Finish();
  storage_->Finish();
  return end_.value_or(
      NodeEnd{collab::PeerState::kFailed, "ended without a reason", Code::kInternal});
}

void Node::Interrupt() { interrupted_.store(true); }

void Node::Tick() {
  const Time now = reactor_.Now();
  if (stopping_) return;
  if (interrupted_.load() && !interrupt_seen_) {
    interrupt_seen_ = true;
    // Leaving must not strand the others: fewer than a quorum would stay, so only stop (design §9).
    if (peer_ && peer_->chain().head().body.members.size() > 2 &&
        peer_->View(now).waits_for.empty()) {
      Say("Stopping: leaving the run first.");
      collab::Effects effects;
      peer_->Leave(now, effects);
      Carry(std::move(effects));
    } else {
      Stop({collab::PeerState::kStopped,
            "stopped by its user; the folder resumes with: loom join --dir " + options_.dir});
    }
  }
  DialDue();
  if (peer_) {
    collab::Effects effects;
    peer_->OnTick(now, effects);
    Carry(std::move(effects));
    if (peer_->state() == collab::PeerState::kStopped ||
        peer_->state() == collab::PeerState::kFailed) {
      Stop({peer_->state(), peer_->View(now).reason});
    }
  } else {
    BootstrapTick();
  }
  if (now - last_status_ > 500ms) WriteStatus();
  if (!stopping_) reactor_.SetTimer(now + 100ms, [this] { Tick(); });
}

void Node::DialDue() {
  for (const auto& candidate : directory_.Due(reactor_.Now(), 4)) {
    const std::string text = candidate.address.ToString();
    dialling_[text] = candidate.address;
    std::optional<PeerId> expected;
    if (!candidate.peer.IsZero()) expected = candidate.peer;
    transport_->Dial(text, expected);
  }
}

// From here on nothing more is committed to, voted or told. A run that has finished leaves its last
// state as a checkpoint; in the middle of a run the inner state is already past the last record,
// and the regular checkpoint with the rounds since says more exactly where to go on.
void Node::Stop(NodeEnd end) {
  if (stopping_) return;
  stopping_ = true;
  for (auto& [job, cut] : running_work_) cut->store(true);
  const auto finish = [this, end] {
    end_ = end;
    WriteStatus();
    Event({{"event", json::Value("done")},
           {"state", json::Value(std::string(collab::PeerStateName(end.state)))},
           {"reason", json::Value(end.reason)}});
    for (const PeerId& p : transport_->Peers()) transport_->Disconnect(p, "this peer stops");
    reactor_.SetTimer(reactor_.Now() + 50ms, [this] { reactor_.Stop(); });
  };
  const bool finished = peer_ && engine_ && run_->spec.sync.rounds > 0 &&
                        peer_->applied().body.round >= run_->spec.sync.rounds;
  if (!finished || end.state == collab::PeerState::kFailed) {
    finish();
    return;
  }
  const collab::Record& record = peer_->applied();
  const collab::CheckpointJob job{record.body.round, record.hash, record.body.root};
  const bool posted = compute_->Post([this, job, finish] {
    // A step already taken beyond `record` shows in the root, and then there is nothing to save.
    if (engine_->Root() == job.root) {
      if (const auto saved = disk_->Checkpoint(job, *engine_); !saved) {
        Log(LogLevel::kError, "checkpoint", "{}", saved.error().ToString());
      }
    }
    reactor_.Post(finish);
  });
  if (!posted) finish();
}

void Node::OnControl(const std::string& request, const net::ControlServer::Reply& reply) {
  const auto answer = [&](json::Object object) {
    reply(json::Dump(json::Value(std::move(object))));
  };
  const auto fail = [&](const Error& error) {
    answer({{"ok", json::Value(false)},
            {"code", json::Value(std::string(CodeName(error.code)))},
            {"error", json::Value(error.ToString())}});
  };
  auto parsed = json::Parse(request);
  if (!parsed || parsed->AsObject() == nullptr) {
    fail(MakeError(Code::kInvalid, "the request is not a JSON object"));
    return;
  }
  const json::Value* verb = parsed->Find("verb");
  const std::string name = verb != nullptr && verb->AsString() != nullptr ? *verb->AsString() : "";
  const auto number = [&](const char* key, std::int64_t otherwise) {
    const json::Value* v = parsed->Find(key);
    const std::uint64_t* n = v != nullptr ? v->AsUnsigned() : nullptr;
    return n != nullptr ? static_cast<std::int64_t>(std::min<std::uint64_t>(*n, INT64_MAX / 2))
                        : otherwise;
  };
  const Time now = reactor_.Now();
  if (name == "status") {
    answer(StatusJson());
    return;
  }
  if (!peer_) {
    fail(MakeError(Code::kConflict, "this peer is still starting", "try again in a moment"));
    return;
  }
  collab::Effects effects;
  if (name == "invite") {
    auto invite = MakeInvite(
        number("seconds", 7 * 24 * 3600),
        static_cast<std::uint32_t>(std::clamp<std::int64_t>(number("uses", 16), 1, 100000)));
    if (!invite) {
      fail(invite.error());
    } else {
      answer({{"ok", json::Value(true)}, {"invite", json::Value(*invite)}});
    }
    return;
  }
  if (name == "pause" || name == "resume") {
    peer_->Pause(name == "pause", now, effects);
  } else if (name == "leave") {
    peer_->Leave(now, effects);
  } else if (name == "finish") {
    finish_after_round_ = true;
  } else {
    fail(MakeError(Code::kInvalid, fmt::format("unknown request '{}'", name)));
    return;
  }
  Carry(std::move(effects));
  answer({{"ok", json::Value(true)},
          {"state", json::Value(std::string(collab::PeerStateName(peer_->state())))}});
}

void Node::OnPeerUp(const net::PeerInfo& info) {
  if (stopping_) return;
  reached_ = true;
  up_.insert(info.id);
  std::vector<std::string> texts = info.announced;
  if (info.listen_port != 0) {
    const auto colon = info.address.rfind(':');
    if (colon != std::string::npos)
      texts.push_back(info.address.substr(0, colon + 1) + std::to_string(info.listen_port));
  }
  for (const std::string& text : texts) {
    if (auto address = swarm::ParseAddress(text)) {
      directory_.Learn(info.id, *address, swarm::AddressSource::kPeer);
      if (known_address_.emplace(info.id, *address).second) SaveAddresses();
    }
  }
  for (const auto& [text, address] : dialling_) {
    if (info.dialled_by_us && text == info.address) directory_.Connected(address, info.id);
  }
  const auto known = known_address_.find(info.id);
  if (known != known_address_.end()) directory_.Connected(known->second, info.id);
  Addresses told;
  for (const auto& [peer, address] : known_address_) {
    if (peer != info.id && told.entries.size() < kMaxToldAddresses)
      told.entries.push_back({peer, address});
  }
  if (!told.entries.empty()) SendNode(info.id, told);
  if (known != known_address_.end()) {  // and the others hear of the newcomer
    for (const PeerId& other : up_) {
      if (other != info.id) SendNode(other, Addresses{{{info.id, known->second}}});
    }
  }
  Event({{"event", json::Value("connected")},
         {"peer", json::Value(info.id.Hex())},
         {"address", json::Value(info.address)}});
  if (peer_) {
    collab::Effects effects;
    peer_->OnPeerUp(info.id, reactor_.Now(), effects);
    Carry(std::move(effects));
  } else {
    BeginBootstrap();
  }
}

void Node::OnPeerDown(const PeerId& peer, net::DownReason reason, const std::string& detail) {
  up_.erase(peer);
  directory_.Closed(peer, reactor_.Now());
  const bool refused = reason == net::DownReason::kRefusedRedial;
  Log(LogLevel::kDebug, "net", "{} is down: {} {}", peer.Short(), net::DownReasonName(reason),
      detail);
  Event({{"event", json::Value("disconnected")},
         {"peer", json::Value(peer.Hex())},
         {"gone", json::Value(refused)},
         {"reason",
          json::Value(detail.empty() ? std::string(net::DownReasonName(reason)) : detail)}});
  if (data_fetcher_) CarryDataFetch(data_fetcher_->RemoveDonor(peer, reactor_.Now()));
  if (!peer_ || stopping_) return;
  collab::Effects effects;
  peer_->OnPeerDown(peer, refused, reactor_.Now(), effects);
  Carry(std::move(effects));
}

void Node::OnFrame(const PeerId& peer, net::Channel, net::Frame frame) {
  if (stopping_) return;
  if (IsNodeType(frame.type)) {
    auto message = DecodeNodeMessage(frame.type, *frame.payload);
    if (!message) {
      transport_->Disconnect(peer, message.error().message);
      return;
    }
    OnNodeMessage(peer, std::move(*message));
    return;
  }
  auto message = collab::DecodeMessage(frame.type, *frame.payload);
  if (!message) {
    Log(LogLevel::kWarn, "net", "{} sent a bad message: {}", peer.Short(), message.error().message);
    transport_->Disconnect(peer, message.error().message);
    return;
  }
  if (data_fetcher_) OnBootstrapObject(peer, *message);
  if (!peer_) {  // still starting: say so, instead of letting the other wait
    if (const auto* get = std::get_if<swarm::GetObjects>(&*message)) {
      SendCore(peer, swarm::NotHere{get->ids, true});
    }
  }
  if (!peer_ || stopping_) return;
  collab::Effects effects;
  peer_->OnMessage(peer, std::move(*message), reactor_.Now(), effects);
  Carry(std::move(effects));
}

void Node::OnPeerSilent(const PeerId& peer) {
  if (!peer_ || stopping_) return;
  collab::Effects effects;
  peer_->OnPeerSilent(peer, true, reactor_.Now(), effects);
  Carry(std::move(effects));
}

void Node::OnPeerHeard(const PeerId& peer) {
  if (!peer_ || stopping_) return;
  collab::Effects effects;
  peer_->OnPeerSilent(peer, false, reactor_.Now(), effects);
  Carry(std::move(effects));
}

void Node::OnDialFailed(const std::string& address, net::DialStep step, const Error& error) {
  const auto it = dialling_.find(address);
  if (it != dialling_.end()) {
    directory_.Failed(it->second, reactor_.Now());
    dialling_.erase(it);
  }
  Log(LogLevel::kDebug, "net", "{}: {} failed: {}", address, net::DialStepName(step),
      error.message);
  if (!reached_ && reach_failures_.size() < 64) {
    reach_failures_.push_back(
        fmt::format("{}: {}: {}", address, net::DialStepName(step), error.message));
  }
  // A member that says no to the invite will say it again: no need to wait for the others' silence.
  if (!reached_ && !peer_ && step == net::DialStep::kHello && error.code == Code::kRefused) {
    Stop({collab::PeerState::kFailed,
          fmt::format("{} refused this peer: {}", address, error.message)});
  }
}

void Node::OnRefused(const std::string& remote, const std::string& text) {
  Log(LogLevel::kDebug, "net", "{}: {}", remote, text);
}

void Node::OnSendSpace(const PeerId&, net::Channel) {}

}  // namespace loom::node
