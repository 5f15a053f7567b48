// The life of a node: opening, listening, dialling, the tick, the end.
#include "node/node.h"

#include <unistd.h>

#include <algorithm>

#include "base/human.h"
#include "base/log.h"
#include "net/hello.h"
#include "node/compute.h"
#include "node/owner_key.h"
#include "train/evaluate.h"
#include "train/plan.h"

namespace loom::node {
namespace {

constexpr std::size_t kComputeQueue = 65536;
constexpr std::size_t kStorageQueue = 65536;
constexpr std::size_t kSavingQueue = 16;

constexpr std::string_view kKeyHint =
    "bring back a copy of keys/peer, or join anew with an empty folder";

constexpr std::uint64_t kLeastCap = 16'000;  ///< bytes a second

Result<crypto::SigningKey> PeerKey(const std::string& dir, bool had_one) {
  const std::string path = dir + "/keys/peer";
  auto key = crypto::SigningKey::Load(path);
  if (!key && key.error().code == Code::kInvalid) {
    return MakeError(Code::kCorrupt, key.error().message, std::string(kKeyHint));
  }
  if (key || key.error().code != Code::kNotFound) return key;
  if (had_one) {
    return MakeError(Code::kCorrupt, fmt::format("{} is missing", path), std::string(kKeyHint));
  }
  const crypto::SigningKey made = crypto::SigningKey::Generate();
  LOOM_RETURN_IF_ERROR(made.Save(path));
  return made;
}

/// Whether `announce` is something that others can dial.
Status CheckAnnounce(const std::string& announce) {
  if (announce.empty()) return {};
  const auto address = swarm::ParseAddress(announce);
  if (!address) {
    return MakeError(Code::kInvalid, "announce: " + address.error().message, address.error().hint);
  }
  if (address->MeansSomething(true)) return {};
  return MakeError(
      Code::kInvalid,
      fmt::format("announce: nobody can dial {}: it stands for no single machine", announce),
      "give the name or address, with the port, under which others reach this one");
}

/// Whether a record of the folder's run lists this peer.
bool ListsPeer(store::PeerFolder& folder, const PeerId& id) {
  const auto lists = [&](ByteView encoded) {
    const auto record = collab::Record::Decode(encoded);
    return record && collab::IsMember(record->body.members, id);
  };
  if (!folder.has_run()) return false;
  if (lists(folder.genesis())) return true;
  for (std::uint64_t i = 0; i < folder.records().size(); ++i) {
    if (const auto entry = folder.records().Read(i); entry && lists(*entry)) return true;
  }
  return false;
}

/// keys/peer-id tells a damaged key, which must not pass for a stranger's. It is written again when
/// it is the damaged one: no other key than the right one is listed in the run.
Status CheckPeerId(store::PeerFolder& folder, const PeerId& id) {
  const std::string hex = id.Hex();
  const auto held = folder.ReadKey("peer-id");
  if (held && AsText(*held) == hex) return {};
  if (ListsPeer(folder, id)) {
    Log(LogLevel::kWarn, "folder", "{}/keys/peer-id was damaged or missing: written again",
        folder.path());
  } else if (held) {
    return MakeError(
        Code::kCorrupt,
        fmt::format(
            "{}/keys/peer is the key of {}, keys/peer-id says {:.80}: one of them is damaged",
            folder.path(), hex, net::CleanText(AsText(*held))),
        std::string(kKeyHint));
  }
  return folder.WriteKey("peer-id", AsBytes(hex));
}

}  // namespace

store::FileSystem& Disk() {
  static store::PosixFileSystem disk;
  return disk;
}

Result<std::unique_ptr<Node>> Node::Open(NodeOptions options) {
  for (const auto& [name, cap] :
       {std::pair("max_up", options.local.max_up), std::pair("max_down", options.local.max_down)}) {
    if (cap != 0 && cap < kLeastCap) {
      return MakeError(Code::kInvalid,
                       fmt::format("{} {} is less than {} bytes a second", name, cap, kLeastCap),
                       "greetings and heartbeats alone need that much");
    }
  }
  LOOM_RETURN_IF_ERROR(CheckAnnounce(options.local.announce));
  LOOM_RETURN_IF_ERROR(CheckDevice(options.local));
  LOOM_ASSIGN(store::PeerFolder folder,
              store::PeerFolder::Open(
                  Disk(), options.dir,
                  {.pid = ::getpid(), .keep_checkpoints = options.local.keep_checkpoints}));
  LOOM_RETURN_IF_ERROR(Disk().MakeDirs(options.dir + "/keys", store::Access::kPrivate));
  const bool had_id = folder.ReadKey("peer-id").ok();
  LOOM_ASSIGN(crypto::SigningKey key, PeerKey(options.dir, had_id || folder.has_run()));
  LOOM_RETURN_IF_ERROR(CheckPeerId(folder, key.id()));
  if (options.listen_as_before) {
    if (const auto kept = folder.ReadKey("listen")) {
      options.listen.clear();
      if (!kept->empty()) options.listen = {std::string(AsText(*kept))};
    }
  }
  if (const auto kept = folder.ReadKey("invite"); kept && options.invite_token.empty()) {
    options.invite_token = std::string(AsText(*kept));  // killed before it was listed, say
  }
  std::unique_ptr<Node> node(new Node(std::move(options), std::move(folder), std::move(key)));
  for (const std::string& note : node->folder_.notes()) Log(LogLevel::kWarn, "folder", "{}", note);
  if (const auto kept = node->folder_.ReadKey("delegation")) {
    if (auto delegation = DecodeDelegation(*kept)) node->delegation_ = *delegation;
  }
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
  if (saving_) saving_->Finish();
  if (storage_) storage_->Finish();
}

Status Node::Host(const train::RunFile& file, const std::string& name,
                  std::vector<crypto::PublicKey> co_owners) {
  bool made = false;
  const std::string owner_path = OwnerKeyPath();
  LOOM_ASSIGN(const crypto::SigningKey owner, LoadOrMakeKey(owner_path, &made));
  if (made)
    Say(
        fmt::format("Made your owner key at {}. Keep a copy (loom owner --backup FILE): it signs "
                    "runs and invites.",
                    owner_path));
  if (std::ranges::find(co_owners, owner.public_key()) != co_owners.end()) {
    return MakeError(Code::kInvalid,
                     fmt::format("--co-owner: {} is this user's own key ({})",
                                 owner.public_key().Hex(), owner_path),
                     "name the keys of the others only");
  }
  LOOM_ASSIGN(run_,
              MakeRun(file, options_.dir,
                      {name, owner, key_.public_key(), reactor_.WallSeconds(), std::move(co_owners),
                       [&](const train::RunSpec& spec) { return ProbeInThread(spec, file.local); },
                       [this](const data::DataReport& report) {
                         if (const std::string odd = report.Complaints(); !odd.empty())
                           Say("Corpus: " + odd + ".");
                       },
                       [this](std::string_view doing, std::uint64_t done, std::uint64_t total) {
                         if (options_.progress && total > 0) {
                           options_.progress(fmt::format("{} the corpus: {} % of {:.1f} MB", doing,
                                                         100 * done / total,
                                                         static_cast<double>(total) / 1e6));
                         }
                         return Status();
                       }}));
  return folder_.SetGenesis(run_->genesis.Encode());
}

void Node::BuildTransport(const RunId& run) {
  net::TransportOptions transport;
  transport.run = run;
  transport.generation = 1;
  transport.version = "loom 0.1";
  transport.features = kAnswersDialBack;
  transport.total = {options_.local.max_up, options_.local.max_down};
  transport.control_caps = {64U << 20, {}};
  transport.bulk_caps = {8U << 20, {}};
  transport.control_queue = 256U << 20;
  transport.bulk_queue = train::kLinkQueueBytes;  // the next of what waits in the outbox
  transport.hello = ToBytes(AsBytes(options_.invite_token));
  transport_ = std::make_unique<net::Transport>(reactor_, key_, std::move(transport), *this);
  transport_->SetAdmitHello([this](const net::PeerInfo& peer) { return AdmitPeer(peer); });
}

// What this start was told, for later ones; a start that fails before changes nothing.
Status Node::KeepChoices() {
  const std::string listen = options_.listen.empty() ? "" : options_.listen[0];
  LOOM_RETURN_IF_ERROR(folder_.WriteKey("listen", AsBytes(listen)));
  const std::string local = train::WriteLocal(options_.local);
  LOOM_RETURN_IF_ERROR(folder_.WriteKey(kLocalKey, AsBytes(local)));
  if (options_.invite_token.empty()) return {};
  return folder_.WriteKey("invite", AsBytes(options_.invite_token));
}

// The port is chosen once and kept, so that invites and the others' address books stay right.
Result<std::vector<std::uint16_t>> Node::Listen() {
  if (!transport_) BuildTransport(run_ ? run_->id : options_.invite->run);
  if (options_.listen.empty()) {
    LOOM_RETURN_IF_ERROR(KeepChoices());
    return std::vector<std::uint16_t>{};
  }
  std::vector<std::string> kept = options_.listen;
  if (const auto port = folder_.ReadKey("port")) {
    for (std::string& address : kept) {
      if (address.ends_with(":0"))
        address = address.substr(0, address.size() - 1) + std::string(AsText(*port));
    }
  }
  auto bound = transport_->Listen(kept);
  if (!bound && kept != options_.listen) {
    const std::string why = bound.error().message;
    bound = transport_->Listen(options_.listen);
    if (bound) {
      Say(
          fmt::format("The port of the last start is taken ({}). This peer listens on port {} now: "
                      "a router's forward or an earlier invite does not lead there.",
                      why, bound->front()));
    }
  }
  if (!bound) return std::move(bound).error();
  ports_ = *bound;
  const std::string port = std::to_string(ports_[0]);
  LOOM_RETURN_IF_ERROR(folder_.WriteKey("port", AsBytes(port)));
  LOOM_RETURN_IF_ERROR(KeepChoices());
  RefreshOwnAddresses(reactor_.Now());
  return ports_;
}

Result<NodeEnd> Node::Live() {
  alone_since_ = reactor_.Now();
  if (!transport_) LOOM_RETURN_IF_ERROR(Listen());
  compute_ = std::make_unique<WorkerThread>(kComputeQueue);
  storage_ = std::make_unique<WorkerThread>(kStorageQueue);
  saving_ = std::make_unique<WorkerThread>(kSavingQueue);
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
    LearnInvite(*options_.invite);
  }
  if (!options_.invite && !options_.invite_token.empty()) {  // of the first start, kept
    if (const auto invite = swarm::ParseInvite(options_.invite_token)) LearnInvite(*invite);
  }
  if (auto saved = folder_.ReadKey("addresses")) {
    if (auto told = DecodeNodeMessage(kFirstNodeType + 4, *saved)) {
      const auto& entries = std::get<Addresses>(*told).entries;
      for (std::size_t i = 0; i < entries.size(); ++i) {
        directory_.Learn(entries[i].peer, entries[i].address, swarm::AddressSource::kInvite, i);
      }
    }
  }
  reactor_.Post([this] { BeginBootstrap(); });
  reactor_.SetTimer(reactor_.Now(), [this] { Tick(); });
  reactor_.Run();
  control_.reset();
  transport_.reset();
  compute_->Finish();
  saving_->Finish();
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
    // Leaving must not strand the others: fewer than a quorum would stay, so only stop.
    if (peer_ && peer_->chain().head().body.members.size() > 2 &&
        peer_->View(now).waits_for.empty()) {
      Say("Stopping: leaving the run first.");
      Step([](collab::Peer& core, Time at, collab::Effects& out) { core.Leave(at, out); });
    } else {
      Stop({collab::PeerState::kStopped, "interrupted; go on with: " + ResumeCommand()});
    }
  }
  RefreshOwnAddresses(now);
  DialDue();
  ShowSearch(now);
  CheckupTick(now);
  if (peer_) {
    Step([](collab::Peer& core, Time at, collab::Effects& out) { core.OnTick(at, out); });
    if (peer_->state() == collab::PeerState::kStopped ||
        peer_->state() == collab::PeerState::kFailed) {
      const collab::PeerView view = peer_->View(now);
      Stop({view.state, view.reason, view.failure, view.hint});
    }
  } else {
    BootstrapTick();
  }
  if (now - last_status_ > 500ms) WriteStatus();
  if (!stopping_) reactor_.SetTimer(now + 100ms, [this] { Tick(); });
}

