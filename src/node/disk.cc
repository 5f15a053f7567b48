#include "node/disk.h"

#include <algorithm>
#include <utility>

#include "crypto/hash.h"

namespace loom::node {
namespace {

using collab::Engine;
using collab::Record;

/// votes.log is cut back to the newest decision once it is this long.
constexpr std::uint64_t kVotesLogBytes = 4U << 20;

static_assert(store::kMaxLogEntry >= collab::kMaxBodyBytes + (1U << 20),
              "a vote is kept with its body, and a record is not longer than a body may be");

/// Ids of more rounds are kept only while their bytes are there.
constexpr std::size_t kManyRounds = 1024;

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

}  // namespace

DiskExecutor::DiskExecutor(store::PeerFolder& folder, const agreed::TileGrid& grid,
                           const collab::TileLayout& layout)
    : folder_(&folder), state_layout_(StateLayoutOf(grid, layout.num_planes())), layout_(&layout) {}

void DiskExecutor::Know(const std::vector<Record>& records) {
  for (const Record& record : records) round_ids_[record.body.round] = RoundIdOf(record.body);
}

Status DiskExecutor::Write(const collab::Persist& persist) {
  if (const auto* vote = std::get_if<collab::AppendVote>(&persist.what)) {
    return folder_->votes().AppendAndSync(vote->entry);
  }
  if (const auto* round = std::get_if<collab::WriteRound>(&persist.what))
    return WriteRound(*folder_, *layout_, round->round, *round->reduced, round->tiles);
  if (const auto* rewind = std::get_if<collab::Rewind>(&persist.what))
    return folder_->Rewind(rewind->keep, rewind->records);
  const Bytes& bytes = std::get<collab::AppendRecord>(persist.what).record;
  LOOM_ASSIGN(const Record record, Record::Decode(bytes));
  LOOM_RETURN_IF_ERROR(folder_->records().AppendAndSync(bytes));
  const Hash id = RoundIdOf(record.body);
  round_ids_[record.body.round] = id;
  while (round_ids_.size() > kManyRounds &&
         !folder_->HasRound(round_ids_.begin()->first, round_ids_.begin()->second)) {
    round_ids_.erase(round_ids_.begin());
  }
  LOOM_RETURN_IF_ERROR(folder_->KeepOnlyRound(record.body.round, id));
  return folder_->votes().file_bytes() > kVotesLogBytes ? DropOldVotes() : Status{};
}

// The words of older decisions count only by their sequence numbers, and the newest has the
// highest.
Status DiskExecutor::DropOldVotes() {
  LOOM_ASSIGN(std::vector<Bytes> entries, folder_->votes().ReadAll());
  collab::VoterState voter;
  std::size_t first = 0;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const collab::DecisionId before = voter.id;
    LOOM_RETURN_IF_ERROR(voter.Apply(entries[i]));
    if (voter.id != before) first = i;
  }
  entries.erase(entries.begin(), entries.begin() + static_cast<std::ptrdiff_t>(first));
  if (voter.sealed > 0) entries.push_back(collab::VoterState::SealEntry(voter.sealed));
  return folder_->votes().Rewrite(entries);
}

Result<store::PendingCheckpoint> DiskExecutor::BeginCheckpoint(const collab::CheckpointJob& job,
                                                               const Engine& engine) {
  const std::vector<WorkerIndex> workers = engine.InnerWorkers();
  std::vector<store::ExtraWriter> extras;
  extras.reserve(workers.size());
  for (const WorkerIndex worker : workers) {
    extras.push_back({InnerName(worker),
                      [&engine, worker](ByteSink& out) { return engine.SaveInner(worker, out); }});
  }
  return folder_->checkpoints().Begin({job.round, job.record, job.root}, extras);
}

Result<std::vector<Hash>> DiskExecutor::Checkpoint(const collab::CheckpointJob& job,
                                                   const Engine& engine) {
  LOOM_ASSIGN(store::PendingCheckpoint pending, BeginCheckpoint(job, engine));
  return FinishCheckpoint(job.round, std::move(pending), engine);
}

Result<std::vector<Hash>> DiskExecutor::FinishCheckpoint(Round round,
                                                         store::PendingCheckpoint pending,
                                                         const Engine& engine) {
  LOOM_RETURN_IF_ERROR(
      folder_->checkpoints().Finish(std::move(pending), state_layout_, engine.state().planes()));
  // With one checkpoint the rounds before it stay, for peers that are a little behind.
  if (folder_->checkpoints().List().size() > 1) LOOM_RETURN_IF_ERROR(folder_->PruneRounds());
  LOOM_ASSIGN(const store::StateFile state, folder_->checkpoints().OpenState(round, state_layout_));
  return state.leaves();
}

