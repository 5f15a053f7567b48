// A peer as the protocol sees it: the chain it holds, the state it has applied, the round it is in,
// and how it joins, catches up, leaves and is brought back (R5, R7, R9-R13, R15). One object, sans
// I/O; the daemon, the simulator and the tests drive this very class.
//
//   at the head and listed      -> a RoundMachine runs
//   behind                      -> records, then reduced bytes (or a whole state) are fetched by
//   hash at the head and not listed  -> it proves that it holds the state and asks to be listed
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "collab/chain.h"
#include "collab/effects.h"
#include "collab/isolation.h"
#include "collab/link_rates.h"
#include "collab/round.h"
#include "swarm/transfer.h"

namespace loom::collab {

enum class PeerState : std::uint8_t {
  kStarting,  ///< nothing heard from the others yet
  kJoining,   ///< at the head, asking to be listed
  kSyncing,   ///< behind the head, fetching
  kWorking,   ///< in a round
  kWaiting,   ///< no quorum is connected
  kPaused,    ///< by its owner
  kLeaving,   ///< delisting itself, still voting and serving
  kStopped,   ///< left or finished
  kFailed,    ///< cannot go on; the reason says why
};
std::string_view PeerStateName(PeerState state);

struct PeerOptions {
  SyncConfig config;
  Timing timing;
  crypto::PublicKey key;
  std::string invite;                      ///< what to show when asking to be listed; may be empty
  ReadSettings read_settings;              ///< of owners' orders; none: they cannot change settings
  std::uint32_t checkpoint_every = 10;     ///< rounds
  Round keep_records = 256;                ///< whole in memory; older ones are read from disk
  std::size_t keep_checkpoints = 2;        ///< on disk, with the rounds since the oldest of them
  Duration leave_limit = 60s;              ///< a leaving peer waits so long to be delisted (R12)
  Duration finish_limit = 10s;             ///< a finished peer serves so long
  std::size_t bulk_bytes = kMaxBulkBytes;  ///< tiles of one message, about
  std::uint64_t seed = 0;                  ///< of the order in which objects are fetched
  /// Larger than all that this key's earlier processes have counted from it: the wall clock at the
  /// start, in microseconds, say.
  std::uint64_t session = 0;
};

/// What its owner has told a peer to do.
struct Told {
  bool paused = false;
  bool leaving = false;
};

/// What the disk held at start.
struct PeerRestore {
  std::vector<Record> records;  ///< after genesis, in order
  VoterState voter;
  Blob voted_bytes;          ///< reduced bytes behind the last vote
  Round state = 0;           ///< the round whose state the engine holds
  bool inner_exact = true;   ///< the engine's inner state is that of `state`, too
  bool resumed = false;      ///< this folder has taken part before
  Round oldest = 0;          ///< oldest round whose reduced bytes are on disk, 0 = none
  Round checkpoint = 0;      ///< newest checkpoint on disk
  std::vector<Hash> leaves;  ///< of that checkpoint
};

/// What lets a stranger in.
struct Admission {
  std::optional<Hash> invite;            ///< to count in the record
  std::uint32_t uses_left = UINT32_MAX;  ///< of it, by the records so far
};
/// Decides whether a peer that the chain does not know may be listed. An error's message is told to
/// the asker.
using AdmitJoiner = std::function<Result<Admission>(const JoinAsk&, const Chain&)>;

struct PeerView {
  PeerState state = PeerState::kStarting;
  std::string reason;
  Code failure = Code::kInternal;  ///< of a failed one
  std::string hint;                ///< what its owner can do
  Head head;                       ///< last committed and applied
  std::uint64_t tokens = 0;
  PeerId leader;
  Term term = 0;
  bool ordered = false;  ///< an owner's order waits to be taken up
  const char* phase = "";
  std::vector<PeerId> waits_for;  ///< members any of whom would help; empty when it does not wait
  std::vector<PeerId> critical;   ///< if one of them dies this run waits
  Isolations isolations;          ///< who cannot reach whom, and whose loss would add to it
  std::vector<Member> members;
  std::map<PeerId, PeerId> via;  ///< members without a link of their own: through whom (R35)
  std::set<PeerId> paused;       ///< others who say that they are
  std::set<PeerId> unfit;  ///< members without a vote: they came back behind their own words (R9)
  bool measured = false;   ///< this peer took part in the last round, and so knows:
  double loss = 0;         ///< mean over the contributions of the last round, nats
  float grad_norm = 0;
  float learning_rate = 0;
  swarm::FetchProgress fetch;
};

/// What a collecting peer has heard from those whom the owner sealed (R14).
struct ResetView {
  Era era = 0;
  struct Survivor {
    PeerId peer;
    Head head;
    bool proved = false;  ///< that it holds the newest state
    bool voted = false;   ///< for a round after its head
  };
  std::vector<Survivor> survivors;  ///< this peer first
  std::vector<PeerId> abandoned;    ///< members that were not heard
};
/// What an owner has to sign next: a body that survivors may have agreed on, or the reset.
struct ResetDraft {
  Record record;
  bool is_reset = false;
};

class Peer {
 public:
  Peer(PeerOptions options, const TileLayout& layout, const Signer& signer, Record genesis,
       PeerRestore restore, AdmitJoiner admit);

