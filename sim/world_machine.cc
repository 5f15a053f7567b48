// A simulated machine: it carries out what its peer asks for on a disk and a compute thread of
// their own speed, with the defects that a scenario plants.
#include <algorithm>

#include "crypto/hash.h"
#include "sim/world.h"

namespace loom::sim {
namespace {

using collab::Effects;
using collab::Peer;

constexpr Duration kSyncTime = 3ms;

}  // namespace

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
    } else if (std::holds_alternative<collab::Reload>(effect)) {
      AtNode(now_, node, [this, &node] {
        const collab::Told told = node.peer->told();
        // As in the daemon, what the old core had asked for is written before the new one starts.
        for (const collab::Persist& left : node.writes) (void)node.disk->Write(left);
        End(node);
        Start(node.index);
        Call(node, [&](Peer& p, Effects& out) { p.TellAgain(told, now_, out); });
      });
    } else if (const auto* serve = std::get_if<collab::Serve>(&effect)) {
      AtNode(now_ + 1ms, node, [this, &node, serve = *serve] {
        if (const auto answer = node.disk->Answer(serve)) Transmit(node, serve.to, *answer);
      });
    } else if (const auto* tell = std::get_if<collab::Tell>(&effect)) {
      static constexpr const char* kKinds[] = {"round",    "phase",    "excluded", "listed",
                                               "delisted", "takeover", "waiting",  "syncing",
                                               "problem",  "owner",    "stopped"};
      const collab::Event& e = tell->event;
      const auto who = IndexOf(e.peer);
      if (options_.keep_trace) {
        Note(fmt::format(
            "peer {}: {} {}{} {}", node.index, kKinds[static_cast<std::size_t>(e.kind)], e.round,
            who && *who != node.index ? fmt::format(" of peer {}", *who) : "", e.text));
      }
      const bool failed = e.kind == collab::Event::Kind::kStopped &&
                          node.peer->state() == collab::PeerState::kFailed;
      if (failed && node.disk_fault) {
        AtNode(now_, node, [this, &node] {
          if (node.disk_fault->power_cut) {
            PowerCut(node.index);
          } else {
            Kill(node.index);
          }
        });
      } else if (failed && node.poisoned) {
        AtNode(now_, node, [this, &node] { Kill(node.index); });  // it says why, and ends
      } else if (failed && node.peer->View(now_).failure != Code::kRefused) {
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
    std::uint64_t steps = 0;
    for (const collab::WorkOrder& order : work->orders) {
      steps += (collab::CountSamples(order.ranges) + order.batch - 1) / order.batch;
    }
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
    // No two lives time the same work alike.
    work->millis = static_cast<std::uint32_t>(Seconds(now_ - node.job_started) * 1000.0) +
                   static_cast<std::uint32_t>(node.life % 16);
    if (work->work && node.corrupt && work->work->encoded != nullptr) {
      node.corrupt = false;
      const Bytes bad(work->work->encoded->size(), std::byte{0xFF});
      work->work->encoded = MakeBlob(bad);
      for (std::size_t i = 0; i < work->work->hashes.size(); ++i) {
        work->work->hashes[i] = crypto::Sha256(node.engine->layout().View(bad, i));
      }
    }
    if (work->work && !options_.config.exact) {
      const collab::WorkOrder& order = std::get<collab::WorkJob>(job.what).orders.front();
      audit_->SawWork(order.round, order.worker, *work->work);
    }
  } else if (const auto* apply = std::get_if<collab::ApplyJob>(&job.what)) {
    if (std::get<Status>(result)) node.engine_round = apply->round;
  } else if (const auto* load = std::get_if<collab::LoadStateJob>(&job.what)) {
    if (std::get<Status>(result)) node.engine_round = load->round;
  } else if (const auto* next = std::get_if<collab::NextJob>(&job.what)) {
    if (options_.planted.early_overwrite) (void)node.engine->Apply(*next->reduced, next->clock);
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

}  // namespace loom::sim
