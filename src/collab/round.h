// One round as one member lives it (rules R1-R7, R17-R23, R33): work, commit and scatter, fix the
// set, reduce and gather, vote. The machine is the same for every member; the leader of the current
// term does a little more. It ends when the agreement core decides; the peer then applies the
// record and makes the next machine.
//
//   Work       the own workers run the ranges that the parent record issued
//   Scatter    a signed commitment to everyone, part j to the owner of part j
//   Fix        the leader names the contributions whose every part arrived
//   Reduce     owners combine in canonical order, encode once, send the same bytes to all
//   Vote       each member computes the root itself, makes the bytes durable, votes
//
// In exact mode the set is fixed when the units of all workers are in it, and units whose host is
// lost are computed elsewhere in the same round (round_exact.cc).
//
// Contributions do not belong to a term or an attempt: a takeover and a moved owner cost no work.
// What an owner reduced does: its bytes carry (term, attempt), and two attempts never mix.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "collab/effects.h"
#include "collab/ledger.h"
#include "collab/link_rates.h"

namespace loom::collab {

/// One knob (R33): a phase may take factor x its prediction + slack.
struct Timing {
  double factor = 2.0;
  Duration slack = 2s;
  Duration tick = 250ms;
  Duration quiet = 500ms;        ///< a round without progress for so long says what it misses
  Duration first_work = 60s;     ///< prediction of a round's work before any was measured
  Duration first_exchange = 2s;  ///< the same of the exchange
};

/// How a member looks from here. Kept by the peer from connection events and heartbeats.
struct Presence {
  std::set<PeerId> connected;
  std::set<PeerId> silent;  ///< connected, but nothing heard for two seconds
  std::set<PeerId> gone;    ///< its redial is refused, and nobody present hears it (R33)
  std::set<PeerId>
      partial;  ///< not linked to every present member: owns no part if others can (R35)
  bool Present(const PeerId& p) const { return connected.contains(p) && !silent.contains(p); }
};

/// Ids of jobs and disk writes, unique over the life of a peer.
struct IdSource {
  std::uint64_t next = 1;
  std::uint64_t Take() { return next++; }
};

/// What does not change while a peer lives. Everything outlives the machine.
struct RoundEnv {
  const SyncConfig* config = nullptr;
  const TileLayout* layout = nullptr;
  const Signer* signer = nullptr;
  const Presence* presence = nullptr;
  const LinkRates* rates = nullptr;
  IdSource* ids = nullptr;
  RunId run;
  PeerId self;
  Timing timing;
  std::size_t bulk_bytes = kMaxBulkBytes;  ///< tiles of one message, about
  /// Whether this peer can vote for a body that takes up an order.
  std::function<Status(const Body&)> check_order;
};

/// An owner's order for this round, and the state that it returns to.
struct OrderPlan {
  Order order;
  Hash root;
  std::uint64_t steps = 0;
  std::vector<Exponent> exponents;
};

struct RoundStart {
  VoterState voter;      ///< from the disk
  Blob voted_bytes;      ///< the bytes behind the last vote, when it was for this round
  bool may_work = true;  ///< false after a restart that may already have committed to other work
  Duration predicted_work{};
  Duration predicted_exchange{};
};

class RoundMachine {
 public:
  RoundMachine(const RoundEnv& env, const Record& parent, RoundStart start, Time now);

  void Start(Time now, Effects& out);
  void OnMessage(const PeerId& from, const Message& message, Time now, Effects& out);
  /// False when the job or write was not this machine's.
  bool OnComputed(std::uint64_t job, JobResult result, Time now, Effects& out);
  bool OnPersisted(std::uint64_t token, Time now, Effects& out);
  void OnTick(Time now, Effects& out);
  /// Somebody came, went or fell silent.
  void OnPresence(Time now, Effects& out);
  /// Who asks to be listed, and who asks to leave; the leader's body takes them up.
  void SetJoiners(std::vector<Joiner> joiners) { joiners_ = std::move(joiners); }
  void SetLeaving(std::set<PeerId> leaving) { leaving_ = std::move(leaving); }
  void SetUnfit(std::set<PeerId> unfit) { unfit_ = std::move(unfit); }
  void SetOrder(std::optional<OrderPlan> order) { order_ = std::move(order); }

