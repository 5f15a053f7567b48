// One body per round: single-decree Paxos over the members of the parent record (rules R1-R7, R10).
//
// The life of a decision. Term 0 needs no preparation: its leader proposes what it chose. The
// leader of a later term first gathers promises from a quorum; each promise carries the sender's
// last vote with its body. If the promises hold a quorum of equal votes, that already is the
// record; else the body of the highest term voted for is proposed unchanged; only if nobody voted
// may the leader choose. A member votes for a body only after the layer above checked it (R6), and
// only after the vote is on disk (R3). Votes go to everyone, so everyone sees the record at the
// same moment.
//
// A value: copyable, comparable by its encoded state, with no clock, socket, disk or thread. What
// has to happen outside is returned as actions. The exhaustive check (agreement_model_test.cc)
// explores this very class.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "collab/quorum.h"
#include "collab/record.h"
#include "collab/signer.h"

namespace loom::collab {

/// Which decision a message or a stored word belongs to. Two that differ never meet (R7).
struct DecisionId {
  Era era = 0;
  Round round = 0;
  Hash parent;
  bool operator==(const DecisionId&) const = default;
  void Encode(wire::Writer& out) const;
  static DecisionId Decode(wire::Reader& in);
};

/// A vote and the body it was cast for.
struct CastVote {
  Vote vote;
  Blob body;
};

/// "I promise term t": nothing below t will be voted for. Signed over everything in it.
struct Promise {
  PeerId peer;
  Term term = 0;
  std::uint64_t seq = 0;
  std::optional<CastVote> last;
  crypto::Signature signature;
  void Encode(wire::Writer& out) const;
  static Promise Decode(wire::Reader& in);
};

/// What a member keeps on disk about the decision it is in; rebuilt by applying the entries in
/// order.
struct VoterState {
  DecisionId id;
  Term promised = 0;
  std::optional<CastVote> vote;
  std::optional<Term> led;  ///< highest term this member may have led: it never leads there again
  std::uint64_t seq = 0;    ///< of the last signed word, over all decisions of this key (R9)
  Era sealed = 0;           ///< nothing below this era is voted for any more (R14); 0 = no seal

  /// The decision that was open when the process ended. What was led then is on no disk, but
  /// nothing above the promised term was (R2).
  void Reopen(const DecisionId& open);
  /// Applies one entry of votes.log. An entry of another decision starts a new state.
  Status Apply(ByteView entry);
  /// The entry that keeps a seal, or with era 0 its end.
  static Bytes SealEntry(Era era);
};

/// Two votes of one key for one term: a lie (R8).
struct Evidence {
  DecisionId id;
  Vote first, second;
};

struct PersistVoter {
  std::uint64_t token = 0;  ///< comes back in OnPersisted, in the order given
  Bytes entry;
};
struct SendPrepare {
  Term term = 0;
};
struct SendPromise {
  PeerId to;
  Promise promise;
};
struct SendProposal {
  Term term = 0;
  Blob body;
};
struct SendVote {
  Vote vote;
};
struct SendNack {
  PeerId to;
  Term promised = 0;
};
struct CheckBody {
  Term term = 0;
  Hash hash;
  Blob body;
};
struct MayChoose {
  Term term = 0;
};
struct Decided {
  Record record;
};

/// Sends without `to` go to every other member.
using Action = std::variant<PersistVoter, SendPrepare, SendPromise, SendProposal, SendVote,
                            SendNack, CheckBody, MayChoose, Decided, Evidence>;
using Actions = std::vector<Action>;

class Agreement {
 public:
  /// Requires: members in seniority order; `signer` outlives every copy. `restored` is what the
  /// disk held: of this decision, or an older one (then only its seq counts).
  Agreement(DecisionId id, std::vector<Member> members, PeerId self, QuorumRule rule,
            const Signer& signer, const VoterState& restored);

  const DecisionId& id() const { return id_; }
  Term promised() const { return state_.promised; }
  std::uint64_t seq() const { return state_.seq; }
  /// The next word's number is above `seq`: this key has used the numbers up to there.
  void SkipTo(std::uint64_t seq) { state_.seq = std::max(state_.seq, seq); }
  bool decided() const { return decided_; }
  const std::optional<CastVote>& last_vote() const { return state_.vote; }
  const VoterState& state() const { return state_; }
  bool MayLead(Term term) const;
  /// The votes seen for the term of the newest one; for telling others what is missing.
  const std::vector<Vote>& votes() const { return votes_; }
  /// The own vote when it is on disk, so that it can be sent again.
  std::optional<Vote> DurableVote() const;
  /// The proposal this member made in its leading term, for sending again.
  std::optional<SendProposal> OwnProposal() const;
  bool Preparing(Term term) const;

  /// This member takes the lead of `term`. Requires: MayLead(term).
  void Lead(Term term, Actions& out);
  /// Answers MayChoose. Ignored when the term is over.
  void Choose(Term term, Blob body, Actions& out);

  void OnPrepare(const PeerId& from, Term term, Actions& out);
  void OnPromise(const Promise& promise, Actions& out);
  void OnProposal(const PeerId& from, Term term, Blob body, Actions& out);
  void OnVote(const Vote& vote, Actions& out);
  /// A CheckBody came back: the body is what it says, and this member can rebuild it.
  void OnBodyChecked(const Hash& hash, Actions& out);
  void OnPersisted(std::uint64_t token, Actions& out);

  /// Everything that tells two agreements apart, for the exhaustive check.
  void EncodeState(wire::Writer& out) const;

 private:
  struct Pending {
    std::uint64_t token;
    Action release;
  };
  struct Leading {
    Term term = 0;
    enum class Phase : std::uint8_t { kPreparing, kChoosing, kProposed } phase = Phase::kPreparing;
    std::vector<Promise> promises;
    Blob body;
    bool durable = false;
  };
  struct Proposal {
    Term term = 0;
    Hash hash;
    Blob body;
  };

  void Persist(Bytes entry, Action release, Actions& out);
  void Release(Action action, Actions& out);
  void ConsiderPromises(Actions& out);
  void ProposeBody(Blob body, Actions& out);
  void ConsiderVotes(Actions& out);
  void Decide(const Hash& hash, Term term, Actions& out);
  Blob FindBody(const Hash& hash) const;
  const crypto::PublicKey* KeyOf(const PeerId& peer) const;
  bool VerifyVote(const Vote& vote) const;

  DecisionId id_;
  std::vector<Member> members_;
  PeerId self_;
  QuorumRule rule_;
  const Signer* signer_;

  VoterState state_;  ///< what will be on disk once `pending_` is empty
  std::uint64_t next_token_ = 1;
  std::vector<Pending> pending_;
  bool vote_durable_ = false;
  std::optional<Promise> promise_;  ///< the newest own promise, for saying it again
  bool promise_durable_ = false;
  std::optional<Leading> leading_;
  std::optional<Proposal> proposal_;  ///< of the highest term seen, not yet voted for
  std::vector<Vote> votes_;           ///< verified; one per member and term, highest terms kept
  bool decided_ = false;
};

}  // namespace loom::collab
