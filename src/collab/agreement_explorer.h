// An explicit-state explorer of the real Agreement class (rules R1-R6, R10, R12), for tests.
//
// A global state is one local state per member, the set of messages that may still be heard, and
// what was decided. Messages are never consumed, so each may be heard at any time, any number of
// times or never: loss, duplication and reordering at once. A crash loses RAM and unsynced writes;
// the member restarts from its disk. Checked in every state: no decision has two quorums of votes
// that left their voters, nobody learns a record that has no such quorum, no honest member signs
// two votes of a term.
//
// Each local step is computed once by the real class and remembered as (local state, event) ->
// (local state, messages); after that the search is integer work. What keeps the number of states
// small, and why nothing is lost by it:
//  - A record is synced in the step that learns it. Between the two a member says nothing that it
//  could
//    not have said before learning, so a crash between them equals a crash before. Chosen-ness is
//    read from the votes that left, not from who learned them.
//  - The record of round r is called "the record of round r with these next members" by the round
//    after it: a second one is a violation, at which the search stops.
//  - A message is dropped when it can change nothing at its addressee in any future: its round is
//  over
//    there on disk; it is below what the addressee promised, voted or led on disk; or no crash is
//    left and it was taken in already (all these only grow without a crash).
//  - Sequence numbers and signatures are not part of a state: no rule of the core reads them.
// A leader that restarts may choose another body: bodies differ by leader, term and restart count.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <deque>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "collab/agreement.h"
#include "crypto/hash.h"

namespace loom::collab::testing {

class TrustingSigner final : public Signer {
 public:
  crypto::Signature Sign(std::string_view, ByteView) const override { return {}; }
  bool Verify(const crypto::PublicKey&, std::string_view, ByteView,
              const crypto::Signature&) const override {
    return true;
  }
};

/// Members in seniority order, with keys that nobody holds.
inline std::vector<Member> MakeMembers(std::size_t n) {
  std::vector<Member> members;
  for (std::size_t i = 0; i < n; ++i) {
    Member m;
    m.key.bytes[0] = static_cast<std::byte>(i + 1);
    m.id = crypto::PeerIdOf(m.key);
    members.push_back(m);
  }
  SortBySeniority(members);
  return members;
}

/// Planted by dropping or altering what passes between the class and its world.
enum class Fault {
  kNone,
  kVoteNotSynced,         ///< R3: the vote leaves, the disk loses it
  kTakeoverIgnoresVotes,  ///< R4: a leader does not see the votes in the promises of others
  kVoteRaisesNoPromise,  ///< R3, trace 1: only an explicit promise and a vote of the same term bind
  kForgetsThatItLed,     ///< R2: the leader's own mark is lost
  kRecordNotSynced,      ///< R3, trace 2: the record of r is not on disk when r+1 is voted on
};

struct Limits {
  std::size_t members = 3;
  Round rounds = 2;
  Term terms = 2;
  int crashes = 1;
  /// Rule R12: the body of term t in round 1 delists the member of this index (none when absent).
  std::vector<std::size_t> delisted_by_term = {};
  Fault fault = Fault::kNone;
  /// A member takes nothing else in while a write of it is under way (it may crash). Leaves out
  /// runs with a slow disk, for configurations that are too large with them.
  bool prompt_disk = false;
  bool keep_messages = false;  ///< drop none: what the dropping is compared with
  bool count_combinations = false;
  std::size_t max_states = 60'000'000;
};

struct Outcome {
  std::size_t states = 0, locals = 0, steps = 0, messages = 0, message_sets = 0;
  std::size_t combinations = 0;  ///< distinct tuples of local states
  std::size_t finished = 0;  ///< states in which every member holds every record that it votes on
  bool complete = false;
  std::string violation;
  std::vector<std::string> trace;
};

class Explorer {
 public:
  explicit Explorer(Limits limits)
      : limits_(std::move(limits)), all_(MakeMembers(limits_.members)) {
    LOOM_CHECK(limits_.members <= kMaxNodes && limits_.rounds <= 4);
  }