  void Start(Time now, Effects& out);
  void OnPeerUp(const PeerId& peer, Time now, Effects& out);
  /// `refused`: its redial is refused too, so the process is gone.
  void OnPeerDown(const PeerId& peer, bool refused, Time now, Effects& out);
  void OnPeerSilent(const PeerId& peer, bool silent, Time now, Effects& out);
  /// Nobody listens where `peer` was known to be, and it was not heard in this life.
  void OnNobodyThere(const PeerId& peer, Time now, Effects& out);
  void OnMessage(const PeerId& from, Message message, Time now, Effects& out);
  void OnComputed(std::uint64_t job, JobResult result, Time now, Effects& out);
  void OnPersisted(std::uint64_t token, Time now, Effects& out);
  /// A write failed: nothing more is promised or voted; the reason is shown.
  void OnPersistFailed(const Error& error, Time now, Effects& out);
  /// Every Timing::tick.
  void OnTick(Time now, Effects& out);

  void Leave(Time now, Effects& out);
  /// False: it is so already.
  bool Pause(bool pause, Time now, Effects& out);
  Told told() const { return {paused_, leaving_since_.has_value()}; }
  /// After Start, to the peer that takes another one's place (Reload).
  void TellAgain(const Told& told, Time now, Effects& out);

  // R14, peer_reset.cc: what owners want
  /// Spreads an order; whoever leads puts it into a record. Errors: it is no owner's, out of its
  /// turn, or returns to a state that this peer cannot rebuild.
  Status TakeOrder(const Order& order, Time now, Effects& out);
  /// The one that no record has taken up yet.
  const std::optional<Order>& order() const { return order_; }
  /// Seals this peer and those connected to it, and collects their reports.
  Status BeginReset(const Seal& seal, Time now, Effects& out);
  /// Ends a seal without a reset.
  Status EndReset(const Seal& seal, Time now, Effects& out);
  std::optional<ResetView> ViewReset() const;
  /// kConflict while a survivor is not yet at the newest record that any of them holds; with
  /// `leave_behind` such survivors are not named.
  Result<ResetDraft> DraftReset(bool leave_behind) const;
  /// The draft, signed.
  Status TakeSigned(Record record, Time now, Effects& out);

  PeerView View(Time now) const;
  const Chain& chain() const { return chain_; }
  const Record& applied() const { return chain_.At(state_round_); }
  PeerState state() const { return state_; }
  PeerId self() const { return env_.self; }
  Era sealed() const { return voter_.sealed; }  ///< 0: no seal

 private:
  struct Remote {
    Hello hello;
    bool greeted = false;
    Time answered{};  ///< last time a stale message of it was answered
  };
  struct Asked {
    JoinAsk ask;
    Joiner joiner;
    std::uint32_t uses_left = UINT32_MAX;
    bool proved = false;
  };

  // peer.cc: presence and dispatch
  void Measure(const PeerId& from, const Message& message, Time now);
  void Dispatch(const PeerId& from, Message& message, Time now, Effects& out);
  void OnRoundMessage(const PeerId& from, const DecisionId& id, Message& message, Time now,
                      Effects& out);
  void AfterMachine(Time now, Effects& out);
  void Attach(const PeerId& peer, Time now, Effects& out);
  void Detach(const PeerId& peer, Time now, Effects& out);
  void Silence(const PeerId& peer, Time now, Effects& out);
  void SayHello(const PeerId& to, Effects& out);
  void ThinOut();
  void HelloAll(Effects& out);
  void SendRecord(const PeerId& to, Round round, Effects& out) const;
  bool Listed() const;
  bool AtHead() const { return state_round_ == chain_.rounds() && !applying_; }
  Hello MyHello() const;

  // peer_step.cc: from a decided round to the next one
  void Decided(Time now, Effects& out);
  void ConsiderFailedWork(Effects& out);
  void Advance(Time now, Effects& out);
  void Applied(const Status& status, Time now, Effects& out);
  void BeginRound(Time now, Effects& out);
  bool ReturnsToOwnVote(Effects& out);
  void Save(Effects& out);  ///< a checkpoint of the state as it is
  void LearnWorkTime(const Record& record);
  void LearnExchangeTime(Duration measured);

