// Between the agreement core and the round: its actions become messages and disk writes, and a body
// is checked before it is voted for (R6): it follows from its parent, this member computed its root
// from bytes whose hashes it lists, and those bytes are durable here.
#include <algorithm>

#include "collab/round.h"
#include "crypto/hash.h"

namespace loom::collab {

void RoundMachine::Carry(Actions actions, Time now, Effects& out) {
  for (Action& action : actions) {
    if (auto* persist = std::get_if<PersistVoter>(&action)) {
      const std::uint64_t token = env_.ids->Take();
      vote_tokens_.emplace(token, persist->token);
      out.push_back(Persist{token, AppendVote{std::move(persist->entry)}});
    } else if (const auto* prepare = std::get_if<SendPrepare>(&action)) {
      Broadcast(PrepareMessage{id(), prepare->term}, out);
    } else if (auto* promise = std::get_if<SendPromise>(&action)) {
      SendTo(promise->to, PromiseMessage{id(), std::move(promise->promise)}, out);
    } else if (const auto* proposal = std::get_if<SendProposal>(&action)) {
      Broadcast(ProposalMessage{id(), proposal->term, plan_ ? plan_->attempt : 0, *proposal->body},
                out);
    } else if (const auto* vote = std::get_if<SendVote>(&action)) {
      Broadcast(VoteMessage{id(), vote->vote}, out);
    } else if (const auto* nack = std::get_if<SendNack>(&action)) {
      if (nack->to != env_.self) SendTo(nack->to, NackMessage{id(), nack->promised}, out);
    } else if (const auto* check = std::get_if<CheckBody>(&action)) {
      term_since_ = now;
      StartCheck(*check, now, out);
    } else if (const auto* choose = std::get_if<MayChoose>(&action)) {
      StartAttempt(choose->term, now, out);
    } else if (auto* decided = std::get_if<Decided>(&action)) {
      decided_ = std::move(decided->record);
      if (gather_ && gather_->next && gather_->next->tiles == decided_->body.tiles)
        decided_->parts = gather_->parts;
    } else if (const auto* evidence = std::get_if<Evidence>(&action)) {
      out.push_back(
          Tell{{Event::Kind::kProblem, id().round, evidence->first.peer,
                fmt::format("signed two different votes in term {}", evidence->first.term)}});
    }
  }
}

void RoundMachine::StartCheck(const CheckBody& check, Time now, Effects& out) {
  if (check_ && check_->hash == check.hash) {
    AdvanceCheck(now, out);
    return;
  }
  check_.reset();
  auto body = Body::Decode(*check.body);
  Status follows = body ? CheckNextBody(parent_.body, parent_.hash, env_.run, *env_.config,
                                        env_.layout->num_tiles(), *body)
                        : Status(body.error());
  if (follows && body->order) follows = env_.check_order(*body);
  if (!follows) {
    out.push_back(Tell{{Event::Kind::kProblem, id().round,
                        LeaderOf(parent_.body.members, id().round, check.term),
                        fmt::format("not voted for: {}", follows.error().message)}});
    return;
  }
  check_ = Check{};
  check_->hash = check.hash;
  check_->body = std::move(*body);
  check_->asked = now;
  AdvanceCheck(now, out);
}

// Goes as far as what is held allows; called again whenever something arrives.
void RoundMachine::AdvanceCheck(Time now, Effects& out) {
  if (!check_ || check_->persisting || decided_) return;
  const Body& body = check_->body;
  Blob whole;
  if (body.contributions.empty()) {
    Actions actions;
    agreement_.OnBodyChecked(check_->hash, actions);
    Carry(std::move(actions), now, out);
    return;
  }
  if (gather_ && gather_->next && gather_->next->tiles == body.tiles) {
    if (exact() && gather_->exponents != body.exponents) {
      out.push_back(Tell{{Event::Kind::kProblem, id().round, env_.self,
                          "the leader's body has other exponents than the units of the step"}});
      return;
    }
    if (gather_->next->root != body.root) {
      out.push_back(Tell{{Event::Kind::kProblem, id().round, env_.self,
                          fmt::format("computed root {}, the leader's body says {}",
                                      gather_->next->root.Short(), body.root.Short())}});
      return;
    }
    whole = gather_->whole;
  } else if (check_->whole != nullptr && check_->job == 0) {
    whole = check_->whole;
  } else {
    FetchForCheck(now, out);
    return;
  }
  check_->persisting = true;
  kept_.push_back({whole, body.tiles});
  if (kept_.size() > 3) kept_.erase(kept_.begin());
  const std::uint64_t token = env_.ids->Take();
  round_tokens_.emplace(token, check_->hash);
  out.push_back(Persist{token, WriteRound{id().round, whole, body.tiles}});
}

// A body carried over from an earlier term or attempt: its bytes are with whoever voted for it.
void RoundMachine::FetchForCheck(Time now, Effects& out) {
  // What comes anyhow, or is at work, is not asked for beside.
  if (gather_ && gather_->missing > 0 && fix_ &&
      now - std::max(check_->asked, last_progress_) < env_.timing.quiet) {
    return;
  }
  if (gather_ && gather_->asked && !gather_->next && gather_->hashes == check_->body.tiles) return;
  const std::size_t tiles = env_.layout->num_tiles();
  if (check_->have.empty()) {
    check_->have.assign(tiles, false);
    check_->missing = tiles;
    check_->fetching.resize(env_.layout->total());
    for (std::size_t i = 0; i < tiles; ++i) {
      if (const auto held = FindTile(check_->body.tiles[i])) {
        OnObject({check_->body.tiles[i], MakeBlob(ToBytes(held->View()))}, now, out);
        if (!check_ || check_->missing == 0) return;
      }
    }
  } else if (now - check_->asked < env_.timing.quiet) {
    return;
  }
  check_->asked = now;
  std::vector<PeerId> donors;
  for (const PeerId& p : PresentMembers()) {
    if (p != env_.self) donors.push_back(p);
  }
  if (donors.empty()) return;
  swarm::GetObjects get;
  for (std::size_t i = 0; i < tiles && get.ids.size() < 64; ++i) {
    if (!check_->have[i]) get.ids.push_back(check_->body.tiles[i]);
  }
  SendTo(donors[check_->turn++ % donors.size()], std::move(get), out);
}

void RoundMachine::OnObject(const swarm::ObjectData& data, Time now, Effects& out) {
  if (!check_ || check_->missing == 0 || crypto::Sha256(*data.bytes) != data.id) return;
  bool any = false;
  for (std::size_t i = 0; i < check_->have.size(); ++i) {
    if (check_->have[i] || check_->body.tiles[i] != data.id ||
        data.bytes->size() != env_.layout->Size(i))
      continue;
    std::copy(data.bytes->begin(), data.bytes->end(),
              check_->fetching.begin() + static_cast<std::ptrdiff_t>(env_.layout->Offset(i)));
    check_->have[i] = true;
    --check_->missing;
    any = true;
  }
  if (any && check_->missing == 0) {
    check_->whole = MakeBlob(std::move(check_->fetching));
    check_->job = env_.ids->Take();
    next_jobs_.emplace(check_->job, check_->whole);
    out.push_back(
        Compute{check_->job, NextJob{check_->whole, ClockOf(check_->body), check_->body.tiles}});
  } else if (any) {
    check_->asked = now - env_.timing.quiet;
  }
}

}  // namespace loom::collab