std::optional<collab::Message> DiskExecutor::Answer(const collab::Serve& serve) const {
  if (serve.from == collab::Serve::From::kRecords) {
    if (serve.round == 0 || serve.round > folder_->records().size()) return std::nullopt;
    auto record = folder_->records().Read(serve.round - 1);
    if (!record) return std::nullopt;
    return collab::RecordMessage{std::move(*record)};
  }
  if (Blob bytes = Find(serve)) return swarm::ObjectData{serve.id, std::move(bytes)};
  return swarm::NotHere{{serve.id}, false};
}

Blob DiskExecutor::Find(const collab::Serve& serve) const {
  const auto read = [&]() -> Result<Bytes> {
    switch (serve.from) {
      case collab::Serve::From::kRound: {
        const auto id = round_ids_.find(serve.round);
        if (id == round_ids_.end()) break;
        LOOM_ASSIGN(const store::RoundFile file, folder_->OpenRound(serve.round, id->second));
        if (serve.tile >= file.num_tiles() || file.hashes()[serve.tile] != serve.id) break;
        return file.ReadTile(serve.tile);
      }
      case collab::Serve::From::kCheckpoint: {
        LOOM_ASSIGN(const store::StateFile file,
                    folder_->checkpoints().OpenState(serve.round, state_layout_));
        if (serve.tile >= file.num_tiles() || file.leaves()[serve.tile] != serve.id) break;
        return file.ReadTile(serve.tile);
      }
      case collab::Serve::From::kObjects:  // the run's data, which the node serves
      case collab::Serve::From::kRecords:
        break;
    }
    return MakeError(Code::kNotFound, "not here");
  };
  auto bytes = read();
  return bytes ? MakeBlob(std::move(*bytes)) : nullptr;
}

collab::JobResult JobRunner::Run(const collab::Job& job, const std::atomic<bool>& cut) {
  return std::visit(
      Overloaded{
          [&](const collab::WorkJob& j) -> collab::JobResult {
            if (!j.bounds.empty())
              return collab::WorkResult{engine_->SumUnits(j.orders, j.bounds, cut), 0};
            return collab::WorkResult{engine_->Work(j.orders.front(), cut), 0};
          },
          [&](const collab::CheckPartJob& j) -> collab::JobResult {
            return engine_->CheckPart(j.claim, j.tiles.View());
          },
          [&](const collab::ReduceJob& j) -> collab::JobResult {
            return engine_->Reduce(j.run.first, j.run.count, j.inputs, j.bounds);
          },
          [&](const collab::NextJob& j) -> collab::JobResult {
            auto next = engine_->Next(*j.reduced, j.clock, j.tiles);
            if (next) {
              checked_ = j.reduced;
              checked_root_ = next->root;
            }
            return next;
          },
          [&](const collab::ApplyJob& j) -> collab::JobResult { return Apply(j); },
          [&](const collab::PossessionJob& j) -> collab::JobResult {
            return engine_->Possession(j.peer, j.salt);
          },
          [&](const collab::LoadStateJob& j) -> collab::JobResult { return LoadState(j); },
          [&](const collab::CheckpointJob&) -> collab::JobResult {
            return Result<std::vector<Hash>>(
                MakeError(Code::kInternal, "a checkpoint is the disk's job"));
          },
      },
      job);
}

Status JobRunner::Apply(const collab::ApplyJob& job) {
  if (job.reduced != nullptr) {
    if (checked_ != job.reduced) {
      LOOM_ASSIGN(const collab::NextState next, engine_->Next(*job.reduced, job.clock));
      checked_root_ = next.root;
    }
    checked_.reset();
    if (checked_root_ != job.root) {
      return MakeError(Code::kCorrupt,
                       fmt::format("round {}: the step leads to root {}, its record says {}",
                                   job.round, checked_root_.Hex(), job.root.Hex()),
                       "run `loom doctor`: this machine computes other bits than the others");
    }
    LOOM_RETURN_IF_ERROR(engine_->Apply(*job.reduced, job.clock));
  }
  for (const auto& [worker, used] : job.settle) engine_->Settle(worker, used);
  return {};
}

Status JobRunner::LoadState(const collab::LoadStateJob& job) {
  checked_.reset();
  for (std::size_t i = 0; i < job.tiles.size(); ++i) {
    LOOM_RETURN_IF_ERROR(engine_->LoadStateTile(i, *job.tiles[i]));
  }
  if (const Hash root = engine_->Root(); root != job.root) {
    return MakeError(Code::kCorrupt,
                     fmt::format("the fetched state of round {} has root {}, its record says {}",
                                 job.round, root.Hex(), job.root.Hex()));
  }
  return {};
}

}  // namespace loom::node