  // peer_view.cc: states and their reasons
  void Enter(PeerState state, std::string reason, Effects& out);
  void Fail(const Error& error, Effects& out);
  void Problem(const PeerId& peer, std::string text, Effects& out) const;
  void Refresh(Time now, Effects& out);
  std::set<PeerId> Voters() const;
  std::vector<PeerId> Needed() const;
  std::string WhoIsNeeded(std::size_t least) const;
  std::string TooSlow(Time now) const;
  bool BehindAlone(Time now);
  LinkReports Links() const;
  std::vector<PeerId> CriticalNow(const Isolations& isolations) const;

  // peer_sync.cc: records, reduced bytes, whole states; serving them
  void OnHello(const PeerId& from, const Hello& hello, Time now, Effects& out);
  void OnRecord(const PeerId& from, const RecordMessage& message, Time now, Effects& out);
  void AskRecords(Time now, Effects& out);
  void WantRound(Time now, Effects& out);
  void WantState(Time now, Effects& out);
  void OnLeaves(const PeerId& from, const Leaves& leaves, Time now, Effects& out);
  void CarryFetch(swarm::Fetcher::Effects effects, Time now, Effects& out);
  void StoreFetched(const Hash& id, ByteView bytes);
  void OnGet(const PeerId& from, const swarm::GetObjects& get, Time now, Effects& out);
  void IndexRound(Round round);
  void StopFetching();

  // peer_words.cc: old copies of a folder
  void Remember(const PeerId& from, const Word& word);
  const Word* NewestWord(const PeerId& of) const;
  void HearOwnWord(const PeerId& from, const Word& word, Effects& out);
  void JudgeFitness(const PeerId& of, const Hello& hello);
  bool FenceOpen() const;
  void AskForHellos(Time now, Effects& out);

  // peer_fork.cc: two histories, of which one survives
  bool Forked(const Remote& remote) const;
  void ConsiderFork(const PeerId& from, Time now, Effects& out);
  bool Wins(const Hello& theirs) const;
  void OnOtherRecord(const PeerId& from, Record record, Time now, Effects& out);
  void RewindTo(Round keep, const std::vector<Record>& records, Effects& out);
  void Restart(Effects& out);

  // peer_reset.cc, the members' side
  Status CheckOrder(const Body& body) const;
  bool CanRebuild(Round round) const;
  Status CheckOthersCanRebuild(Round round) const;
  void UpdateOrder();
  bool Sealed() const { return voter_.sealed > chain_.head().body.era; }
  void OnSeal(const PeerId& from, const Seal& seal, Time now, Effects& out);
  void OnSealReport(const PeerId& from, const SealReport& report, Effects& out);
  void Report(Effects& out);
  void ReportProved(const Hash& possession, Time now, Effects& out);
  void ResetTick(Time now, Effects& out);
  Blob HeldBytes(const Body& body) const;

  // peer_relay.cc: members without a link of their own
  void ConsiderRelays(Time now, Effects& out);
  void FindPartial();
  std::optional<PeerId> FindCarrier(const PeerId& to) const;
  bool CanRelay(const PeerId& carrier, const PeerId& to) const;
  void Route(Effects& out);
  void OnRelay(const PeerId& from, Relay& relay, Time now, Effects& out);

  // peer_join.cc: asking to be listed, answering those who ask, leaving
  void AskToJoin(Time now, Effects& out);
  void OnJoinRefused(const PeerId& from, const JoinRefused& refused, Effects& out);
  void OnJoinAsk(const PeerId& from, const JoinAsk& ask, Time now, Effects& out);
  void UpdateJoiners();
  void LeaveTick(Time now, Effects& out);

  PeerOptions options_;
  const TileLayout& layout_;
  const Signer& signer_;
  Presence presence_;
  LinkRates rates_;
  IdSource ids_;
  RoundEnv env_;
  Chain chain_;
  PeerRestore restore_;
  AdmitJoiner admit_;

