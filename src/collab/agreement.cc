#include "collab/agreement.h"

#include <algorithm>
#include <set>

#include "collab/mutations.h"
#include "collab/word.h"

namespace loom::collab {
namespace {

using wire::Reader;
using wire::Writer;

constexpr std::size_t kMaxVotesOfOneMember = 4;

enum class Entry : std::uint8_t { kPromise = 1, kVote = 2, kLed = 3, kSeal = 4 };

Bytes EntryOf(Entry kind, const DecisionId& id, Term term, std::uint64_t seq,
              const CastVote* cast = nullptr) {
  Writer out;
  out.Int(static_cast<std::uint8_t>(kind));
  id.Encode(out);
  out.Int(term);
  out.Int(seq);
  if (cast != nullptr) {
    cast->vote.Encode(out);
    out.Var(*cast->body);
  }
  return std::move(out).Take();
}

}  // namespace

void DecisionId::Encode(Writer& out) const {
  out.Int(era);
  out.Int(round);
  out.Id(parent);
}

DecisionId DecisionId::Decode(Reader& in) {
  DecisionId id;
  id.era = in.Int<Era>();
  id.round = in.Int<Round>();
  id.parent = in.GetId<HashTag>();
  return id;
}

void Promise::Encode(Writer& out) const {
  out.Id(peer);
  out.Int(term);
  out.Int(seq);
  out.Bool(last.has_value());
  if (last) {
    last->vote.Encode(out);
    out.Var(*last->body);
  }
  out.Raw(signature.bytes);
}

Promise Promise::Decode(Reader& in) {
  Promise promise;
  promise.peer = in.GetId<PeerTag>();
  promise.term = in.Int<Term>();
  promise.seq = in.Int<std::uint64_t>();
  if (in.Bool()) {
    promise.last.emplace();
    promise.last->vote = Vote::Decode(in);
    promise.last->body = MakeBlob(ToBytes(in.Var(kMaxBodyBytes)));
  }
  const ByteView raw = in.Raw(promise.signature.bytes.size());
  std::copy(raw.begin(), raw.end(), promise.signature.bytes.begin());
  return promise;
}

Status VoterState::Apply(ByteView entry) {
  Reader in(entry);
  const auto kind = static_cast<Entry>(in.Int<std::uint8_t>());
  if (kind == Entry::kSeal) {
    const auto era = in.Int<Era>();
    LOOM_RETURN_IF_ERROR(in.Finish("votes.log entry"));
    sealed = era;
    return {};
  }
  const DecisionId entry_id = DecisionId::Decode(in);
  const Term term = in.Int<Term>();
  const auto entry_seq = in.Int<std::uint64_t>();
  CastVote cast;
  switch (kind) {
    case Entry::kPromise:
    case Entry::kLed:
      break;
    case Entry::kVote:
      cast.vote = Vote::Decode(in);
      cast.body = MakeBlob(ToBytes(in.Var(kMaxBodyBytes)));
      break;
    default:
      in.Fail("an unknown kind of entry");
  }
  LOOM_RETURN_IF_ERROR(in.Finish("votes.log entry"));
  if (entry_id != id)
    *this = VoterState{
        .id = entry_id, .promised = 0, .vote = {}, .led = {}, .seq = seq, .sealed = sealed};
  seq = std::max(seq, entry_seq);
  if (kind == Entry::kLed) {
    led = std::max(led.value_or(0), term);
  } else {
    promised = std::max(promised, term);
  }
  if (kind == Entry::kVote) vote = std::move(cast);
  return {};
}

Bytes VoterState::SealEntry(Era era) {
  Writer out;
  out.Int(static_cast<std::uint8_t>(Entry::kSeal));
  out.Int(era);
  return std::move(out).Take();
}

void VoterState::Reopen(const DecisionId& open) {
  if (id != open) {
    id = open;
    promised = 0;
    vote.reset();
    led.reset();
  }
  led = std::max(led.value_or(0), promised);
}

Agreement::Agreement(DecisionId id, std::vector<Member> members, PeerId self, QuorumRule rule,
                     const Signer& signer, const VoterState& restored)
    : id_(id), members_(std::move(members)), self_(self), rule_(rule), signer_(&signer) {
  if (restored.id == id) {
    state_ = restored;
    vote_durable_ = state_.vote.has_value();
    if (state_.vote) votes_.push_back(state_.vote->vote);
  } else {
    state_.id = id;
    state_.seq = restored.seq;
    state_.sealed = restored.sealed;
  }
}

bool Agreement::MayLead(Term term) const {
  return !decided_ && IsMember(members_, self_) && LeaderOf(members_, id_.round, term) == self_ &&
         term >= state_.promised && (!state_.led || term > *state_.led) &&
         (!leading_ || term > leading_->term) &&
         // Term 0 chooses freely, which is only safe for who has neither promised nor voted above
         // it.
         (term > 0 || (state_.promised == 0 && !state_.vote));
}

std::optional<Vote> Agreement::DurableVote() const {
  if (!vote_durable_) return std::nullopt;
  return state_.vote->vote;
}

std::optional<SendProposal> Agreement::OwnProposal() const {
  if (!leading_ || leading_->phase != Leading::Phase::kProposed || !leading_->durable)
    return std::nullopt;
  return SendProposal{leading_->term, leading_->body};
}

bool Agreement::Preparing(Term term) const {
  return leading_ && leading_->term == term && leading_->phase == Leading::Phase::kPreparing;
}

void Agreement::Lead(Term term, Actions& out) {
  LOOM_CHECK(MayLead(term), "term {}", term);
  leading_ = Leading{};
  leading_->term = term;
  if (term == 0) {
    leading_->phase = Leading::Phase::kChoosing;
    out.push_back(MayChoose{term});
    return;
  }
  out.push_back(SendPrepare{term});
  OnPrepare(self_, term, out);
}

void Agreement::Choose(Term term, Blob body, Actions& out) {
  if (decided_ || !leading_ || leading_->term != term ||
      leading_->phase != Leading::Phase::kChoosing || term < state_.promised) {
    return;
  }
  ProposeBody(std::move(body), out);
}

void Agreement::ProposeBody(Blob body, Actions& out) {
  leading_->phase = Leading::Phase::kProposed;
  leading_->body = body;
  state_.led = leading_->term;
  Persist(EntryOf(Entry::kLed, id_, leading_->term, state_.seq),
          SendProposal{leading_->term, std::move(body)}, out);
}

void Agreement::OnPrepare(const PeerId& from, Term term, Actions& out) {
  if (decided_ || term == 0 || LeaderOf(members_, id_.round, term) != from ||
      !IsMember(members_, self_)) {
    return;
  }
  if (term < state_.promised) {
    out.push_back(SendNack{from, state_.promised});
    return;
  }
  if (promise_ && promise_->term == term) {  // asked again: the same word, once it is on disk
    if (promise_durable_) out.push_back(SendPromise{from, *promise_});
    return;
  }
  Promise promise;
  promise.peer = self_;
  promise.term = term;
  promise.last = state_.vote;
  promise.seq = ++state_.seq;
  promise.signature = signer_->Sign(kPromiseDomain, PromiseText(id_, promise));
  state_.promised = term;
  if (proposal_ && proposal_->term < term) proposal_.reset();
  promise_ = promise;
  promise_durable_ = false;
  Persist(EntryOf(Entry::kPromise, id_, term, state_.seq), SendPromise{from, std::move(promise)},
          out);
}

void Agreement::OnPromise(const Promise& promise, Actions& out) {
  if (decided_ || !leading_ || leading_->phase != Leading::Phase::kPreparing ||
      promise.term != leading_->term) {
    return;
  }
  const crypto::PublicKey* key = KeyOf(promise.peer);
  if (key == nullptr ||
      !signer_->Verify(*key, kPromiseDomain, PromiseText(id_, promise), promise.signature)) {
    return;
  }
  if (promise.last && (promise.last->vote.peer != promise.peer ||
                       promise.last->vote.term > promise.term || !VerifyVote(promise.last->vote) ||
                       BodyHash(*promise.last->body) != promise.last->vote.body)) {
    return;
  }
  auto& held = leading_->promises;
  const auto same = std::find_if(held.begin(), held.end(),
                                 [&](const Promise& p) { return p.peer == promise.peer; });
  if (same != held.end()) return;
  // Kept in order of id, so that the state does not remember the order of arrival.
  held.insert(std::upper_bound(held.begin(), held.end(), promise,
                               [](const Promise& a, const Promise& b) { return a.peer < b.peer; }),
              promise);
  if (promise.last) OnVote(promise.last->vote, out);
  if (!decided_) ConsiderPromises(out);
}

void Agreement::ConsiderPromises(Actions& out) {
  std::set<PeerId> who;
  const CastVote* highest = nullptr;
  for (const Promise& p : leading_->promises) {
    who.insert(p.peer);
    if (p.last && (highest == nullptr || p.last->vote.term > highest->vote.term))
      highest = &*p.last;
  }
  if (!IsQuorum(members_, who, rule_)) return;
  if (highest != nullptr && !LOOM_PLANTED(votes_ignored)) {
    ProposeBody(highest->body, out);
  } else {
    leading_->phase = Leading::Phase::kChoosing;
    out.push_back(MayChoose{leading_->term});
  }
}

void Agreement::OnProposal(const PeerId& from, Term term, Blob body, Actions& out) {
  if (decided_ || LeaderOf(members_, id_.round, term) != from) return;
  const Hash hash = BodyHash(*body);
  if (!IsMember(members_, self_)) return;
  if (term < state_.promised) {
    out.push_back(SendNack{from, state_.promised});
    return;
  }
  if (state_.vote && state_.vote->vote.term >= term) {
    if (state_.vote->vote.term == term && state_.vote->vote.body == hash && vote_durable_) {
      out.push_back(SendVote{state_.vote->vote});
    }
    return;
  }
  if (proposal_ &&
      (proposal_->term > term || (proposal_->term == term && proposal_->hash == hash))) {
    return;
  }
  proposal_ = Proposal{term, hash, body};
  out.push_back(CheckBody{term, hash, std::move(body)});
  ConsiderVotes(out);
}

void Agreement::OnBodyChecked(const Hash& hash, Actions& out) {
  if (decided_ || !proposal_ || proposal_->hash != hash) return;
  const Term term = proposal_->term;
  if (term < state_.promised || (state_.vote && state_.vote->vote.term >= term)) return;
  CastVote cast;
  cast.vote.peer = self_;
  cast.vote.term = term;
  cast.vote.body = hash;
  cast.vote.seq = ++state_.seq;
  cast.vote.signature = signer_->Sign(kVoteDomain, VoteText(id_, cast.vote));
  cast.body = proposal_->body;
  Bytes entry = EntryOf(Entry::kVote, id_, term, state_.seq, &cast);
  const Vote vote = cast.vote;
  state_.promised = term;  // R3: a vote in term t is also a promise of t
  state_.vote = std::move(cast);
  vote_durable_ = false;
  proposal_.reset();
  Persist(std::move(entry), SendVote{vote}, out);
}

void Agreement::OnVote(const Vote& vote, Actions& out) {
  if (decided_ || !VerifyVote(vote)) return;
  std::size_t of_member = 0;
  for (const Vote& held : votes_) {
    if (held.peer != vote.peer) continue;
    if (held.term == vote.term) {
      if (held.body != vote.body) out.push_back(Evidence{id_, held, vote});
      return;
    }
    ++of_member;
  }
  if (of_member >= kMaxVotesOfOneMember) {
    const auto oldest =
        std::min_element(votes_.begin(), votes_.end(), [&](const Vote& a, const Vote& b) {
          const bool mine_a = a.peer == vote.peer;
          const bool mine_b = b.peer == vote.peer;
          return mine_a != mine_b ? mine_a : a.term < b.term;
        });
    votes_.erase(oldest);
  }
  votes_.insert(std::upper_bound(votes_.begin(), votes_.end(), vote,
                                 [](const Vote& a, const Vote& b) {
                                   return std::tie(a.peer, a.term) < std::tie(b.peer, b.term);
                                 }),
                vote);
  ConsiderVotes(out);
}

void Agreement::ConsiderVotes(Actions& out) {
  if (decided_) return;
  for (const Vote& candidate : votes_) {
    std::set<PeerId> who;
    for (const Vote& v : votes_) {
      if (v.term == candidate.term && v.body == candidate.body) who.insert(v.peer);
    }
    if (IsQuorum(members_, who, rule_) && FindBody(candidate.body) != nullptr) {
      Decide(candidate.body, candidate.term, out);
      return;
    }
  }
}

void Agreement::Decide(const Hash& hash, Term term, Actions& out) {
  Result<Record> record = Record::FromBody(FindBody(hash));
  if (!record) return;  // a body nobody can read was voted for: no honest member did
  record->term = term;
  for (const Vote& v : votes_) {
    if (v.term == term && v.body == hash) record->votes.push_back(v);
  }
  decided_ = true;
  out.push_back(Decided{std::move(record).value()});
}

Blob Agreement::FindBody(const Hash& hash) const {
  if (proposal_ && proposal_->hash == hash) return proposal_->body;
  if (state_.vote && state_.vote->vote.body == hash) return state_.vote->body;
  if (leading_) {
    for (const Promise& p : leading_->promises) {
      if (p.last && p.last->vote.body == hash) return p.last->body;
    }
    if (leading_->body != nullptr && BodyHash(*leading_->body) == hash) return leading_->body;
  }
  return nullptr;
}

void Agreement::Persist(Bytes entry, Action release, Actions& out) {
  const std::uint64_t token = next_token_++;
  pending_.push_back({token, std::move(release)});
  out.push_back(PersistVoter{token, std::move(entry)});
}

void Agreement::OnPersisted(std::uint64_t token, Actions& out) {
  const auto it = std::find_if(pending_.begin(), pending_.end(),
                               [&](const Pending& p) { return p.token == token; });
  if (it == pending_.end()) return;
  Action action = std::move(it->release);
  pending_.erase(it);
  Release(std::move(action), out);
}

// Words to others leave only here, after they are on disk; a word to itself is heard at once.
void Agreement::Release(Action action, Actions& out) {
  if (const auto* promise = std::get_if<SendPromise>(&action)) {
    if (promise_ && promise_->seq == promise->promise.seq) promise_durable_ = true;
    if (promise->to == self_) {
      OnPromise(promise->promise, out);
      return;
    }
  }
  if (const auto* vote = std::get_if<SendVote>(&action)) {
    if (state_.vote && state_.vote->vote == vote->vote) vote_durable_ = true;
    const Vote own = vote->vote;
    out.push_back(std::move(action));
    OnVote(own, out);
    return;
  }
  if (const auto* proposal = std::get_if<SendProposal>(&action)) {
    const Term term = proposal->term;
    const Blob body = proposal->body;
    if (leading_ && leading_->term == term) leading_->durable = true;
    out.push_back(std::move(action));
    OnProposal(self_, term, body, out);
    return;
  }
  out.push_back(std::move(action));
}

const crypto::PublicKey* Agreement::KeyOf(const PeerId& peer) const {
  const Member* member = FindMember(members_, peer);
  return member == nullptr ? nullptr : &member->key;
}

bool Agreement::VerifyVote(const Vote& vote) const {
  const crypto::PublicKey* key = KeyOf(vote.peer);
  return key != nullptr && signer_->Verify(*key, kVoteDomain, VoteText(id_, vote), vote.signature);
}

// Sequence numbers and signatures are left out: nothing here depends on them, and they grow
// forever.
void Agreement::EncodeState(Writer& out) const {
  const auto put_vote = [&](const Vote& v) {
    out.Id(v.peer);
    out.Int(v.term);
    out.Id(v.body);
  };
  const auto put_promise = [&](const Promise& p) {
    out.Id(p.peer);
    out.Int(p.term);
    out.Bool(p.last.has_value());
    if (p.last) put_vote(p.last->vote);
  };
  id_.Encode(out);
  out.Int(state_.promised);
  out.Bool(state_.vote.has_value());
  if (state_.vote) put_vote(state_.vote->vote);
  out.Bool(state_.led.has_value());
  out.Int(state_.led.value_or(0));
  out.Bool(vote_durable_);
  out.Bool(promise_.has_value());
  if (promise_) put_promise(*promise_);
  out.Bool(promise_durable_);
  out.Count(pending_.size());
  for (const Pending& p : pending_) {
    out.Int(static_cast<std::uint8_t>(p.release.index()));
    if (const auto* promise = std::get_if<SendPromise>(&p.release)) put_promise(promise->promise);
    if (const auto* vote = std::get_if<SendVote>(&p.release)) put_vote(vote->vote);
    if (const auto* proposal = std::get_if<SendProposal>(&p.release)) {
      out.Int(proposal->term);
      out.Id(BodyHash(*proposal->body));
    }
  }
  out.Bool(leading_.has_value());
  if (leading_) {
    out.Int(leading_->term);
    out.Int(static_cast<std::uint8_t>(leading_->phase));
    out.Bool(leading_->durable);
    out.Count(leading_->promises.size());
    for (const Promise& p : leading_->promises) put_promise(p);
    if (leading_->body != nullptr) out.Id(BodyHash(*leading_->body));
  }
  out.Bool(proposal_.has_value());
  if (proposal_) {
    out.Int(proposal_->term);
    out.Id(proposal_->hash);
  }
  out.Count(votes_.size());
  for (const Vote& v : votes_) put_vote(v);
  out.Bool(decided_);
}

}  // namespace loom::collab
