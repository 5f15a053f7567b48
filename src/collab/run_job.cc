#include "collab/run_job.h"

namespace loom::collab {
namespace {

Status Apply(Engine& engine, const ApplyJob& job) {
  for (const auto& [worker, used] : job.settle) engine.Settle(worker, used);
  if (job.reduced == nullptr) return {};
  LOOM_RETURN_IF_ERROR(engine.Apply(*job.reduced));
  if (const Hash root = engine.Root(); root != job.root) {
    return MakeError(Code::kInternal,
                     fmt::format("round {}: this machine computes root {}, the record says {}", job.round,
                                 root.Hex(), job.root.Hex()),
                     "run loom doctor and report the processor and the two roots");
  }
  return {};
}

Status LoadState(Engine& engine, const LoadStateJob& job) {
  for (std::size_t i = 0; i < job.tiles.size(); ++i) {
    LOOM_RETURN_IF_ERROR(engine.LoadStateTile(i, *job.tiles[i]));
  }
  if (const Hash root = engine.Root(); root != job.root) {
    return MakeError(Code::kCorrupt, fmt::format("the fetched state of round {} has root {}, the record says {}",
                                                 job.round, root.Hex(), job.root.Hex()));
  }
  return {};
}

}  // namespace

JobResult RunJob(Engine& engine, const Job& job, const std::atomic<bool>* cut) {
  static const std::atomic<bool> never{false};
  return std::visit(
      [&](const auto& j) -> JobResult {
        using T = std::decay_t<decltype(j)>;
        if constexpr (std::is_same_v<T, WorkJob>) {
          return WorkResult{engine.Work(j.order, cut != nullptr ? *cut : never), 0};
        } else if constexpr (std::is_same_v<T, CheckPartJob>) {
          return engine.CheckPart(j.run.first, *j.tiles, j.hashes);
        } else if constexpr (std::is_same_v<T, ReduceJob>) {
          return engine.Reduce(j.run.first, j.run.count, j.inputs);
        } else if constexpr (std::is_same_v<T, NextJob>) {
          return engine.Next(*j.reduced);
        } else if constexpr (std::is_same_v<T, ApplyJob>) {
          return Apply(engine, j);
        } else if constexpr (std::is_same_v<T, PossessionJob>) {
          return engine.Possession(j.peer, j.salt);
        } else if constexpr (std::is_same_v<T, LoadStateJob>) {
          return LoadState(engine, j);
        } else {
          return Result<std::vector<Hash>>(MakeError(Code::kInternal, "a checkpoint needs a disk"));
        }
      },
      job);
}

}  // namespace loom::collab