  /// The record, once decided. The machine then only answers questions.
  const std::optional<Record>& decided() const { return decided_; }
  /// The reduced bytes of a body when every tile of it is held.
  Blob ReducedOf(const Body& body) const;
  /// True when the reduced bytes of this body were made durable for the own vote.
  bool Durable(const Hash& body) const { return durable_.contains(body); }
  /// One encoded tile of this round by hash, for peers that fetch it.
  std::optional<Slice> FindTile(const Hash& hash) const;
  /// Own workers with a contribution, and whether the record used it (R21).
  std::vector<std::pair<WorkerIndex, bool>> Settlement(const Body& body) const;

  const DecisionId& id() const { return agreement_.id(); }
  Term term() const { return term_; }
  const PeerId& leader() const { return LeaderOf(parent_.body.members, id().round, term_); }
  const char* phase() const;
  std::uint64_t seq() const { return agreement_.seq(); }
  void SkipTo(std::uint64_t seq) { agreement_.SkipTo(seq); }
  const VoterState& voter() const { return agreement_.state(); }
  Duration work_time() const { return work_time_; }
  Duration exchange_time(Time now) const { return now - exchange_since_; }
  /// Mean loss of the contributions in the set, in nats; 0 before it is fixed.
  double loss() const;
  float grad_norm() const { return grad_norm_; }
  /// Some of the own work is done; or none is, and why the last of it failed.
  bool worked() const { return worked_; }
  const Error* failed_work() const { return worked_ || !failed_work_ ? nullptr : &*failed_work_; }
  float learning_rate() const { return learning_rate_; }

 private:
  /// One job of the compute thread: an order, in exact mode all orders whose units are summed.
  struct Task {
    std::vector<WorkOrder> orders;
    Hash bounds;  ///< exact mode: BoundsId
    bool Has(WorkerIndex worker) const;
  };
  struct Own {
    Commitment commitment;
    Blob encoded;                              ///< null: nothing to contribute
    std::map<PeerId, std::vector<bool>> sent;  ///< tiles, over links that stayed up
  };
  struct PartStore {
    std::vector<Slice> tiles;  ///< one a tile of the grid; an empty blob is missing
    std::set<std::uint32_t> checking;
    std::string bad;  ///< why this contribution is excluded
  };
  struct Gather {
    Term term = 0;
    std::uint32_t attempt = 0;
    /// Made with the first tiles; a tile that is there is not written again, and may be shared.
    std::shared_ptr<Bytes> bytes;
    std::vector<Hash> hashes;  ///< of each tile that is there
    std::vector<bool> have;
    std::size_t missing = 0;
    std::vector<PartSignature> parts;  ///< the owners' words for what is here
    Blob whole;                        ///< once nothing is missing
    bool asked = false;                ///< the next state is being computed
    std::optional<NextState> next;     ///< once computed
    std::vector<Exponent> exponents;   ///< exact mode: over the set
  };
  struct Check {
    Hash hash;
    Body body;
    std::uint64_t job = 0;  ///< NextJob of fetched bytes
    Blob whole;             ///< bytes fetched by hash
    Bytes fetching;
    std::vector<bool> have;
    std::size_t missing = 0;
    Time asked{};
    std::size_t turn = 0;
    bool persisting = false;
  };
  struct Lead {
    Term term = 0;
    std::uint32_t attempt = 0;
    enum class Phase : std::uint8_t { kCollect, kReduce, kPropose } phase = Phase::kCollect;
    Time since{};
    std::map<PeerId, std::map<Hash, std::string>>
        arrived;  ///< owner -> commitment -> "" or why bad
    std::set<WorkerIndex> cut;
    std::set<PeerId> slow;  ///< owners that let an attempt time out
    std::optional<Time> first_commitment;
    bool waited = false;  ///< the time for work passed once
  };
  /// Exact mode: where the step's units are computed, and under which bounds.
  struct Exact {
    HostPlan plan;  ///< number 0: as the record dealt them
    Bounds bounds;
    Hash bounds_id;
    std::map<Hash, Commitment> first;  ///< of level 0, once a unit has broken its bounds
    bool raised = false;
    std::map<WorkerIndex, std::set<PeerId>> unwilling;   ///< will or can not
    std::map<WorkerIndex, std::set<PeerId>> late;        ///< let their time pass
    std::map<WorkerIndex, std::set<PeerId>> not_finite;  ///< found a unit that is not finite
    std::map<WorkerIndex, Time> given;                   ///< since when its host has it
  };