  Outcome Run() {
    State first{};
    for (std::size_t i = 0; i < limits_.members; ++i) {
      Node node;
      node.self = i;
      node.members = {all_};
      node.links = {crypto::Sha256(AsBytes("genesis"))};
      node.synced = 1;
      Start(node);
      first.local[i] = Intern(std::move(node));
    }
    first.set = InternSet({});
    table_.assign(std::size_t{1} << 16, 0);
    Visit(first, 0, 0);
    std::size_t at = 0;
    for (; at < states_.size() && outcome_.violation.empty() && states_.size() < limits_.max_states;
         ++at) {
      Expand(static_cast<std::uint32_t>(at));
    }
    outcome_.complete = at == states_.size() && outcome_.violation.empty();
    outcome_.states = states_.size();
    std::set<std::array<std::uint32_t, kMaxNodes>> combinations;
    if (limits_.count_combinations) {
      for (const State& s : states_) combinations.insert(s.local);
    }
    outcome_.combinations = combinations.size();
    outcome_.finished = static_cast<std::size_t>(std::count_if(
        states_.begin(), states_.end(), [&](const State& s) { return IsFinished(s); }));
    outcome_.locals = locals_.size();
    outcome_.steps = steps_.size();
    outcome_.messages = messages_.size();
    outcome_.message_sets = sets_.size();
    return outcome_;
  }

 private:
  static constexpr std::size_t kMaxNodes = 4, kWords = 6, kNobody = 99;
  static constexpr std::uint8_t kPassed = 255;
  static constexpr std::uint32_t kWrite = 0, kCrash = 1, kLead = 2, kHear = 16;
  using Bits = std::array<std::uint64_t, kWords>;
  using What = std::variant<SendPrepare, SendPromise, SendProposal, SendVote, Decided>;

  struct Node {
    std::size_t self = 0;
    std::optional<Agreement> agreement;  ///< empty when there is nothing more to decide here
    std::vector<std::pair<std::uint64_t, Bytes>> writes;  ///< given to the disk, not yet synced
    VoterState disk;
    std::vector<Hash> links;  ///< names of the records held; links[r] is the parent of round r + 1
    std::vector<std::vector<Member>> members;  ///< beside each record
    std::size_t synced = 0;                    ///< records on disk
    std::uint8_t restarts = 0;
    Term promised = 0;        ///< kVoteRaisesNoPromise: what was promised in so many words
    std::uint32_t voted = 0;  ///< kVoteRaisesNoPromise: bits of terms
  };
  struct Message {
    std::size_t from = 0, to = 0;  ///< to kNobody: kept as history of the votes that left
    DecisionId id;
    What what;
    std::uint32_t body = 0;  ///< of votes and records: index of the body, from 1
  };
  struct StepResult {
    std::uint32_t local = 0;
    std::vector<std::uint32_t> sent;
    std::uint32_t learned = 0, learned_round = 0;
    std::string violation;
  };
  struct Local {
    Node node;
    std::vector<std::uint32_t> next;  ///< by event: index of the step + 1, 0 = not computed
    Bits judged{}, dead{}, judged_taken{}, taken{};
  };
  struct State {
    std::array<std::uint32_t, kMaxNodes> local;
    std::uint32_t set;
    std::array<std::uint8_t, 4> decided;
    bool operator==(const State&) const = default;
  };
  struct Origin {
    std::uint32_t parent, event;
  };

  // The search.

  void Expand(std::uint32_t at) {
    const State state = states_[at];
    int crashes = 0;
    for (std::size_t i = 0; i < limits_.members; ++i)
      crashes += locals_[state.local[i]].node.restarts;
    for (std::size_t i = 0; i < limits_.members; ++i) {
      const Node& node = locals_[state.local[i]].node;
      if (!node.agreement && node.synced == node.links.size()) continue;
      if (!node.writes.empty()) Take(at, state, i, kWrite);
      if (crashes < limits_.crashes) Take(at, state, i, kCrash);
      if (!node.agreement || IsBusy(node)) continue;
      for (Term t = 0; t < limits_.terms; ++t) {
        if (node.agreement->MayLead(t)) Take(at, state, i, kLead + static_cast<std::uint32_t>(t));
      }
    }
    const Bits set = sets_[state.set];
    ForEach(set, [&](std::uint32_t m) {
      const Message& message = messages_[m];
      if (message.to == kNobody) return;
      const Node& node = locals_[state.local[message.to]].node;
      if (node.agreement && !IsBusy(node) && node.agreement->id() == message.id)
        Take(at, state, message.to, kHear + m);
    });
  }

  bool IsBusy(const Node& node) const { return limits_.prompt_disk && !node.writes.empty(); }

