#include "sim/lone_run.h"

#include <algorithm>
#include <deque>
#include <memory>

#include "agreed/random.h"
#include "agreed/state.h"
#include "collab/chain.h"
#include "crypto/hash.h"

namespace loom::sim {
namespace {

constexpr std::uint32_t kNoLimit = UINT32_MAX;
/// A round takes a few ticks; who needs so many without a commit is stuck.
constexpr std::uint32_t kMostTicks = 4000;
/// What a round's work always takes, so that the records of two runs are equal, too.
constexpr std::uint32_t kMillis = 1000;

crypto::PublicKey LoneKey() {
  crypto::PublicKey key;
  key.bytes = crypto::Sha256(AsBytes("sim lone peer")).bytes;
  return key;
}

}  // namespace

bool LoneLife::Names(std::string_view text) const {
  return error.find(text) != std::string::npos ||
         std::ranges::any_of(
             told, [&](const std::string& line) { return line.find(text) != std::string::npos; });
}

/// The process: made anew by every life and by every Reload.
class LoneRun::Process {
 public:
  Process(const LoneRun& run, LoneLife& life) : run_(run), life_(life) {}

  Status Start(store::SimFileSystem& disk, Time now) {
    LOOM_ASSIGN(store::PeerFolder folder,
                store::PeerFolder::Open(disk, kFolder, {.pid = 1, .keep_checkpoints = 2}));
    folder_.emplace(std::move(folder));
    LOOM_RETURN_IF_ERROR(folder_->SetGenesis(run_.genesis_.Encode()));
    const LoneOptions& options = run_.options_;
    LOOM_ASSIGN(
        collab::Engine engine,
        collab::Engine::Make(run_.grid_, options.config, options.codec, agreed::BestIsa(),
                             [this](WorkerIndex) -> Result<std::unique_ptr<collab::Worker>> {
                               return std::unique_ptr<collab::Worker>(std::make_unique<PlainWorker>(
                                   run_.grid_, run_.options_.model, &kNoLimit));
                             }));
    engine_ = std::make_unique<collab::Engine>(std::move(engine));
    disk_.emplace(*folder_, run_.grid_, engine_->layout());
    runner_.emplace(*engine_);
    const PeerId self = crypto::PeerIdOf(run_.key_);
    const auto first_weights = [this](std::span<float> weights) {
      std::ranges::copy(run_.first_weights_, weights.begin());
      return Status{};
    };
    LOOM_ASSIGN(
        node::Restored restored,
        node::RestorePeer(*folder_, *engine_,
                          {run_.genesis_, self, options.config, run_.signer_, {}, first_weights}));
    life_.told.insert(life_.told.end(), restored.notes.begin(), restored.notes.end());
    life_.restored = restored.state;
    disk_->Know(restored.peer.records);
    collab::PeerOptions peer;
    peer.config = options.config;
    peer.key = run_.key_;
    peer.checkpoint_every = options.checkpoint_every;
    peer_ = std::make_unique<collab::Peer>(
        peer, engine_->layout(), run_.signer_, run_.genesis_, std::move(restored.peer),
        [](const collab::JoinAsk&, const collab::Chain&) -> Result<collab::Admission> {
          return MakeError(Code::kRefused, "this run is one peer's");
        });
    Call([&](collab::Effects& out) { peer_->Start(now, out); });
    return {};
  }

  bool reloads() const { return reloads_; }
  bool failed() const { return peer_->state() == collab::PeerState::kFailed; }
  bool finished() const { return collab::Finished(peer_->applied().body, run_.options_.config); }
  std::string Why(Time now) const { return peer_->View(now).reason; }

  /// Carries out what was asked for, then one job: the disk is the faster one. False when there was
  /// nothing.
  bool Work(Time now) {
    if (effects_.empty() && jobs_.empty()) return false;
    while (!effects_.empty() && !reloads_) {
      const collab::Effect effect = std::move(effects_.front());
      effects_.pop_front();
      std::visit([&](const auto& e) { CarryOut(e, now); }, effect);
    }
    if (!jobs_.empty() && !reloads_) RunJob(now);
    return true;
  }
  void Tick(Time now) {
    Call([&](collab::Effects& out) { peer_->OnTick(now, out); });
  }
  /// What the daemon does when a run has finished.
  void SaveLast() {
    const collab::Record& record = peer_->applied();
    const auto saved =
        disk_->Checkpoint({record.body.round, record.hash, record.body.root}, *engine_);
    if (!saved) life_.told.push_back(saved.error().ToString());
  }
  void Look() {
    life_.root = engine_->Root();
    life_.inner.clear();
    for (const WorkerIndex worker : engine_->InnerWorkers()) {
      BytesSink sink;
      if (engine_->SaveInner(worker, sink)) life_.inner[worker] = sink.bytes();
    }
  }