std::string Node::ResumeCommand() const {
  return options_.resume_with.empty() ? "loom join --dir " + ShellWord(options_.dir)
                                      : options_.resume_with;
}

void Node::DialDue() {
  constexpr std::size_t kAtOnce = 8;
  for (const auto& candidate : directory_.Due(reactor_.Now(), kAtOnce)) {
    const std::string text = candidate.address.ToString();
    dialling_[text] = candidate;
    reach_.Trying(text, candidate.peer);
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
  cut_restore_.store(true);
  for (auto& [job, cut] : running_work_) cut->store(true);
  const auto finish = [this](const NodeEnd& how, std::optional<model::LossSum> validation) {
    end_ = how;
    WriteStatus();
    json::Object done{{"event", json::Value("done")},
                      {"state", json::Value(std::string(collab::PeerStateName(how.state)))},
                      {"reason", json::Value(how.reason)}};
    if (validation) {
      const double loss = validation->nll / static_cast<double>(validation->tokens);
      done.emplace_back("val_loss", json::Value(loss));
      done.emplace_back("val_tokens", json::Value(validation->tokens));
      Say(fmt::format("Validation loss {:.4f} nats a token, over all {} tokens.", loss,
                      validation->tokens));
    }
    Event(std::move(done));
    for (const PeerId& p : transport_->Peers()) transport_->Disconnect(p, "this peer stops");
    reactor_.SetTimer(reactor_.Now() + 50ms, [this] { reactor_.Stop(); });
  };
  const bool finished =
      peer_ && engine_ && collab::Finished(peer_->applied().body, peer_->chain().config());
  if (!finished || end.state == collab::PeerState::kFailed) {
    finish(end, {});
    return;
  }
  const collab::Record& record = peer_->applied();
  const collab::CheckpointJob job{record.body.round, record.hash, record.body.root};
  end.finished = true;
  const bool posted = compute_->Post([this, job, end, finish] {
    AwaitSaved();
    // A step already taken beyond `record` shows in the root, and then there is nothing to save.
    if (engine_->Root() == job.root) {
      if (const auto saved = disk_->Checkpoint(job, *engine_); !saved) {
        Log(LogLevel::kError, "checkpoint", "{}", saved.error().ToString());
      }
    }
    std::optional<model::LossSum> validation;
    if (options_.final_loss && dataset_->val.size() >= 2) {
      reactor_.Post([this] {  // nobody shall wait for the rest
        for (const PeerId& p : transport_->Peers()) transport_->Disconnect(p, "this peer stops");
      });
      const auto progress = [this, begin = SystemClock().Now()](std::uint64_t done,
                                                                std::uint64_t total) {
        if (SystemClock().Now() - begin < 1s) return;
        ShowProgress(
            fmt::format("validation: {} % of {} tokens", 100 * done / total, HumanCount(total)));
      };
      const auto evaluate = [&]() -> Result<model::LossSum> {
        LOOM_ASSIGN(const train::FrozenWeights frozen, Frozen());
        return train::EvaluateLoss(run_->spec, options_.local, engine_->grid(), engine_->weights(),
                                   frozen, dataset_->val, interrupted_, progress);
      };
      if (const auto loss = evaluate()) {
        validation = *loss;
      } else {
        Log(LogLevel::kWarn, "validation", "{}", loss.error().ToString());
      }
    }
    reactor_.Post([finish, end, validation] { finish(end, validation); });
  });
  if (!posted) finish(end, {});
}

}  // namespace loom::node