  void Take(std::uint32_t at, const State& from, std::size_t i, std::uint32_t event) {
    const StepResult& step = StepOf(from.local[i], event);
    if (!step.violation.empty()) return Violate(step.violation, at, i, event);
    if (step.local == from.local[i] && step.sent.empty()) return;
    State next = from;
    next.local[i] = step.local;
    Bits set = sets_[from.set];
    bool voted = false;
    for (const std::uint32_t m : step.sent) {
      voted = voted || (messages_[m].to == kNobody && !Has(set, m));
      set[m / 64] |= std::uint64_t{1} << (m % 64);
    }
    if (voted) {
      for (const std::uint32_t m : step.sent) {
        if (messages_[m].to == kNobody && !CountVotes(set, messages_[m], next)) {
          return Violate("two records of one decision", at, i, event);
        }
      }
    }
    if (step.learned != 0 && next.decided[step.learned_round - 1] != step.learned) {
      return Violate("a record learned that no quorum voted for", at, i, event);
    }
    Simplify(next, set);
    Visit(next, at, (static_cast<std::uint32_t>(i) << 24) | event);
  }

  /// False when the vote makes a second record.
  bool CountVotes(const Bits& set, const Message& last, State& state) const {
    const Vote& vote = std::get<SendVote>(last.what).vote;
    std::set<PeerId> who;
    ForEach(set, [&](std::uint32_t m) {
      if (messages_[m].to != kNobody || messages_[m].id != last.id) return;
      const Vote& v = std::get<SendVote>(messages_[m].what).vote;
      if (v.term == vote.term && v.body == vote.body) who.insert(v.peer);
    });
    if (!IsQuorum(members_of_.at(last.id.parent), who, QuorumRule::kMajority)) return true;
    std::uint8_t& decided = state.decided[last.id.round - 1];
    if (decided == 0) decided = static_cast<std::uint8_t>(last.body);
    return decided == last.body;
  }

  void Simplify(State& state, Bits& set) {
    int crashes = 0;
    std::size_t passed = limits_.rounds + 1;
    for (std::size_t i = 0; i < limits_.members; ++i) {
      const Node& node = locals_[state.local[i]].node;
      crashes += node.restarts;
      passed = std::min(passed, node.synced);
    }
    for (std::size_t i = 0; i < limits_.members && !limits_.keep_messages; ++i) {
      Drop(set, state.local[i], crashes >= limits_.crashes);
    }
    for (std::size_t r = 1; r < passed; ++r) {
      state.decided[r - 1] = kPassed;
      for (std::size_t w = 0; w < kWords; ++w) set[w] &= ~history_[r - 1][w];
    }
    if (set != sets_[state.set]) state.set = InternSet(set);
  }

  bool IsFinished(const State& state) const {
    for (std::size_t i = 0; i < limits_.members; ++i) {
      if (locals_[state.local[i]].node.agreement) return false;
    }
    return state.decided[limits_.rounds - 1] != 0;
  }

  void Visit(const State& state, std::uint32_t parent, std::uint32_t event) {
    std::size_t slot = HashOf(state) & (table_.size() - 1);
    while (table_[slot] != 0) {
      if (states_[table_[slot] - 1] == state) return;
      slot = (slot + 1) & (table_.size() - 1);
    }
    states_.push_back(state);
    origins_.push_back({parent, event});
    table_[slot] = static_cast<std::uint32_t>(states_.size());
    if (2 * states_.size() < table_.size()) return;
    table_.assign(2 * table_.size(), 0);
    for (std::size_t k = 0; k < states_.size(); ++k) {
      slot = HashOf(states_[k]) & (table_.size() - 1);
      while (table_[slot] != 0) slot = (slot + 1) & (table_.size() - 1);
      table_[slot] = static_cast<std::uint32_t>(k + 1);
    }
  }

  static std::size_t HashOf(const State& s) {
    std::uint64_t h = 0x9E3779B97F4A7C15ULL;
    const auto mix = [&](std::uint64_t v) {
      h = (h ^ v) * 0xFF51AFD7ED558CCDULL;
      h ^= h >> 32;
    };
    for (const std::uint32_t l : s.local) mix(l);
    mix(s.set);
    mix(std::bit_cast<std::uint32_t>(s.decided));
    return h;
  }