 private:
  template <class F>
  void Call(F&& call) {
    collab::Effects out;
    call(out);
    for (collab::Effect& effect : out) effects_.push_back(std::move(effect));
  }

  void CarryOut(const collab::Persist& persist, Time now) {
    const Status written = disk_->Write(persist);
    Call([&](collab::Effects& out) {
      if (!written) {
        peer_->OnPersistFailed(written.error(), now, out);
      } else if (persist.token != 0) {
        peer_->OnPersisted(persist.token, now, out);
      }
    });
  }
  void CarryOut(const collab::Compute& compute, Time) { jobs_.push_back({compute, false}); }
  void CarryOut(const collab::CutWork&, Time) {
    for (Pending& pending : jobs_) pending.cut = true;
  }
  void RunJob(Time now) {
    const Pending pending = std::move(jobs_.front());
    jobs_.pop_front();
    const collab::Job& job = pending.compute.what;
    const auto* checkpoint = std::get_if<collab::CheckpointJob>(&job);
    collab::JobResult result = checkpoint != nullptr
                                   ? collab::JobResult(disk_->Checkpoint(*checkpoint, *engine_))
                                   : runner_->Run(job, std::atomic<bool>(pending.cut));
    if (auto* work = std::get_if<collab::WorkResult>(&result)) work->millis = kMillis;
    Call([&](collab::Effects& out) {
      peer_->OnComputed(pending.compute.job, std::move(result), now, out);
    });
  }
  void CarryOut(const collab::Reload&, Time) { reloads_ = true; }
  void CarryOut(const collab::Tell& tell, Time) {
    const collab::Event& e = tell.event;
    if (e.kind == collab::Event::Kind::kRound) life_.committed = std::max(life_.committed, e.round);
    if (e.kind == collab::Event::Kind::kProblem) life_.told.push_back(e.text);
  }
  void CarryOut(const collab::Send&, Time) {}  // nobody is there
  void CarryOut(const collab::Serve&, Time) {}

  struct Pending {
    collab::Compute compute;
    bool cut = false;
  };

  const LoneRun& run_;
  LoneLife& life_;
  std::optional<store::PeerFolder> folder_;
  std::unique_ptr<collab::Engine> engine_;
  std::optional<node::DiskExecutor> disk_;
  std::optional<node::JobRunner> runner_;
  std::unique_ptr<collab::Peer> peer_;
  std::deque<collab::Effect> effects_;
  std::deque<Pending> jobs_;
  bool reloads_ = false;
};

LoneRun::LoneRun(LoneOptions options)
    : options_(std::move(options)), key_(LoneKey()), signer_(key_) {
  std::vector<agreed::TensorShape> tensors;
  tensors.reserve(options_.tensors.size());
  for (std::size_t i = 0; i < options_.tensors.size(); ++i)
    tensors.push_back({fmt::format("t{}", i), {options_.tensors[i]}});
  grid_ = agreed::TileGrid::Make(std::move(tensors), options_.config.tile_elements).value();
  agreed::State first =
      agreed::State::Make(grid_, collab::MakeStepRule(options_.config)->num_slots()).value();
  for (const agreed::Tile& tile : grid_.tiles()) {
    agreed::FillNormal(first.weights().subspan(tile.offset, tile.size), options_.config.seed,
                       tile.offset, 0.5F);
  }
  first_weights_.assign(first.weights().begin(), first.weights().end());
  collab::Genesis genesis;
  genesis.nonce = crypto::Sha256(AsBytes("sim lone run"));
  genesis.owners.push_back(key_);
  genesis.name = "lone";
  const collab::Body body =
      GenesisBody(genesis.Encode(), key_, agreed::StateRoot(grid_, std::as_const(first).planes()),
                  options_.config);
  genesis_ = collab::Record::FromBody(MakeBlob(body.Encode())).value();
  genesis_.owner = signer_.Sign(collab::Chain::kGenesisDomain, genesis_.hash.View());
}

LoneLife LoneRun::Live(store::SimFileSystem& disk, Round until) const {
  LoneLife life;
  Time now{};
  auto process = std::make_unique<Process>(*this, life);
  Status started = process->Start(disk, now);
  for (std::uint32_t ticks = 0; started && ticks < kMostTicks;) {
    if (process->Work(now)) {
      if (process->failed()) {
        life.error = process->Why(now);
        return life;
      }
      if (process->reloads()) {
        process = nullptr;  // the folder is free for the next one
        process = std::make_unique<Process>(*this, life);
        started = process->Start(disk, now);
      } else if (life.committed >= until || process->finished()) {
        life.finished = process->finished();
        if (life.finished) process->SaveLast();
        process->Look();
        return life;
      }
      continue;
    }
    ++ticks;
    now += 250ms;
    process->Tick(now);
  }
  life.error = started ? "stuck: " + process->Why(now) : started.error().ToString();
  return life;
}

}  // namespace loom::sim
