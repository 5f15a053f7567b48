#include "fuzz/harness/machine.h"

#include <algorithm>
#include <utility>

#include "agreed/random.h"
#include "agreed/state.h"
#include "collab/chain.h"
#include "collab/ledger.h"
#include "crypto/hash.h"
#include "fuzz/fuzz.h"

namespace loom::fuzz {
namespace {

// Tiles that one call of a peer may ask to be sent: some times what it holds of a round.
constexpr std::size_t kMostSent = 64U << 10;

collab::ReadSettings SettingsReader(const collab::SyncConfig& config) {
  return [config](ByteView, ByteView after) -> Result<collab::SyncConfig> {
    if (after.size() != 1) return MakeError(Code::kInvalid, "unknown settings");
    collab::SyncConfig amended = config;
    amended.rounds = static_cast<std::uint64_t>(after[0]);
    return amended;
  };
}

std::size_t BytesOf(const collab::Message& message) {
  if (const auto* part = std::get_if<collab::Part>(&message)) return part->tiles.size;
  if (const auto* reduced = std::get_if<collab::Reduced>(&message)) return reduced->tiles.size;
  return 0;
}

}  // namespace

crypto::Signature ForgedSignature() {
  crypto::Signature forged;
  std::ranges::fill(forged.bytes, std::byte{0xF0});
  return forged;
}

bool ForgeableSigner::Verify(const crypto::PublicKey& key, std::string_view domain,
                             ByteView message, const crypto::Signature& signature) const {
  return signature == ForgedSignature() || honest_.Verify(key, domain, message, signature);
}

TinyRun::TinyRun(bool exact) {
  config.inner_steps = 1;
  config.batch = 1;
  config.context = 16;
  config.tile_elements = 256;
  config.codec = exact ? "fp32" : "int8";
  if (exact) {
    config.method = collab::Method::kAllReduce;
    config.exact = true;
    config.workers = 3;
    config.batch = 2;
    config.accumulation = 2;
    config.optimizer.schedule.kind = agreed::ScheduleKind::kConstant;
    config.optimizer.inner.clip_norm = 1.0F;
  }
  codec = codec::ParseCodec(config.codec).value();
  grid = agreed::TileGrid::Make({{"t", {300}}}, config.tile_elements).value();
  agreed::State first =
      agreed::State::Make(grid, collab::MakeStepRule(config)->num_slots()).value();
  for (const agreed::Tile& tile : grid.tiles())
    agreed::FillNormal(first.weights().subspan(tile.offset, tile.size), 1, tile.offset, 0.5F);
  first_weights.assign(first.weights().begin(), first.weights().end());
  for (std::uint8_t i = 0; i < 4; ++i) {
    const std::byte number[] = {static_cast<std::byte>(i)};
    crypto::PublicKey key;
    key.bytes = crypto::Sha256(number).bytes;
    keys.push_back(key);
  }
  collab::Genesis content;
  content.owners.push_back(keys[0]);
  content.name = "fuzz";
  const Hash root = agreed::StateRoot(grid, std::as_const(first).planes());
  const collab::Body body = collab::GenesisBody(content.Encode(), keys[0], root, config);
  genesis = collab::Record::FromBody(MakeBlob(body.Encode())).value();
  genesis.owner = sim::FakeSigner(keys[0]).Sign(collab::Chain::kGenesisDomain, genesis.hash.View());
}

Machine::Machine(const TinyRun& run, std::size_t index)
    : run_(&run), index_(index), id_(run.IdOf(index)), signer_(run.keys[index]) {}

Status Machine::Start(Time now) {
  End();
  LOOM_ASSIGN(store::PeerFolder folder,
              store::PeerFolder::Open(disk_, kMachineFolder, {.pid = 1, .keep_checkpoints = 2}));
  folder_.emplace(std::move(folder));
  for (const std::string& note : folder_->notes()) ExpectPrintable(note, "a note of the folder");
  LOOM_RETURN_IF_ERROR(folder_->SetGenesis(run_->genesis.Encode()));
  LOOM_ASSIGN(collab::Engine engine,
              collab::Engine::Make(run_->grid, run_->config, run_->codec, agreed::BestIsa(),
                                   [this](WorkerIndex) -> Result<std::unique_ptr<collab::Worker>> {
                                     return std::unique_ptr<collab::Worker>(
                                         std::make_unique<sim::PlainWorker>(
                                             run_->grid, sim::PlainModel{}, &step_limit_));
                                   }));
  engine_ = std::make_unique<collab::Engine>(std::move(engine));
  LOOM_ASSIGN(node::Restored restored,
              node::RestorePeer(*folder_, *engine_,
                                {run_->genesis, id_, run_->config, signer_,
                                 SettingsReader(run_->config), [this](std::span<float> weights) {
                                   std::ranges::copy(run_->first_weights, weights.begin());
                                   return Status{};
                                 }}));
  for (const std::string& note : restored.notes) ExpectPrintable(note, "a note of the restore");
  Expect(restored.state <= restored.peer.records.size(), "a state is of a record that is there");
  const collab::Record* head =
      restored.state == 0 ? &run_->genesis : &restored.peer.records[restored.state - 1];
  Expect(engine_->Root() == head->body.root, "a restored state has the root of its record");
  executor_.emplace(*folder_, run_->grid, engine_->layout());
  executor_->Know(restored.peer.records);
  runner_.emplace(*engine_);
  collab::PeerOptions options;
  options.config = run_->config;
  options.read_settings = SettingsReader(run_->config);
  options.key = run_->keys[index_];
  options.checkpoint_every = 2;
  options.bulk_bytes = 300;
  options.keep_records = 2;
  options.session = ++session_ << 32U;
  peer_ = std::make_unique<collab::Peer>(
      options, engine_->layout(), signer_, run_->genesis, std::move(restored.peer),
      [](const collab::JoinAsk&, const collab::Chain&) -> Result<collab::Admission> {
        return collab::Admission{};
      });
  Call(now, [&](collab::Peer& peer, collab::Effects& out) { peer.Start(now, out); });
  return {};
}

void Machine::End() {
  peer_.reset();
  runner_.reset();
  executor_.reset();
  engine_.reset();
  folder_.reset();
  writes_.clear();
  jobs_.clear();
  sent_.clear();
  wants_restart_ = false;
}

void Machine::Carry(collab::Effects effects, Time) {
  std::size_t bytes = 0;
  for (collab::Effect& effect : effects) {
    if (auto* send = std::get_if<collab::Send>(&effect)) {
      bytes += BytesOf(send->message);
      sent_.push_back(std::move(*send));
    } else if (auto* persist = std::get_if<collab::Persist>(&effect)) {
      writes_.push_back(std::move(*persist));
    } else if (auto* compute = std::get_if<collab::Compute>(&effect)) {
      jobs_.push_back(std::move(*compute));
    } else if (const auto* tell = std::get_if<collab::Tell>(&effect)) {
      ExpectPrintable(tell->event.text, "an event's text");
    } else if (const auto* serve = std::get_if<collab::Serve>(&effect)) {
      auto answer = executor_->Answer(*serve);
      if (!answer) continue;
      if (const auto* data = std::get_if<swarm::ObjectData>(&*answer))
        Expect(crypto::Sha256(*data->bytes) == serve->id, "what is served is what was asked for");
      sent_.push_back({serve->to, std::move(*answer)});
    } else if (std::holds_alternative<collab::Reload>(effect)) {
      wants_restart_ = true;
    }
  }
  Expect(bytes <= kMostSent, "a call does not multiply what it answers with");
}

bool Machine::FinishWrite(Time now) {
  if (peer_ == nullptr || writes_.empty()) return false;
  const collab::Persist persist = std::move(writes_.front());
  writes_.pop_front();
  const Status written = executor_->Write(persist);
  Call(now, [&](collab::Peer& peer, collab::Effects& out) {
    if (!written) {
      ExpectGoodError(written.error());
      peer.OnPersistFailed(written.error(), now, out);
    } else if (persist.token != 0) {
      peer.OnPersisted(persist.token, now, out);
    }
  });
  return true;
}

bool Machine::FinishJob(Time now, bool work) {
  if (peer_ == nullptr || jobs_.empty()) return false;
  if (!work && std::holds_alternative<collab::WorkJob>(jobs_.front().what)) return false;
  collab::Compute job = std::move(jobs_.front());
  jobs_.pop_front();
  collab::JobResult result = Status{};
  if (const auto* checkpoint = std::get_if<collab::CheckpointJob>(&job.what)) {
    result = executor_->Checkpoint(*checkpoint, *engine_);
  } else {
    result = runner_->Run(job.what, std::atomic<bool>(false));
  }
  if (auto* done = std::get_if<collab::WorkResult>(&result)) done->millis = 20;
  Call(now, [&](collab::Peer& peer, collab::Effects& out) {
    peer.OnComputed(job.job, std::move(result), now, out);
  });
  return true;
}

}  // namespace loom::fuzz