  void Violate(const std::string& what, std::uint32_t at, std::size_t i, std::uint32_t event) {
    if (!outcome_.violation.empty()) return;
    outcome_.violation = what;
    outcome_.trace = {Describe((static_cast<std::uint32_t>(i) << 24) | event)};
    for (; at != 0; at = origins_[at].parent)
      outcome_.trace.push_back(Describe(origins_[at].event));
    std::reverse(outcome_.trace.begin(), outcome_.trace.end());
  }

  // What a message can still do.

  /// Takes out of `set` what can do nothing at its addressee, a member in state `local`.
  void Drop(Bits& set, std::uint32_t local, bool no_crash_left) {
    Local& at = locals_[local];
    const Bits& mine = inbox_[at.node.self];
    for (std::size_t w = 0; w < kWords; ++w) {
      for (std::uint64_t fresh = set[w] & mine[w] & ~at.judged[w]; fresh != 0; fresh &= fresh - 1) {
        const std::uint64_t bit = fresh & (~fresh + 1);
        const auto m =
            static_cast<std::uint32_t>(64 * w + static_cast<std::size_t>(std::countr_zero(fresh)));
        const bool dead = IsDead(at.node, messages_[m]);
        if (dead) at.dead[w] |= bit;
        at.judged[w] |= bit;
      }
      set[w] &= ~at.dead[w];
      if (!no_crash_left) continue;
      for (std::uint64_t fresh = set[w] & mine[w] & ~at.judged_taken[w]; fresh != 0;
           fresh &= fresh - 1) {
        const std::uint64_t bit = fresh & (~fresh + 1);
        const auto m =
            static_cast<std::uint32_t>(64 * w + static_cast<std::size_t>(std::countr_zero(fresh)));
        if (IsTaken(local, m)) at.taken[w] |= bit;
        at.judged_taken[w] |= bit;
      }
      set[w] &= ~at.taken[w];
    }
  }

  /// Nothing at the addressee can change by it, not even after a crash.
  bool IsDead(const Node& node, const Message& message) const {
    if (message.id.round < node.synced) return true;
    if (node.disk.id != message.id || limits_.fault == Fault::kVoteRaisesNoPromise) return false;
    const bool voted = node.disk.vote.has_value();
    if (const auto* p = std::get_if<SendPrepare>(&message.what))
      return node.disk.promised > p->term;
    if (const auto* p = std::get_if<SendProposal>(&message.what)) {
      return node.disk.promised > p->term || (voted && node.disk.vote->vote.term >= p->term);
    }
    if (const auto* p = std::get_if<SendPromise>(&message.what)) {
      return (node.disk.led && *node.disk.led >= p->promise.term) ||
             (node.disk.promised > p->promise.term && node.agreement &&
              node.agreement->id() == message.id && !node.agreement->Preparing(p->promise.term));
    }
    return false;
  }

  /// Taken in already: without a crash it never changes anything again.
  bool IsTaken(std::uint32_t local, std::uint32_t m) {
    const Node& node = locals_[local].node;
    const What& what = messages_[m].what;
    if (!node.agreement || node.agreement->id() != messages_[m].id ||
        limits_.fault == Fault::kVoteRaisesNoPromise || std::holds_alternative<Decided>(what)) {
      return false;
    }
    if (const auto* p = std::get_if<SendPromise>(&what)) {
      if (!node.agreement->Preparing(p->promise.term))
        return !node.agreement->MayLead(p->promise.term);
    }
    return StepOf(local, kHear + m).local == local;
  }

  // One member's step, by the real class.

  const StepResult& StepOf(std::uint32_t local, std::uint32_t event) {
    auto& next = locals_[local].next;
    if (next.size() <= event) next.resize(event + 1, 0);
    if (next[event] == 0) {
      StepResult result;
      Node node = locals_[local].node;
      Perform(node, event, result);
      result.local = Intern(std::move(node));
      steps_.push_back(std::move(result));
      locals_[local].next[event] = static_cast<std::uint32_t>(steps_.size());
    }
    return steps_[locals_[local].next[event] - 1];
  }