  PeerState state_ = PeerState::kStarting;
  std::string reason_;
  Code failure_ = Code::kInternal;  ///< of a failed one
  std::string hint_;                ///< and what to do
  bool started_ = false;
  bool fence_ = true;  ///< after a start: first hear how far the others saw this key
  Time fence_asked_{};
  bool rolled_back_ = false;  ///< the others saw later words of this key: it may not vote (R9)
  Round rolled_back_at_ = 0;  ///< until a later record lists it as new
  std::uint64_t seen_own_seq_ = 0;  ///< highest word of this key that others saw
  std::deque<Round> kept_;          ///< checkpoints, oldest first
  Round resumed_at_ = 0;            ///< the head when it started
  std::optional<Time> leaving_since_;
  bool paused_ = false;
  std::optional<Time> finished_since_;
  Time last_served_{};                      ///< an object that somebody asked for
  std::optional<Time> nobody_since_;        ///< not a member, and no member is here
  std::optional<Time> behind_alone_since_;  ///< bytes are missing and nobody connected has them

  Round state_round_ = 0;  ///< the engine holds the state after this record
  bool applying_ = false;
  bool loading_state_ = false;  ///< what is applied is a whole fetched state
  std::uint64_t apply_job_ = 0;
  Blob applying_bytes_;
  VoterState voter_;
  std::unique_ptr<RoundMachine> machine_;
  std::uint64_t record_token_ = 0;  ///< the head's write, when it is not synced yet
  Duration work_time_{};
  Duration exchange_time_{};
  std::deque<Duration> exchange_times_;
  double loss_ = 0;
  float grad_norm_ = 0;
  std::uint32_t failed_works_ = 0;  ///< rounds in a row in which no own work succeeded
  float learning_rate_ = 0;
  Round measured_round_ = 0;  ///< whose loss_ and so on these are

  std::map<PeerId, Remote> remotes_;
  std::set<PeerId> direct_;       ///< connected by a link of its own
  std::set<PeerId> refused_;      ///< whose redial was refused since
  std::set<PeerId> mute_;         ///< whose own link is up, but silent
  std::map<PeerId, PeerId> via_;  ///< reached through a carrier
  std::uint64_t relays_sent_ = 0;
  std::map<std::pair<PeerId, bool>, std::uint64_t> relays_heard_;  ///< newest; of control, of bulk
  std::map<PeerId, Word> words_;  ///< the newest heard of members, beside the chain's (R9)
  std::deque<std::pair<PeerId, Message>> ahead_;  ///< of the next round, replayed when it begins
  std::size_t ahead_bytes_ = 0;
  Time asked_records_{};

  std::unique_ptr<swarm::Fetcher> fetcher_;
  Round fetching_round_ = 0;  ///< reduced bytes of this round
  Time fetch_began_{};
  std::multimap<Hash, std::uint32_t> fetch_places_;
  std::vector<Blob> fetched_;            ///< of a state: one a tile
  Bytes fetched_bytes_;                  ///< of a round: as TileLayout says
  std::optional<std::uint32_t> misfit_;  ///< a tile whose bytes are not of its size
  bool fetching_state_ = false;
  Round fetch_state_round_ = 0;
  std::vector<Hash> fetch_leaves_;
  Time asked_leaves_{};
  Blob fetched_round_;
  std::map<Hash, std::pair<Round, std::uint32_t>> round_tiles_;  ///< what can be served from disk
  std::map<Hash, std::uint32_t> leaf_index_;

  std::map<PeerId, Asked> asked_;
  std::map<std::uint64_t, PeerId> possession_jobs_;
  std::uint64_t own_possession_job_ = 0;
  std::optional<JoinAsk> own_ask_;
  Time asked_to_join_{};
  std::set<PeerId> refused_by_;
  std::set<PeerId> leaving_;
  std::set<PeerId> unfit_;      ///< came back behind what was seen of them (R9)
  std::optional<Order> order_;  ///< to be taken up
  Time order_since_{};
  struct Collect {
    Seal seal;
    std::map<PeerId, SealReport> reports;
    std::set<PeerId> proved;
    std::map<std::uint64_t, std::pair<PeerId, Hash>> jobs;  ///< possession: who, and what was said
    Time asked{};
  };
  std::optional<Collect> collect_;
  std::optional<PeerId> collector_;               ///< whom this peer reports to
  std::unique_ptr<RoundMachine> sealed_machine_;  ///< for the bytes behind the last vote
  std::uint64_t seal_token_ = 0;                  ///< the seal's write, when it is not synced yet
  std::uint64_t report_job_ = 0;
  std::optional<SealReport> report_;
  std::uint64_t rewind_token_ = 0;  ///< once written, it starts anew from the folder
  bool restarting_ = false;         ///< nothing is heard any more
  bool restart_when_saved_ = false;
  Time asked_fork_{};
  Round fork_step_ = 1;
  std::optional<Record> fork_;  ///< a body that an owner certified; its reset comes next
  std::uint64_t checkpoint_job_ = 0;
  Round checkpoint_round_ = 0;
  Round saving_round_ = 0;
};

}  // namespace loom::collab