  // round_work.cc: own work, commitments, parts
  void StartWork(Effects& out);
  void OnWorkDone(const Task& task, WorkResult result, Time now, Effects& out);
  void Resign(WorkerIndex worker, const std::string& why, Effects& out);
  void OnCommitment(const Commitment& c, Time now, Effects& out);
  bool Believable(const Commitment& c) const;
  void KeepCommitment(const Commitment& c, Time now, Effects& out);
  void Scatter(Own& own, Effects& out);
  /// The run in pieces of about bulk_bytes, of values `width` times as wide as the layout's.
  std::vector<TileRun> Pieces(TileRun run, std::uint64_t width) const;
  /// What this peer was not sent yet; `again`: all of the run.
  void SendParts(const PeerId& to, Own& own, TileRun run, Effects& out, bool again = false);
  void OnPart(const PeerId& from, const Part& part, Effects& out);
  void OnPartChecked(const Hash& commitment, TileRun run, const Slice& tiles, const Status& status,
                     Time now, Effects& out);
  void ReportArrivals(Time now, Effects& out);
  bool CompleteIn(const PartStore& store, TileRun run) const;
  /// Of a contribution's tiles in the run, those to ask for again.
  std::optional<TileRun> Lacking(const Hash& commitment, TileRun run) const;
  /// The commitment of a worker, outside of exact mode.
  const Commitment* CommitmentOf(WorkerIndex worker) const;
  std::uint64_t UnitsOf(const Commitment& c) const;  ///< exact mode; else 1
  std::uint64_t WidthOf(const Commitment& c) const { return UnitsOf(c) > 1 ? kWide : 1; }

  // round_exact.cc: exact mode
  bool exact() const { return env_.config->exact; }
  void StartExact(Time now);
  std::vector<WorkOrder> DealtTo(const PeerId& host) const;
  void QueueUnits();
  void OnHostPlan(const PeerId& from, const HostPlan& plan, Time now, Effects& out);
  void ConsiderRaise(Time now, Effects& out);
  bool BelievableUnits(const Commitment& c) const;
  void ConsiderFixExact(Time now, Effects& out);
  std::vector<const Commitment*> Cover() const;
  bool CoversStep(const std::vector<Commitment>& set) const;
  bool ConsiderSkip(Time now, Effects& out);
  bool Await(std::size_t i, Time now);
  std::optional<PeerId> FindHost(WorkerIndex worker) const;
  void SendHostPlan(Time now, Effects& out);

  // round_reduce.cc: plan, set, reduce, gather
  void OnPlan(const PeerId& from, const Plan& plan, Time now, Effects& out);
  void OnFixSet(const PeerId& from, const FixSet& fix, Time now, Effects& out);
  void TryReduce(Effects& out);
  void ReduceNext(Effects& out);
  void OnReducedRun(TileRun run, Result<Bytes> bytes, Time now, Effects& out);
  void OnReduced(const PeerId& from, const Reduced& reduced, Time now, Effects& out);
  std::vector<Hash> HashesOf(TileRun run, ByteView tiles) const;
  /// Keeps the tiles that are not here yet.
  void PutReduced(TileRun run, ByteView tiles, std::span<const Hash> hashes);
  void OnGathered(const PartSignature& part, Time now, Effects& out);
  Slice Gathered(TileRun run) const;
  void ComputeNext(Effects& out);
  void OnMissing(const PeerId& from, const Missing& missing, Time now, Effects& out);
  /// What this member reduced of the runs that somebody wants, again.
  void SendReduced(const PeerId& to, std::span<const TileRun> wanted, Effects& out) const;
  Missing WhatIsMissing() const;
  std::vector<TileRun> NotGathered() const;
  void SayMissing(Effects& out);
  const OwnedRun* RunOf(const PeerId& owner) const;