  void Perform(Node& node, std::uint32_t event, StepResult& out) {
    Actions actions;
    if (event == kWrite) {
      auto [token, entry] = node.writes.front();
      node.writes.erase(node.writes.begin());
      ToDisk(node, entry);
      node.agreement->OnPersisted(token, actions);
    } else if (event == kCrash) {
      ++node.restarts;
      node.writes.clear();
      node.links.resize(node.synced);
      node.members.resize(node.synced);
      Start(node);
    } else if (event < kHear) {
      node.agreement->Lead(event - kLead, actions);
    } else {
      Hear(node, messages_[event - kHear], actions, out);
    }
    Carry(node, std::move(actions), out);
  }

  void ToDisk(Node& node, ByteView entry) {
    const VoterState before = node.disk;
    LOOM_CHECK(node.disk.Apply(entry).ok());
    if (node.disk.id != before.id) node.promised = 0, node.voted = 0;
    const bool new_vote = node.disk.vote && (!before.vote || node.disk.id != before.id ||
                                             node.disk.vote->vote.term != before.vote->vote.term);
    if (new_vote) node.voted |= 1U << node.disk.vote->vote.term;
    if (!new_vote) node.promised = std::max(node.promised, node.disk.promised);
    if (limits_.fault == Fault::kVoteNotSynced && new_vote) node.disk = before;
    if (limits_.fault == Fault::kForgetsThatItLed) node.disk.led.reset();
  }

  void Hear(Node& node, const Message& message, Actions& actions, StepResult& out) {
    const PeerId& from = all_[message.from].id;
    if (const auto* p = std::get_if<SendPrepare>(&message.what)) {
      node.agreement->OnPrepare(from, p->term, actions);
    } else if (const auto* q = std::get_if<SendPromise>(&message.what)) {
      Promise promise = q->promise;
      if (limits_.fault == Fault::kTakeoverIgnoresVotes) promise.last.reset();
      node.agreement->OnPromise(promise, actions);
    } else if (const auto* x = std::get_if<SendProposal>(&message.what)) {
      if (limits_.fault == Fault::kVoteRaisesNoPromise && node.writes.empty() && node.disk.vote &&
          node.disk.vote->vote.term > x->term && node.promised <= x->term &&
          ((node.voted >> x->term) & 1U) == 0) {
        VoterState forgetful = node.disk;
        forgetful.promised = node.promised;
        forgetful.vote.reset();
        node.disk = forgetful;
        Start(node);
      }
      node.agreement->OnProposal(from, x->term, x->body, actions);
    } else if (const auto* v = std::get_if<SendVote>(&message.what)) {
      node.agreement->OnVote(v->vote, actions);
    } else if (const auto* d = std::get_if<Decided>(&message.what)) {
      Learn(node, d->record, out);
    }
  }

  void Carry(Node& node, Actions actions, StepResult& out) {
    for (std::size_t k = 0; k < actions.size() && node.agreement; ++k) {
      Actions more;
      const Action action = actions[k];
      const DecisionId id = node.agreement->id();
      if (const auto* write = std::get_if<PersistVoter>(&action)) {
        node.writes.emplace_back(write->token, write->entry);
      } else if (const auto* promise = std::get_if<SendPromise>(&action)) {
        Send(node, IndexOf(promise->to), id, *promise, 0, out);
      } else if (const auto* prepare = std::get_if<SendPrepare>(&action)) {
        SendAll(node, id, *prepare, 0, out);
      } else if (const auto* proposal = std::get_if<SendProposal>(&action)) {
        SendAll(node, id, *proposal, 0, out);
      } else if (const auto* vote = std::get_if<SendVote>(&action)) {
        SendAll(node, id, *vote, BodyIndex(vote->vote.body), out);
        Send(node, kNobody, id, *vote, BodyIndex(vote->vote.body), out);
      } else if (const auto* check = std::get_if<CheckBody>(&action)) {
        node.agreement->OnBodyChecked(check->hash, more);
      } else if (const auto* choose = std::get_if<MayChoose>(&action)) {
        node.agreement->Choose(choose->term, BodyOf(node, choose->term), more);
      } else if (const auto* decided = std::get_if<Decided>(&action)) {
        Learn(node, decided->record, out);
        return;
      } else if (std::holds_alternative<Evidence>(action) && limits_.fault == Fault::kNone) {
        out.violation = "an honest member signed two votes of one term";
      }
      actions.insert(actions.end(), more.begin(), more.end());
    }
  }

