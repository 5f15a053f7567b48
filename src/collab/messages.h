// What peers say to each other about rounds (rules R7, R18-R20, R38). Each message lists its fields
// once, in Io(); the same list writes and reads it, with a cap on everything that has a length.
// Every message of a round carries the decision it belongs to (era, round, parent).
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "collab/agreement.h"
#include "collab/engine.h"
#include "collab/record.h"
#include "collab/word.h"
#include "swarm/transfer.h"

namespace loom::collab {

inline constexpr std::size_t kMaxBulkBytes = 1U << 20;  ///< tiles of one message, about
inline constexpr std::size_t kMaxPartBytes = kMaxBulkBytes + (512U << 10);
inline constexpr std::size_t kMaxRuns = 4096;  ///< of tiles, in one question

/// How fast the sender of this word receives from a peer (R23).
struct LinkRate {
  PeerId peer;
  std::uint64_t bytes_per_second = 0;
};

/// Said on every new connection and whenever the head moves: how far the sender is.
struct Hello {
  Head head;
  std::uint64_t seq = 0;  ///< of the sender's last signed word
  Word seen;              ///< the newest the sender has seen of the receiver's (R9)
  Round oldest = 0;  ///< oldest round whose reduced bytes the sender still has, plus its checkpoint
  Round checkpoint = 0;       ///< a round of which it can serve the whole state
  bool leaving = false;       ///< or pausing: to be delisted
  bool paused = false;        ///< it will come back
  bool asks = false;          ///< the sender has no hello of the receiver: it may have been lost
  Round reset_round = 0;      ///< of the newest reset in the sender's chain, 0 = none
  Hash reset;                 ///< its hash
  std::vector<PeerId> links;  ///< whom the sender is connected to, so that it can relay (R35)
  std::vector<LinkRate> rates;
  template <class A>
  void Io(A& a) {
    a(head, seq, seen, oldest, checkpoint, leaving, paused, asks, reset_round, reset);
    a.List(links, kMaxMembers, 32, [&](PeerId& p) { a(p); });
    a.List(rates, kMaxMembers, 40, [&](LinkRate& r) { a(r.peer, r.bytes_per_second); });
  }
};

struct GetRecords {
  Round from = 0;
  template <class A>
  void Io(A& a) {
    a(from);
  }
};
struct RecordMessage {
  Bytes record;
  template <class A>
  void Io(A& a) {
    a.Var(record, kMaxBodyBytes);
  }
};

/// The leader's word on who owns which tiles of the reduce in this attempt.
struct OwnedRun {
  PeerId owner;
  TileRun run;
};
struct Plan {
  DecisionId id;
  Term term = 0;
  std::uint32_t attempt = 0;
  std::vector<OwnedRun> owners;
  template <class A>
  void Io(A& a) {
    a(id, term, attempt);
    a.List(owners, kMaxMembers, 40, [&](OwnedRun& o) { a(o.owner, o.run.first, o.run.count); });
  }
};

/// A contributor's signed word for its encoded contribution, before it scatters it (R18). Of one
/// worker; in exact mode of all workers whose units it sums.
struct Commitment {
  DecisionId id;
  PeerId peer;
  std::vector<WorkShare> shares;  ///< ascending by worker, not empty
  std::uint32_t millis = 0;       ///< of all of them
  double loss_sum = 0;            ///< tokens times the mean loss of those that have one, nats
  float grad_norm = 0;
  Hash bounds;                              ///< exact mode: BoundsId of what it was summed under
  std::vector<agreed::Exponent> exponents;  ///< exact mode: of each tensor, over the units
  std::vector<WorkerIndex> not_finite;      ///< exact mode: workers with such a unit (R26)
  std::vector<Hash> tiles;  ///< empty: nothing will be sent; samples 0 or, in exact mode, a unit
                            ///< that breaks a bound or is not finite
  crypto::Signature signature;
  template <class A>
  void Io(A& a) {
    a(id, peer);
    a.List(shares, kMaxMembers, 20, [&](WorkShare& s) { a(s.worker, s.samples, s.tokens); });
    a(millis, loss_sum, grad_norm, bounds);
    a.List(exponents, kMaxTensors, 2, [&](agreed::Exponent& e) { a(e); });
    a.List(not_finite, kMaxMembers, 4, [&](WorkerIndex& w) { a(w); });
    a.List(tiles, kMaxTiles, 32, [&](Hash& h) { a(h); });
    a(signature);
  }
  WorkerIndex worker() const { return shares.front().worker; }
  bool Covers(WorkerIndex worker) const;
  std::uint64_t samples() const;
  std::uint64_t tokens() const;
  Bytes Text() const;  ///< what is signed: everything above the signature
  Hash Id() const;     ///< SHA-256 of Text()
};

/// Encoded tiles from a contributor to the owner of the run.
struct Part {
  DecisionId id;
  Hash commitment;
  TileRun run;
  Slice tiles;
  template <class A>
  void Io(A& a) {
    a(id, commitment, run.first, run.count);
    a.Var(tiles, kMaxPartBytes);
  }
};

/// An owner tells the leader that a contribution's tiles are all there and good, or why not (R19).
struct Arrived {
  DecisionId id;
  Term term = 0;
  std::uint32_t attempt = 0;
  Hash commitment;
  bool good = false;
  std::string reason;
  template <class A>
  void Io(A& a) {
    a(id, term, attempt, commitment, good);
    a.Text(reason, 512);
  }
};

/// The leader asks a slow worker to stop after its current inner step.
struct Cut {
  DecisionId id;
  WorkerIndex worker = 0;
  template <class A>
  void Io(A& a) {
    a(id, worker);
  }
};

/// Exact mode: who computes which worker's units of this step (R24). Part of no agreement: it
/// changes neither bits nor hashes. A worker that is not where its record dealt it is computed and
/// committed to by itself.
struct HostPlan {
  DecisionId id;
  Term term = 0;
  std::uint32_t number = 0;   ///< grows with each plan of the term
  std::vector<PeerId> hosts;  ///< one for each worker of the parent record, in its order
  template <class A>
  void Io(A& a) {
    a(id, term, number);
    a.List(hosts, kMaxMembers, 32, [&](PeerId& p) { a(p); });
  }
};

/// The contributions of this attempt, in canonical order: ascending by first worker.
struct FixSet {
  DecisionId id;
  Term term = 0;
  std::uint32_t attempt = 0;
  std::vector<Commitment> set;
  bool skip = false;  ///< exact mode: a unit is not finite, everybody skips the step (R26)
  template <class A>
  void Io(A& a) {
    a(id, term, attempt);
    a.List(set, kMaxMembers, 200, [&](Commitment& c) { c.Io(a); });
    a(skip);
  }
};

/// Reduced tiles from their owner, who signed PartText of them, to everyone (R20).
struct Reduced {
  DecisionId id;
  Term term = 0;
  std::uint32_t attempt = 0;
  TileRun run;
  Slice tiles;
  crypto::Signature signature;
  template <class A>
  void Io(A& a) {
    a(id, term, attempt, run.first, run.count);
    a.Var(tiles, kMaxPartBytes);
    a(signature);
  }
};

struct PrepareMessage {
  DecisionId id;
  Term term = 0;
  template <class A>
  void Io(A& a) {
    a(id, term);
  }
};
struct PromiseMessage {
  DecisionId id;
  Promise promise;
  template <class A>
  void Io(A& a) {
    a(id, promise);
  }
};
struct ProposalMessage {
  DecisionId id;
  Term term = 0;
  std::uint32_t attempt = 0;
  Bytes body;
  template <class A>
  void Io(A& a) {
    a(id, term, attempt);
    a.Var(body, kMaxBodyBytes);
  }
};
struct VoteMessage {
  DecisionId id;
  Vote vote;
  template <class A>
  void Io(A& a) {
    a(id, vote);
  }
};
struct NackMessage {
  DecisionId id;
  Term promised = 0;
  template <class A>
  void Io(A& a) {
    a(id, promised);
  }
};

/// What the sender still misses of this round; whoever has it sends it again. Said when a round has
/// been quiet for a while, so that a lost message costs a moment and never a round.
struct Missing {
  DecisionId id;
  Term newest = 0;                       ///< highest term the sender knows of
  Term term = 0;                         ///< of its plan, if it has one
  std::uint32_t attempt = 0;             ///< of its plan; 0 = it has none
  bool fixed = false;                    ///< it holds the set of that attempt
  Hash bounds;                           ///< exact mode: BoundsId of those it knows
  std::vector<WorkerIndex> commitments;  ///< workers whose commitment it does not hold
  struct Want {
    Hash commitment;
    TileRun run;
  };
  std::vector<Want> parts;       ///< of its own run
  std::vector<TileRun> reduced;  ///< of that attempt
  std::vector<PeerId> votes;     ///< members whose vote it has not seen
  template <class A>
  void Io(A& a) {
    a(id, newest, term, attempt, fixed, bounds);
    a.List(commitments, kMaxMembers, 4, [&](WorkerIndex& w) { a(w); });
    a.List(parts, kMaxMembers, 40, [&](Want& w) { a(w.commitment, w.run.first, w.run.count); });
    a.List(reduced, kMaxRuns, 8, [&](TileRun& r) { a(r.first, r.count); });
    a.List(votes, kMaxMembers, 32, [&](PeerId& p) { a(p); });
  }
};

/// A peer that holds the parent state asks to be listed (R11).
struct JoinAsk {
  Head head;
  crypto::PublicKey key;
  Hash possession;
  std::string invite;  ///< the token; empty for a peer that the chain knows
  template <class A>
  void Io(A& a) {
    a(head, key, possession);
    a.Text(invite, 4096);
  }
};
struct JoinRefused {
  std::string reason;
  template <class A>
  void Io(A& a) {
    a.Text(reason, 1024);
  }
};
struct LeaveAsk {
  Head head;
  template <class A>
  void Io(A& a) {
    a(head);
  }
};

/// Hashes of the state tiles of a checkpoint, for a peer that fetches it.
struct GetLeaves {
  Round round = 0;
  template <class A>
  void Io(A& a) {
    a(round);
  }
};
struct Leaves {
  Round round = 0;
  std::vector<Hash> leaves;
  template <class A>
  void Io(A& a) {
    a(round);
    a.List(leaves, kMaxTiles, 32, [&](Hash& h) { a(h); });
  }
};

/// An owner's order on its way to whoever leads, and an owner's seal (R14).
struct OrderMessage {
  Order order;
  template <class A>
  void Io(A& a) {
    a(order);
  }
};
struct SealMessage {
  Seal seal;
  template <class A>
  void Io(A& a) {
    a(seal);
  }
};

/// What a sealed member answers whoever collects: how far it is, what it last voted for, and the
/// proof that it holds its head's state. Said again whenever one of them changes.
struct SealReport {
  Era era = 0;
  Head head;
  Hash possession;  ///< salted with the head's hash; zero while it is not there yet
  Bytes body;       ///< of its last vote for the round after the head, empty: none
  Term term = 0;    ///< of that vote
  template <class A>
  void Io(A& a) {
    a(era, head, possession);
    a.Var(body, kMaxBodyBytes);
    a(term);
  }
};

/// A message between two members that cannot reach each other, carried by a third (R35). Signed by
/// its author and numbered; the carrier sees the bytes and can only drop them.
struct Relay {
  PeerId from;
  PeerId to;
  std::uint64_t number = 0;  ///< grows with every message of its author, over restarts, too
  std::uint16_t type = 0;
  Bytes payload;
  crypto::Signature signature;
  template <class A>
  void Io(A& a) {
    a(from, to, number, type);
    a.Var(payload, kMaxBodyBytes);
    a(signature);
  }
  Bytes Text() const;  ///< what is signed: receiver, number, type and the hash of the payload
};

using Message =
    std::variant<Hello, GetRecords, RecordMessage, Plan, Commitment, Part, Arrived, Cut, FixSet,
                 Reduced, PrepareMessage, PromiseMessage, ProposalMessage, VoteMessage, NackMessage,
                 Missing, JoinAsk, JoinRefused, LeaveAsk, GetLeaves, Leaves, swarm::GetObjects,
                 swarm::ObjectData, swarm::NotHere, Relay, HostPlan, OrderMessage, SealMessage,
                 SealReport>;

/// The frame type of a message: its place in the variant, plus kFirstMessageType.
inline constexpr std::uint16_t kFirstMessageType = 64;
std::uint16_t TypeOf(const Message& message);
std::string_view MessageName(const Message& message);
/// Large messages travel on bulk connections.
bool IsBulk(const Message& message);
bool IsBulk(const Relay& relay);  ///< by its size: what is inside is the author's affair

Bytes EncodeMessage(const Message& message);
/// Tiles in it are views of `bytes`.
Result<Message> DecodeMessage(std::uint16_t type, const Blob& bytes);

}  // namespace loom::collab
