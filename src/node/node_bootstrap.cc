// From an invite to a running peer: the genesis record (checked against the run id that the invite
// pins), then the data files piece by piece from everybody connected, then the engine and the core.
#include <algorithm>

#include "base/file.h"
#include "base/human.h"
#include "base/log.h"
#include "model/config.h"
#include "node/compute.h"
#include "node/node.h"
#include "node/restore.h"
#include "node/run_start.h"
#include "tensor/runtime.h"
#include "train/trainer.h"

namespace loom::node {
namespace {

constexpr Duration kReachLimit = 20s;
constexpr Duration kStalled = 4s;
constexpr std::uint64_t kTrickle = 8192;  ///< bytes in that time that are more than heartbeats
constexpr Duration kAskAgain = 2s;  // a question can be lost with the connection that carried it

std::string DataPath(const std::string& dir) { return dir + "/" + std::string(kDataFolder); }

}  // namespace

void Node::BeginBootstrap() {
  if (peer_ || starting_peer_) return;
  if (!run_) {
    for (const PeerId& p : up_) SendNode(p, GetRun{});
    return;
  }
  FetchData();
}

void Node::OnNodeMessage(const PeerId& from, NodeMessage message) {
  if (std::holds_alternative<GetRun>(message)) {
    if (run_) SendNode(from, RunRecord{run_->genesis.Encode()});
  } else if (const auto* record = std::get_if<RunRecord>(&message)) {
    OnRunRecord(*record);
  } else if (const auto* get = std::get_if<GetPieces>(&message)) {
    const store::PieceList* list = data_ ? data_->ListOf(get->object) : nullptr;
    if (list != nullptr) SendNode(from, Pieces{get->object, *list});
  } else if (const auto* pieces = std::get_if<Pieces>(&message)) {
    if (!data_fetcher_ || wanted_lists_.contains(pieces->object)) return;
    const collab::ObjectRef told{pieces->object, pieces->list.size};
    if (std::ranges::find(missing_data_, told, &DataFile::ref) == missing_data_.end()) return;
    wanted_lists_.emplace(pieces->object, pieces->list);
    for (const DataFile& wanted : missing_data_) {  // two files may hold the same
      if (wanted.ref != told || !begun_files_.insert(wanted.name).second) continue;
      WriteData([name = wanted.name, list = pieces->list](DataWriter& writer) {
        return writer.Begin(name, list);
      });
    }
    std::vector<swarm::ObjectRef> refs;
    refs.reserve(pieces->list.pieces.size());
    for (std::size_t i = 0; i < pieces->list.pieces.size(); ++i) {
      refs.push_back(
          {pieces->list.pieces[i], static_cast<std::uint32_t>(pieces->list.PieceSize(i))});
    }
    auto effects = data_fetcher_->Want(
        refs, [this](const Hash& id) { return pieces_.contains(id); }, reactor_.Now());
    if (effects) CarryDataFetch(std::move(*effects));
  } else if (const auto* told = std::get_if<Addresses>(&message)) {
    OnAddresses(from, *told);
  } else if (const auto* delegate = std::get_if<Delegate>(&message)) {
    OnDelegation(delegate->delegation);
  } else if (std::holds_alternative<GetView>(message)) {
    const auto it = neighbours_.find(from);
    const bool known = it != neighbours_.end() && it->second.remote.has_value();
    SendNode(from, View{reactor_.WallSeconds(), known ? it->second.remote->ToString() : ""});
  } else if (const auto* view = std::get_if<View>(&message)) {
    OnView(from, *view);
  } else if (const auto* ask = std::get_if<DialBack>(&message)) {
    OnDialBack(from, *ask);
  } else if (const auto* back = std::get_if<DialedBack>(&message)) {
    OnDialedBack(from, *back);
  }
}

void Node::OnRunRecord(const RunRecord& record) {
  if (run_ || !options_.invite) return;
  auto run = ReadRun(record.record);
  if (!run) {
    Stop({collab::PeerState::kFailed, "the run's genesis record: " + run.error().ToString()});
    return;
  }
  if (run->id != options_.invite->run) {
    Log(LogLevel::kWarn, "join", "a peer sent the genesis of run {}, the invite says {}",
        run->id.Short(), options_.invite->run.Short());
    return;
  }
  if (const Status owned = swarm::CheckInviteAuthority(*options_.invite, run->content.owners);
      !owned) {
    Stop({collab::PeerState::kFailed, owned.error().ToString()});
    return;
  }
  run_ = std::move(*run);
  if (const Status kept = folder_.SetGenesis(record.record); !kept) {
    Stop({collab::PeerState::kFailed, kept.error().ToString(), kept.error().code});
    return;
  }
  Say(fmt::format("Joining run {} ({}).", run_->content.name, run_->id.Short()));
  FetchData();
}

void Node::FetchData() {
  if (finishing_data_) return;
  if (data_fetcher_ || starting_peer_ || peer_) {
    if (data_fetcher_) {
      for (const PeerId& p : up_) {
        CarryDataFetch(data_fetcher_->AddDonor(p, std::nullopt, reactor_.Now()));
        if (!data_fetcher_) return;
        for (const DataFile& f : missing_data_) {
          if (!wanted_lists_.contains(f.ref.id)) SendNode(p, GetPieces{f.ref.id});
        }
      }
    }
    return;
  }
  auto state = CheckData(*run_, options_.dir);
  if (state && !state->missing.empty() && source_) {
    const Status rebuilt = RebuildData(state->missing);
    if (rebuilt || options_.listen.empty()) {
      state = rebuilt ? CheckData(*run_, options_.dir) : rebuilt.error();
    } else {
      Log(LogLevel::kWarn, "folder", "{}", rebuilt.error().ToString());  // others may have it
    }
  }
  if (!state) {
    Stop({collab::PeerState::kFailed, state.error().ToString(), state.error().code});
    return;
  }
  missing_data_ = std::move(state->missing);
  if (missing_data_.empty()) {
    if (state->manifest_mended && !told_fetching_)  // a first fetch ends without one
      Log(LogLevel::kWarn, "folder", "{}/dataset.json was damaged or missing: written again",
          DataPath(options_.dir));
    data_.emplace(*run_, options_.dir, std::move(state->here));
    StartPeer();
    return;
  }
  std::uint64_t bytes = 0;
  for (const DataFile& f : missing_data_) bytes += f.ref.size;
  if (!std::exchange(told_fetching_, true)) {
    Say(fmt::format("Fetching {} data files, {:.1f} MB.", missing_data_.size(),
                    static_cast<double>(bytes) / 1e6));
  }
  data_progress_ = reactor_.Now();
  data_fetcher_ = std::make_unique<swarm::Fetcher>(swarm::FetchOptions{});
  if (!data_writer_) data_writer_ = std::make_shared<DataWriter>(Disk(), options_.dir);
  FetchData();
}

Status Node::RebuildData(const std::vector<DataFile>& missing) {
  const train::RunFile source = *std::exchange(source_, std::nullopt);
  LOOM_ASSIGN(const std::vector<std::string> rebuilt,
              node::RebuildData(missing, source, options_.dir));
  for (const std::string& path : rebuilt)
    Log(LogLevel::kWarn, "folder", "{} was damaged or missing: made again", path);
  return {};
}

void Node::OnBootstrapObject(const PeerId& from, const collab::Message& message) {
  const Time now = reactor_.Now();
  if (const auto* data = std::get_if<swarm::ObjectData>(&message)) {
    CarryDataFetch(data_fetcher_->OnData(from, *data, now));
  } else if (const auto* none = std::get_if<swarm::NotHere>(&message)) {
    CarryDataFetch(data_fetcher_->OnNotHere(from, *none, now));
  }
}

void Node::CarryDataFetch(swarm::Fetcher::Effects effects) {
  for (auto& effect : effects) {
    if (auto* get = std::get_if<swarm::SendGet>(&effect)) {
      SendCore(get->to, std::move(get->message));
    } else if (const auto* object = std::get_if<swarm::StoreObject>(&effect)) {
      pieces_.insert(object->id);
      data_progress_ = reactor_.Now();
      WriteData([id = object->id, bytes = object->bytes](DataWriter& writer) {
        return writer.Write(id, *bytes);
      });
    } else if (const auto* blame = std::get_if<swarm::BlameDonor>(&effect)) {
      Log(LogLevel::kWarn, "join", "{} sent wrong bytes: {}", blame->donor.Short(), blame->reason);
    }
  }
  const auto known = [&](const DataFile& f) { return wanted_lists_.contains(f.ref.id); };
  if (data_fetcher_ && data_fetcher_->done() && std::ranges::all_of(missing_data_, known))
    FinishDataFetch();
}

void Node::ShowDataProgress(Time now) {
  constexpr Duration kEvery = 2s;
  const swarm::FetchProgress progress = data_fetcher_->Progress(now);
  if (!options_.progress || now - data_shown_ < kEvery || progress.bytes_total == 0) return;
  data_shown_ = now;
  options_.progress(fmt::format("fetching the data: {} % of {:.1f} MB, {:.0f} kB/s",
                                100 * progress.bytes_done / progress.bytes_total,
                                static_cast<double>(progress.bytes_total) / 1e6,
                                progress.bytes_per_second / 1e3));
}

void Node::FinishDataFetch() {
  data_fetcher_.reset();
  finishing_data_ = true;
  WriteData([](DataWriter& writer) { return writer.Finish(); },
            [this] {
              finishing_data_ = false;
              data_writer_.reset();
              begun_files_.clear();
              pieces_.clear();
              wanted_lists_.clear();
              FetchData();
            });
}

void Node::WriteData(std::function<Status(DataWriter&)> what, std::function<void()> then) {
  const bool posted =
      storage_->Post([this, writer = data_writer_, what = std::move(what), then = std::move(then)] {
        const Status done = what(*writer);
        if (done && !then) return;
        reactor_.Post([this, done, then] {
          if (!done) {
            Stop({collab::PeerState::kFailed, done.error().ToString(), done.error().code});
          } else if (!stopping_) {
            then();
          }
        });
      });
  if (!posted) Stop({collab::PeerState::kFailed, "the storage thread does not keep up"});
}

// The engine is made and the folder replayed on the compute thread; the reactor goes on meanwhile.
void Node::StartPeer() {
  if (starting_peer_ || peer_) return;
  starting_peer_ = true;
  const bool posted = compute_->Post([this] {
    const auto make = [this]() -> Result<collab::PeerRestore> {
      const train::RunSpec& spec = run_->spec;
      AwaitSaved();
      engine_.reset();  // of before new settings: never two of them at once
      LOOM_RETURN_IF_ERROR(CheckMemory(spec, options_.local));
      LOOM_RETURN_IF_ERROR(ConfigureCompute(spec, options_.local));
      LOOM_RETURN_IF_ERROR(CheckKernels(*run_, options_.local));
      LOOM_ASSIGN(settings_, SettingsOf(folder_, *run_));
      LOOM_ASSIGN(dataset_, data::OpenDataset(DataPath(options_.dir)));
      LOOM_ASSIGN(agreed::TileGrid grid, agreed::TileGrid::Make(model::ParameterShapes(spec.model),
                                                                spec.sync.tile_elements));
      LOOM_ASSIGN(const codec::CodecKind codec, codec::ParseCodec(spec.sync.codec));
      LOOM_ASSIGN(const agreed::Isa isa, agreed::ParseIsa(options_.isa));
      layout_ = std::make_unique<collab::TileLayout>(grid, spec.sync, *codec::MakeCodec(codec));
      // The trainer is made at the first work: a peer that only relays or waits needs none.
      auto shared = std::make_shared<std::shared_ptr<train::StepEngine>>();
      const auto factory = [this, shared](WorkerIndex) -> Result<std::unique_ptr<collab::Worker>> {
        if (*shared == nullptr) {
          LOOM_ASSIGN(const train::FrozenWeights frozen, Frozen());
          LOOM_ASSIGN(auto made, train::StepEngine::Make(settings_, options_.local, dataset_->train,
                                                         dataset_->mix, frozen));
          *shared = std::move(made);
        }
        LOOM_ASSIGN(auto worker, train::TrainWorker::Make(*shared));
        return std::unique_ptr<collab::Worker>(std::move(worker));
      };
      LOOM_ASSIGN(collab::Engine engine,
                  collab::Engine::Make(std::move(grid), spec.sync, codec, isa, factory));
      engine_ = std::make_unique<collab::Engine>(std::move(engine));
      engine_->LendCores(free_cores_.AsParallelFor());
      disk_ = std::make_unique<DiskExecutor>(folder_, engine_->grid(), *layout_);
      runner_ = std::make_unique<JobRunner>(*engine_);
      const auto first_weights = [this](std::span<float> w) {
        return ReadFirstWeights(*run_, options_.dir, engine_->grid(), w);
      };
      const auto progress = [this, begin = SystemClock().Now()](Round round, Round last,
                                                                bool again) {
        if (!again && SystemClock().Now() - begin < 1s) return;
        ShowProgress(fmt::format("restoring the state: round {} of {}{}", round, last,
                                 again ? ", worked out again" : ""));
      };
      const RestoreContext context{run_->genesis, key_.id(),     spec.sync, signer_,
                                   ReadAmendment, first_weights, progress,  &cut_restore_};
      LOOM_ASSIGN(Restored restored, RestorePeer(folder_, *engine_, context));
      disk_->Know(restored.peer.records);
      for (const std::string& note : restored.notes) Log(LogLevel::kWarn, "restore", "{}", note);
      return std::move(restored.peer);
    };
    auto shared_result = std::make_shared<Result<collab::PeerRestore>>(make());
    reactor_.Post([this, shared_result] { PeerRestored(std::move(*shared_result)); });
  });
  if (!posted) Stop({collab::PeerState::kFailed, "the compute queue is full"});
}

Result<train::FrozenWeights> Node::Frozen() {
  if (frozen_ == nullptr) {
    LOOM_ASSIGN(frozen_, ReadFrozenWeights(*run_, options_.dir));
  }
  return frozen_;
}

void Node::ShowProgress(std::string line) {
  if (!options_.progress) return;
  reactor_.Post([this, line = std::move(line)] { options_.progress(line); });
}

// Behind all writes of the old core, and on the compute thread behind all its jobs.
void Node::ReloadPeer() {
  if (stopping_ || !peer_) return;
  told_ = peer_->told();
  peer_.reset();
  ++core_life_;
  running_work_.clear();
  starting_peer_ = false;
  const bool posted = storage_->Post([this] { reactor_.Post([this] { StartPeer(); }); });
  if (!posted) Stop({collab::PeerState::kFailed, "the storage thread does not keep up"});
}

void Node::PeerRestored(Result<collab::PeerRestore> restored) {
  if (!restored) {
    Stop({collab::PeerState::kFailed, restored.error().ToString(), restored.error().code});
    return;
  }
  collab::PeerOptions options;
  options.config = run_->spec.sync;
  options.read_settings = ReadAmendment;
  options.key = key_.public_key();
  options.invite = options_.invite_token;
  options.session = static_cast<std::uint64_t>(reactor_.WallSeconds()) * 1'000'000;
  options.checkpoint_every = options_.local.checkpoint_every;
  options.keep_checkpoints = options_.local.keep_checkpoints;
  Hash seed_hash;
  crypto::RandomBytes(seed_hash.bytes);
  std::memcpy(&options.seed, seed_hash.bytes.data(), sizeof options.seed);
  peer_ = std::make_unique<collab::Peer>(
      options, *layout_, signer_, run_->genesis, std::move(*restored),
      [this](const collab::JoinAsk& ask, const collab::Chain& chain) {
        return CheckInvite(ask.invite, chain);
      });
  round_started_ = reactor_.Now();
  collab::Effects effects;
  peer_->Start(reactor_.Now(), effects);
  const Round head = peer_->chain().rounds();
  const bool finished = collab::Finished(peer_->chain().head().body, peer_->chain().config());
  if (core_life_ == 0 && head > 0 && !finished && !stopping_)
    Say(fmt::format("Going on after round {}.", head));
  tokens_reported_ = peer_->applied().body.tokens;
  for (const PeerId& p : up_) peer_->OnPeerUp(p, reactor_.Now(), effects);
  peer_->TellAgain(std::exchange(told_, {}), reactor_.Now(), effects);
  Carry(std::move(effects));
}

// A joiner that reaches nobody says which address failed at which step, and gives up (20 s).
void Node::BootstrapTick() {
  const Time now = reactor_.Now();
  if (now - asked_ > kAskAgain && !up_.empty() && !starting_peer_) {
    asked_ = now;
    if (!run_) {
      for (const PeerId& p : up_) SendNode(p, GetRun{});
    }
    for (const DataFile& f : missing_data_) {
      if (!data_fetcher_ || wanted_lists_.contains(f.ref.id)) continue;
      for (const PeerId& p : up_) SendNode(p, GetPieces{f.ref.id});
    }
  }
  if (data_fetcher_) {
    CarryDataFetch(data_fetcher_->Tick(now));
    if (!data_fetcher_) return;
    ShowDataProgress(now);
    // A piece takes long over a slow link: bytes that come in are progress, too.
    const std::uint64_t read = transport_->Stats().read;
    if (read - data_bytes_seen_ >= kTrickle) {
      data_bytes_seen_ = read;
      data_progress_ = now;
    }
    if (now - data_progress_ < kStalled) return;
    if (up_.empty()) {
      if (!std::exchange(told_lack_, true)) Say("Waiting: " + LackOfData() + ".");
      return;
    }
    // Whoever let a request time out, or was still starting, is asked again from the beginning;
    // every second time over a new connection. What has arrived is kept.
    data_progress_ = now;
    data_fetcher_.reset();
    wanted_lists_.clear();
    if (++data_restarts_ % 2 == 0) {
      const std::set<PeerId> up = up_;
      for (const PeerId& p : up) transport_->Disconnect(p, "its answers do not arrive");
    }
    FetchData();
    return;
  }
  if (!up_.empty() || run_ || now - alone_since_ < kReachLimit - 1s) return;
  Event({{"event", json::Value("unreachable")}, {"tried", json::Value(reach_.Json())}});
  Stop({collab::PeerState::kFailed,
        fmt::format("reached nobody of the run in {:.0f} s; tried {}:{}", Seconds(kReachLimit),
                    Counted(reach_.tried(), "address", "addresses"), reach_.Text()),
        Code::kUnreachable,
        "a member must run and be reachable at one of these addresses; a newer invite may have "
        "others"});
}

}  // namespace loom::node