  void Learn(Node& node, const Record& record, StepResult& out) {
    out.learned = BodyIndex(record.hash);
    out.learned_round = static_cast<std::uint32_t>(record.body.round);
    SendAll(node, node.agreement->id(), Decided{record}, out.learned, out);
    wire::Writer name;
    name.Int(record.body.round);
    for (const Member& m : record.body.members) name.Id(m.id);
    node.links.push_back(crypto::Sha256(name.bytes()));
    node.members.push_back(record.body.members);
    if (limits_.fault != Fault::kRecordNotSynced) node.synced = node.links.size();
    node.writes.clear();
    Start(node);
  }

  void Start(Node& node) {
    node.agreement.reset();
    members_of_.emplace(node.links.back(), node.members.back());
    if (node.links.size() > limits_.rounds || !IsMember(node.members.back(), all_[node.self].id))
      return;
    const DecisionId id{0, node.links.size(), node.links.back()};
    node.agreement.emplace(id, node.members.back(), all_[node.self].id, QuorumRule::kMajority,
                           signer_, node.disk);
  }

  Blob BodyOf(const Node& node, Term term) const {
    Body body;
    body.round = node.agreement->id().round;
    body.parent = node.agreement->id().parent;
    body.members = node.members.back();
    if (body.round == 1 && term < limits_.delisted_by_term.size()) {
      const PeerId out = all_[limits_.delisted_by_term[term]].id;
      std::erase_if(body.members, [&](const Member& m) { return m.id == out; });
    }
    body.payload = {static_cast<std::byte>(node.self), static_cast<std::byte>(term),
                    static_cast<std::byte>(node.restarts)};
    return MakeBlob(body.Encode());
  }

  std::size_t IndexOf(const PeerId& peer) const {
    const auto it =
        std::find_if(all_.begin(), all_.end(), [&](const Member& m) { return m.id == peer; });
    return static_cast<std::size_t>(it - all_.begin());
  }

  std::uint32_t BodyIndex(const Hash& hash) {
    const auto it = bodies_.try_emplace(hash, static_cast<std::uint32_t>(bodies_.size() + 1)).first;
    LOOM_CHECK(it->second < kPassed);
    return it->second;
  }

  // Messages and states as small numbers.

  void SendAll(const Node& node, const DecisionId& id, const What& what, std::uint32_t body,
               StepResult& out) {
    for (std::size_t to = 0; to < limits_.members; ++to) {
      if (to != node.self) Send(node, to, id, what, body, out);
    }
  }

  void Send(const Node& node, std::size_t to, const DecisionId& id, const What& what,
            std::uint32_t body, StepResult& out) {
    wire::Writer key;
    key.Int<std::uint64_t>(node.self);
    key.Int<std::uint64_t>(to);
    id.Encode(key);
    key.Int<std::uint64_t>(what.index());
    key.Int(body);
    if (const auto* p = std::get_if<SendPrepare>(&what)) key.Int(p->term);
    if (const auto* p = std::get_if<SendPromise>(&what)) {
      key.Int(p->promise.term);
      if (p->promise.last) PutVote(p->promise.last->vote, key);
    }
    if (const auto* p = std::get_if<SendProposal>(&what)) {
      key.Int(p->term);
      key.Id(BodyHash(*p->body));
    }
    if (const auto* p = std::get_if<SendVote>(&what)) PutVote(p->vote, key);
    const auto index = static_cast<std::uint32_t>(messages_.size());
    const auto [it, fresh] = message_index_.try_emplace(std::string(AsText(key.bytes())), index);
    if (fresh) {
      LOOM_CHECK(index < 64 * kWords, "raise kWords");
      messages_.push_back({node.self, to, id, what, body});
      Bits& group = to == kNobody ? history_[id.round - 1] : inbox_[to];
      group[index / 64] |= std::uint64_t{1} << (index % 64);
    }
    out.sent.push_back(it->second);
  }

  static void PutVote(const Vote& vote, wire::Writer& key) {
    key.Id(vote.peer);
    key.Int(vote.term);
    key.Id(vote.body);
  }

