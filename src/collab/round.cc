// The frame of the round machine: start, dispatch of messages and completions, questions.
#include "collab/round.h"

#include <algorithm>

#include "crypto/hash.h"

namespace loom::collab {

RoundMachine::RoundMachine(const RoundEnv& env, const Record& parent, RoundStart start, Time now)
    : env_(env),
      parent_(parent),
      start_(std::move(start)),
      agreement_({parent.body.era, parent.body.round + 1, parent.hash}, parent.body.members,
                 env.self, env.config->quorum, *env.signer, start_.voter),
      started_(now),
      term_(agreement_.promised()),
      term_since_(now),
      last_progress_(now),
      exchange_since_(now),
      exchange_(start_.predicted_exchange) {
  const Blob& voted = start_.voted_bytes;
  if (voted == nullptr || voted->size() != env.layout->total()) return;
  Kept& kept = kept_.emplace_back(Kept{voted, {}});
  for (std::size_t i = 0; i < env.layout->num_tiles(); ++i)
    kept.tiles.push_back(crypto::Sha256(env.layout->View(*voted, i)));
}

void RoundMachine::Start(Time now, Effects& out) {
  if (exact()) {
    StartExact(now);
  } else {
    for (WorkOrder& order : DealtTo(env_.self)) to_do_.push_back({{std::move(order)}, {}});
  }
  StartWork(out);
  ConsiderTakeover(now, out);
}

void RoundMachine::OnMessage(const PeerId& from, const Message& message, Time now, Effects& out) {
  Actions actions;
  std::visit(
      [&](const auto& m) {
        using T = std::decay_t<decltype(m)>;
        if constexpr (std::is_same_v<T, Plan>) {
          OnPlan(from, m, now, out);
        } else if constexpr (std::is_same_v<T, Commitment>) {
          OnCommitment(m, now, out);
        } else if constexpr (std::is_same_v<T, Part>) {
          OnPart(from, m, out);
        } else if constexpr (std::is_same_v<T, Arrived>) {
          OnArrived(from, m, now, out);
        } else if constexpr (std::is_same_v<T, Cut>) {
          if (IsMember(parent_.body.members, from) && working_ && working_->Has(m.worker) &&
              !exact()) {
            out.push_back(CutWork{});
          }
        } else if constexpr (std::is_same_v<T, HostPlan>) {
          OnHostPlan(from, m, now, out);
        } else if constexpr (std::is_same_v<T, FixSet>) {
          OnFixSet(from, m, now, out);
        } else if constexpr (std::is_same_v<T, Reduced>) {
          OnReduced(from, m, now, out);
        } else if constexpr (std::is_same_v<T, Missing>) {
          OnMissing(from, m, now, out);
        } else if constexpr (std::is_same_v<T, swarm::ObjectData>) {
          OnObject(m, now, out);
        } else if constexpr (std::is_same_v<T, PrepareMessage>) {
          if (LeaderOf(parent_.body.members, id().round, m.term) == from) HeardTerm(m.term, now);
          agreement_.OnPrepare(from, m.term, actions);
        } else if constexpr (std::is_same_v<T, PromiseMessage>) {
          agreement_.OnPromise(m.promise, actions);
        } else if constexpr (std::is_same_v<T, ProposalMessage>) {
          if (LeaderOf(parent_.body.members, id().round, m.term) == from) HeardTerm(m.term, now);
          agreement_.OnProposal(from, m.term, MakeBlob(m.body), actions);
        } else if constexpr (std::is_same_v<T, VoteMessage>) {
          agreement_.OnVote(m.vote, actions);
          if (IsMember(parent_.body.members, from)) Progress(now);
        } else if constexpr (std::is_same_v<T, NackMessage>) {
          if (IsMember(parent_.body.members, from)) HeardTerm(m.promised, now);
        }
      },
      message);
  Carry(std::move(actions), now, out);
}

bool RoundMachine::OnComputed(std::uint64_t job, JobResult result, Time now, Effects& out) {
  if (const auto work = work_jobs_.find(job); work != work_jobs_.end()) {
    const Task task = std::move(work->second);
    work_jobs_.erase(work);
    OnWorkDone(task, std::move(std::get<WorkResult>(result)), now, out);
    return true;
  }
  if (const auto part = part_jobs_.find(job); part != part_jobs_.end()) {
    const PartJob done = std::move(part->second);
    part_jobs_.erase(part);
    OnPartChecked(done.commitment, done.run, done.tiles, std::get<Status>(result), now, out);
    return true;
  }
  if (const auto run = reduce_jobs_.find(job); run != reduce_jobs_.end()) {
    const RunJob done = run->second;
    reduce_jobs_.erase(run);
    if (plan_ && done.term == plan_->term && done.attempt == plan_->attempt && !decided_) {
      OnReducedRun(done.run, std::move(std::get<Result<Bytes>>(result)), now, out);
    }
    ReduceNext(out);
    return true;
  }
  if (const auto next = next_jobs_.find(job); next != next_jobs_.end()) {
    const Blob bytes = std::move(next->second);
    next_jobs_.erase(next);
    auto& state = std::get<Result<NextState>>(result);
    if (!state) {
      out.push_back(Tell{{Event::Kind::kProblem, id().round, env_.self, state.error().message}});
      return true;
    }
    if (gather_ && gather_->whole == bytes) {
      gather_->next = std::move(*state);
      ConsiderPropose(out);
    } else if (check_ && check_->job == job) {
      check_->job = 0;
      if (state->root != check_->body.root || state->tiles != check_->body.tiles)
        check_->whole = nullptr;
    }
    AdvanceCheck(now, out);
    return true;
  }
  return false;
}

bool RoundMachine::OnPersisted(std::uint64_t token, Time now, Effects& out) {
  Actions actions;
  if (const auto vote = vote_tokens_.find(token); vote != vote_tokens_.end()) {
    const std::uint64_t inner = vote->second;
    vote_tokens_.erase(vote);
    agreement_.OnPersisted(inner, actions);
  } else if (const auto round = round_tokens_.find(token); round != round_tokens_.end()) {
    const Hash checked = round->second;
    round_tokens_.erase(round);
    durable_.insert(checked);
    if (check_ && check_->hash == checked) {
      check_->persisting = false;
      agreement_.OnBodyChecked(checked, actions);
      check_.reset();
    }
  } else {
    return false;
  }
  Carry(std::move(actions), now, out);
  return true;
}

void RoundMachine::OnTick(Time now, Effects& out) {
  if (decided_) return;
  LeadTick(now, out);
  ConsiderFix(now, out);
  ConsiderTakeover(now, out);
  AdvanceCheck(now, out);
  if (now - last_progress_ > env_.timing.quiet && (!working_ || (exact() && lead_))) {
    last_progress_ = now;
    SayMissing(out);
  }
}

void RoundMachine::OnPresence(Time now, Effects& out) {
  if (decided_) return;
  for (auto& [commitment, own] : own_) {
    std::erase_if(own.sent,
                  [&](const auto& sent) { return !env_.presence->connected.contains(sent.first); });
  }
  if (lead_ && lead_->phase != Lead::Phase::kPropose && plan_ && plan_->term == lead_->term) {
    const bool owner_lost =
        std::any_of(plan_->owners.begin(), plan_->owners.end(), [&](const OwnedRun& o) {
          return o.owner != env_.self && o.run.count > 0 &&
                 !env_.presence->connected.contains(o.owner);
        });
    const bool all_here = gather_ && gather_->missing == 0;
    if (owner_lost && !all_here) StartAttempt(lead_->term, now, out);
  }
  ConsiderFix(now, out);
  ConsiderTakeover(now, out);
}

Blob RoundMachine::ReducedOf(const Body& body) const {
  if (body.contributions.empty()) return nullptr;
  if (gather_ && gather_->next && gather_->next->tiles == body.tiles) return gather_->whole;
  const auto kept = std::ranges::find(kept_, body.tiles, &Kept::tiles);
  return kept == kept_.end() ? nullptr : kept->whole;
}

std::optional<Slice> RoundMachine::FindTile(const Hash& hash) const {
  const auto in = [&](const Blob& bytes, const std::vector<Hash>& tiles) -> std::optional<Slice> {
    const auto it = std::ranges::find(tiles, hash);
    if (bytes == nullptr || it == tiles.end()) return std::nullopt;
    const auto i = static_cast<std::size_t>(it - tiles.begin());
    return Slice{bytes, env_.layout->Offset(i), env_.layout->Size(i)};
  };
  if (gather_) {  // the hash of a tile that is not there yet is zero
    if (auto tile = hash.IsZero() ? std::nullopt : in(gather_->bytes, gather_->hashes)) return tile;
  }
  for (const Kept& kept : kept_) {
    if (auto tile = in(kept.whole, kept.tiles)) return tile;
  }
  return std::nullopt;
}

std::vector<std::pair<WorkerIndex, bool>> RoundMachine::Settlement(const Body& body) const {
  std::vector<std::pair<WorkerIndex, bool>> out;
  for (const auto& [commitment, own] : own_) {
    if (own.encoded == nullptr) continue;
    const bool used = std::ranges::any_of(
        body.contributions, [&](const Contribution& c) { return c.commitment == commitment; });
    for (const WorkShare& share : own.commitment.shares) out.emplace_back(share.worker, used);
  }
  return out;
}

// Somebody is in a later term. Only promises make it real, so believing a liar costs terms, no
// more.
void RoundMachine::HeardTerm(Term term, Time now) {
  constexpr Term kFarthest = 1000;
  if (term <= term_ || term - term_ > kFarthest) return;
  term_ = term;
  term_since_ = now;
}

const char* RoundMachine::phase() const {
  if (decided_) return "commit";
  if (check_ || (gather_ && gather_->next)) return "vote";
  if (fix_) return "reduce";
  return working_ || own_.empty() ? "work" : "scatter";
}

double RoundMachine::loss() const {
  if (!fix_) return 0;
  double sum = 0;
  std::uint64_t tokens = 0;
  for (const Commitment& c : fix_->set) {
    if (c.loss_sum == 0) continue;  // none of its tokens has a loss
    sum += c.loss_sum;
    tokens += c.tokens();
  }
  return tokens == 0 ? 0 : sum / static_cast<double>(tokens);
}

void RoundMachine::Broadcast(const Message& message, Effects& out) const {
  for (const Member& m : parent_.body.members) {
    if (m.id != env_.self) SendTo(m.id, message, out);
  }
}

void RoundMachine::SendTo(const PeerId& to, Message message, Effects& out, bool again) const {
  if (env_.presence->connected.contains(to)) out.push_back(Send{to, std::move(message), again});
}

bool RoundMachine::HaveQuorum() const {
  return IsQuorum(parent_.body.members, PresentMembers(), env_.config->quorum);
}

std::set<PeerId> RoundMachine::PresentMembers() const {
  std::set<PeerId> present;
  for (const Member& m : parent_.body.members) {
    if (m.id == env_.self || env_.presence->Present(m.id)) present.insert(m.id);
  }
  return present;
}

}  // namespace loom::collab