  // round_lead.cc: what the leader does
  void StartAttempt(Term term, Time now, Effects& out);
  void OnArrived(const PeerId& from, const Arrived& arrived, Time now, Effects& out);
  void ConsiderFix(Time now, Effects& out);
  void Fix(Time now, Effects& out);
  void FixTo(FixSet fix, Time now, Effects& out);
  bool WorthARecord(Time now) const;
  /// R33: how long a phase may take.
  Duration Allowed(Duration predicted) const;
  void RanOut();
  void ConsiderPropose(Effects& out);
  void LeadTick(Time now, Effects& out);
  bool Alone() const { return parent_.body.members.size() == 1; }
  /// An order is to be taken up, or was just now: nobody works in this round (R14).
  bool ByOrder() const { return order_.has_value() || parent_.body.order.has_value(); }
  bool FullyArrived(const Hash& commitment) const;
  std::string WhyBad(const Hash& commitment) const;
  void ConsiderTakeover(Time now, Effects& out);
  Duration TermDeadline() const;

  // round_agree.cc: the agreement core's actions, checks of bodies
  void Carry(Actions actions, Time now, Effects& out);
  void StartCheck(const CheckBody& check, Time now, Effects& out);
  void AdvanceCheck(Time now, Effects& out);
  void FetchForCheck(Time now, Effects& out);
  void OnObject(const swarm::ObjectData& data, Time now, Effects& out);

  void Broadcast(const Message& message, Effects& out) const;
  void SendTo(const PeerId& to, Message message, Effects& out, bool again = false) const;
  void HeardTerm(Term term, Time now);
  void Progress(Time now) { last_progress_ = now; }
  bool HaveQuorum() const;
  std::set<PeerId> PresentMembers() const;

  const RoundEnv& env_;
  const Record parent_;
  RoundStart start_;
  Agreement agreement_;
  std::optional<Record> decided_;

  std::map<Hash, Own> own_;  ///< by the id of the commitment
  std::vector<Task> to_do_;
  std::optional<Task> working_;
  std::map<Hash, Commitment> commitments_;  ///< by id
  std::set<WorkerIndex> conflicted_;        ///< two commitments of one worker: both are out (R18)
  std::set<WorkerIndex> resigned_;
  std::map<Hash, PartStore> parts_;
  std::vector<std::pair<PeerId, Part>> early_parts_;  ///< before their commitment
  std::size_t early_bytes_ = 0;

  Time started_{};
  Term term_ = 0;
  Time term_since_{};
  Time last_progress_{};
  Time exchange_since_{};
  Duration exchange_{};  ///< predicted; longer once a phase has run out of its time
  Duration work_time_{};
  float grad_norm_ = 0;
  bool worked_ = false;
  std::optional<Error> failed_work_;
  float learning_rate_ = 0;
  std::optional<Plan> plan_;
  std::set<Hash> reported_;
  std::optional<FixSet> fix_;
  std::optional<std::deque<TileRun>> to_reduce_;  ///< of this attempt; none before all has come
  std::optional<Gather> gather_;
  struct Kept {
    Blob whole;
    std::vector<Hash> tiles;
  };
  std::vector<Kept> kept_;  ///< reduced bytes of checked bodies
  std::set<Hash> durable_;  ///< checked bodies whose bytes are on disk
  std::optional<Check> check_;
  std::optional<Lead> lead_;
  Exact exact_;
  std::vector<Joiner> joiners_;
  std::set<PeerId> leaving_;
  std::set<PeerId> unfit_;
  std::optional<OrderPlan> order_;

  std::map<std::uint64_t, Task> work_jobs_;
  struct PartJob {
    Hash commitment;
    TileRun run;
    Slice tiles;
  };
  std::map<std::uint64_t, PartJob> part_jobs_;
  struct RunJob {
    Term term;
    std::uint32_t attempt;
    TileRun run;
  };
  std::map<std::uint64_t, RunJob> reduce_jobs_;
  std::map<std::uint64_t, Blob> next_jobs_;
  std::map<std::uint64_t, std::uint64_t> vote_tokens_;  ///< disk token -> agreement token
  std::map<std::uint64_t, Hash> round_tokens_;          ///< disk token -> checked body
};

}  // namespace loom::collab