  std::uint32_t Intern(Node node) {
    wire::Writer key;
    key.Int<std::uint64_t>(node.self);
    key.Int(node.restarts);
    key.Int<std::uint64_t>(node.links.size());
    key.Int<std::uint64_t>(node.synced);
    for (const Hash& h : node.links) key.Id(h);
    key.Count(node.writes.size());
    key.Bool(node.agreement.has_value());
    if (node.agreement) {
      node.agreement->EncodeState(key);
      if (node.disk.id == node.agreement->id() || node.synced < node.links.size()) {
        key.Int(node.disk.id.round);
        key.Int(node.disk.promised);
        if (node.disk.vote) PutVote(node.disk.vote->vote, key);
        key.Int(node.disk.led ? *node.disk.led + 1 : 0);
      }
    }
    if (limits_.fault == Fault::kVoteRaisesNoPromise) {
      key.Int(node.promised);
      key.Int(node.voted);
    }
    const auto [it, fresh] = local_index_.try_emplace(std::string(AsText(key.bytes())),
                                                      static_cast<std::uint32_t>(locals_.size()));
    if (fresh) locals_.push_back(Local{std::move(node), {}, {}, {}, {}, {}});
    return it->second;
  }

  struct BitsHash {
    std::size_t operator()(const Bits& bits) const {
      std::uint64_t h = 0;
      for (const std::uint64_t w : bits) h = (h ^ w ^ (h >> 29)) * 0xFF51AFD7ED558CCDULL;
      return h ^ (h >> 32);
    }
  };

  std::uint32_t InternSet(const Bits& bits) {
    const auto [it, fresh] = set_index_.try_emplace(bits, static_cast<std::uint32_t>(sets_.size()));
    if (fresh) sets_.push_back(bits);
    return it->second;
  }

  static bool Has(const Bits& bits, std::uint32_t m) {
    return ((bits[m / 64] >> (m % 64)) & 1U) != 0;
  }

  template <class F>
  static void ForEach(const Bits& bits, F&& f) {
    for (std::size_t w = 0; w < kWords; ++w) {
      for (std::uint64_t rest = bits[w]; rest != 0; rest &= rest - 1) {
        f(static_cast<std::uint32_t>(64 * w + static_cast<std::size_t>(std::countr_zero(rest))));
      }
    }
  }

  std::string Describe(std::uint32_t packed) const {
    const std::size_t i = packed >> 24;
    const std::uint32_t event = packed & 0xFFFFFF;
    const std::string who = fmt::format("member {}", i);
    if (event == kWrite) return who + ": its oldest write is on disk";
    if (event == kCrash) return who + ": crashes and restarts from its disk";
    if (event < kHear) return fmt::format("{}: leads term {}", who, event - kLead);
    const Message& m = messages_[event - kHear];
    std::string what;
    if (const auto* p = std::get_if<SendPrepare>(&m.what))
      what = fmt::format("prepare {}", p->term);
    if (const auto* p = std::get_if<SendPromise>(&m.what)) {
      what =
          fmt::format("promise {} ({})", p->promise.term,
                      p->promise.last ? fmt::format("voted in term {}", p->promise.last->vote.term)
                                      : std::string("no vote"));
    }
    if (const auto* p = std::get_if<SendProposal>(&m.what)) {
      what = fmt::format("proposal {} of body {}", p->term, BodyHash(*p->body).Hex().substr(0, 6));
    }
    if (const auto* p = std::get_if<SendVote>(&m.what)) {
      what = fmt::format("vote {} for body {}", p->vote.term, p->vote.body.Hex().substr(0, 6));
    }
    if (const auto* p = std::get_if<Decided>(&m.what)) {
      what = fmt::format("record {}", p->record.hash.Hex().substr(0, 6));
    }
    return fmt::format("{}: hears from member {}, round {}: {}", who, m.from, m.id.round, what);
  }

  Limits limits_;
  TrustingSigner signer_;
  std::vector<Member> all_;
  std::unordered_map<Hash, std::vector<Member>> members_of_;  ///< by the name of the parent record
  std::unordered_map<Hash, std::uint32_t> bodies_;
  std::deque<Message> messages_;
  std::unordered_map<std::string, std::uint32_t> message_index_;
  std::array<Bits, 4> history_{};        ///< by round
  std::array<Bits, kMaxNodes> inbox_{};  ///< by addressee
  std::deque<Local> locals_;
  std::unordered_map<std::string, std::uint32_t> local_index_;
  std::deque<StepResult> steps_;
  std::vector<Bits> sets_;
  std::unordered_map<Bits, std::uint32_t, BitsHash> set_index_;
  std::vector<State> states_;
  std::vector<Origin> origins_;
  std::vector<std::uint32_t> table_;
  Outcome outcome_;
};

}  // namespace loom::collab::testing
