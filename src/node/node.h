// One running peer: it wires the protocol core (reactor thread) to sockets, to the compute thread
// that owns the tensors and to the storage thread that writes the folder. All decisions are the
// core's; here effects are carried out and completions are brought back.
//
//   reactor thread   Transport, Peer, Directory, control socket, timers; never blocks
//   compute thread   Engine and trainer
//   storage thread   PeerFolder (logs, round bytes, status, metrics)
//   saving thread    the large part of a checkpoint, while the compute thread works on
#pragma once

#include <atomic>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/json.h"
#include "collab/peer.h"
#include "net/control_socket.h"
#include "net/transport.h"
#include "node/checkup.h"
#include "node/control_request.h"
#include "node/data_writer.h"
#include "node/dial_back.h"
#include "node/disk.h"
#include "node/fork_join.h"
#include "node/node_messages.h"
#include "node/outbox.h"
#include "node/reach.h"
#include "node/run_data.h"
#include "node/worker_thread.h"
#include "store/peer_folder.h"
#include "swarm/directory.h"
#include "swarm/invite.h"
#include "train/frozen.h"

namespace loom::node {

inline constexpr const char* kLocalKey = "local";  ///< in keys/: [local] of the last start

struct NodeOptions {
  std::string dir;
  train::LocalConfig local;
  std::optional<swarm::Invite> invite;  ///< join: where the run is and what to show
  std::string invite_token;
  std::vector<std::string> listen;  ///< HOST:PORT; empty: this peer only dials out
  bool listen_as_before =
      false;                 ///< `listen` is a default: an earlier start's choice goes before it
  std::string resume_with;   ///< the command that goes on with this folder; empty: loom join
  std::string isa = "auto";  ///< kernel path of agreed arithmetic and codecs
  bool final_loss = false;   ///< tell the loss on all validation tokens when the run has finished
  std::function<void(const json::Object&)> event;  ///< NDJSON events; reactor thread
  std::function<void(const std::string&)> say;     ///< lines for people; reactor thread
  std::function<void(const std::string&)> progress;
};

/// How a run of the node ended.
struct NodeEnd {
  collab::PeerState state = collab::PeerState::kStopped;
  std::string reason;
  Code code = Code::kRefused;  ///< of a failed one
  std::string hint = {};
  bool finished = false;  ///< all rounds of the run are done
};

/// The real disk, for everything that a node keeps.
store::FileSystem& Disk();

class Node final : public net::TransportEvents {
 public:
  /// Opens (and locks) the folder, its key and, when it has one, its run.
  static Result<std::unique_ptr<Node>> Open(NodeOptions options);
  ~Node() override;

  /// Makes a new run in this folder from run.toml. Requires: !has_run().
  /// `co_owners`: whose keys own the run beside this user's.
  Status Host(const train::RunFile& file, const std::string& name,
              std::vector<crypto::PublicKey> co_owners = {});
  bool has_run() const { return run_.has_value(); }
  /// What data files that turn out to be damaged or lost are made again from; before Live.
  void RebuildDataFrom(train::RunFile source) { source_ = std::move(source); }
  const node::Run& run() const { return *run_; }
  PeerId id() const { return key_.id(); }
  /// Binds the listening ports; before Live.
  Result<std::vector<std::uint16_t>> Listen();
  /// A signed invite with this node's addresses. Requires an owner's key, or an owner's delegation,
  /// and Listen.
  Result<std::string> MakeInvite(std::int64_t seconds, std::uint32_t uses,
                                 const std::string& owner_key = {});

  /// Runs until the peer stops or fails, or Interrupt was called.
  Result<NodeEnd> Live();
  /// Ctrl-C: thread-safe and usable from a signal watcher. Leaves when a quorum stays, else stops.
  void Interrupt();

  // net::TransportEvents, reactor thread
  void OnPeerUp(const net::PeerInfo& peer) override;
  void OnPeerDown(const PeerId& peer, net::DownReason reason, const std::string& detail) override;
  void OnFrame(const PeerId& peer, net::Channel channel, net::Frame frame) override;
  void OnPeerSilent(const PeerId& peer) override;
  void OnPeerHeard(const PeerId& peer) override;
  void OnDialFailed(const std::string& address, net::DialStep failed, const Error& why) override;
  void OnRefused(const std::string& remote, const std::string& text) override;
  void OnSendSpace(const PeerId& peer, net::Channel channel) override;

 private:
  Node(NodeOptions options, store::PeerFolder folder, crypto::SigningKey key);

  // node.cc: life
  void BuildTransport(const RunId& run);
  Status KeepChoices();
  void Tick();
  void DialDue();
  void Stop(NodeEnd end);
  std::string ResumeCommand() const;

  // node_control.cc: what other verbs ask
  void OnControl(const std::string& line, const net::ControlServer::Reply& reply);

  // node_owner.cc: what the run's owner asks (R14)
  Result<crypto::SigningKey> OwnerKey(const std::string& named) const;
  Result<json::Object> TakeOrder(const ControlRequest& request);
  Result<json::Object> Reset(const ControlRequest& request);
  /// What became of an order.
  json::Object OrderedJson(const std::string& id) const;
  json::Object ResetJson() const;

  // node_invite.cc: who may come in
  Result<collab::Admission> CheckInvite(const std::string& token, const collab::Chain& chain) const;
  std::optional<std::string> AdmitPeer(const net::PeerInfo& peer) const;
  void OnDelegation(const swarm::Delegation& delegation);
  Status DelegateTo(const ControlRequest& request);

  // node_checkup.cc: whether the others reach this peer, asked by loom doctor
  void BeginCheckup(net::ControlServer::Reply reply);
  void OnView(const PeerId& from, const View& view);
  void OnDialedBack(const PeerId& from, const DialedBack& back);
  void OnDialBack(const PeerId& from, const DialBack& ask);
  void CheckupTick(Time now);

  // node_links.cc: where this peer and the others can be reached
  void RefreshOwnAddresses(Time now);
  void LearnInvite(const swarm::Invite& invite);
  void LearnAddresses(const net::PeerInfo& peer);
  void TellAddresses(const net::PeerInfo& newcomer);
  void OnAddresses(const PeerId& from, const Addresses& told);
  std::optional<Error> OwnAddressToo(const std::string& text) const;
  void Refused(const std::string& address, const Error& error);
  void ShowSearch(Time now);

  // node_bootstrap.cc: a joiner's way to the run's constant parts
  void BeginBootstrap();
  void OnNodeMessage(const PeerId& from, NodeMessage message);
  void OnRunRecord(const RunRecord& record);
  void FetchData();
  Status RebuildData(const std::vector<DataFile>& missing);
  /// A line for people from any thread.
  void ShowProgress(std::string line);
  void OnBootstrapObject(const PeerId& from, const collab::Message& message);
  void CarryDataFetch(swarm::Fetcher::Effects effects);
  void ShowDataProgress(Time now);
  void FinishDataFetch();
  /// On the storage thread; then `then` here. An error ends this node.
  void WriteData(std::function<Status(DataWriter&)> what, std::function<void()> then = {});
  void StartPeer();
  /// What the run does not train, read once. Compute thread.
  Result<train::FrozenWeights> Frozen();
  void PeerRestored(Result<collab::PeerRestore> restored);
  /// The core again from the folder, on the same connections.
  void ReloadPeer();
  void BootstrapTick();

  // node_effects.cc: what the core wants done
  void Carry(collab::Effects effects);
  void CarryOne(collab::Send& send);
  void CarryOne(collab::Persist& persist);
  void CarryOne(collab::Compute& compute);
  /// On the compute thread: the inner state here, the rest on the saving thread.
  void SaveCheckpoint(std::uint64_t job, const collab::CheckpointJob& what, std::uint64_t life);
  /// On the compute thread: until the saving thread reads the engine's state no more.
  void AwaitSaved() const;
  void Complete(std::uint64_t job, std::uint64_t life, std::shared_ptr<collab::JobResult> result);
  void CarryOne(collab::CutWork& cut);
  void CarryOne(collab::Serve& serve);
  void ServeData(const PeerId& to, const swarm::GetObjects& get);
  std::optional<collab::Message> DataPiece(const Hash& id) const;  ///< storage thread
  /// Sends what is found on the storage thread; nothing: no answer. False: the thread is busy.
  bool Answer(const PeerId& to, std::function<std::optional<collab::Message>()> find);
  void CarryOne(collab::Tell& tell);
  void TellOwner(const collab::Event& event);
  /// The canonical settings until the record of `round`.
  ByteView SettingsBefore(Round round) const;
  void CarryOne(collab::Reload& reload);
  /// The same, unless the core was made anew since `life`.
  template <class Call>
  void StepOf(std::uint64_t life, Call&& call) {
    if (life == core_life_) Step(std::forward<Call>(call));
  }
  /// One call of the core, call(core, now, out), and what it asks for; nothing before the core is
  /// there and after the end.
  template <class Call>
  void Step(Call&& call) {
    if (!peer_ || stopping_) return;
    collab::Effects out;
    call(*peer_, reactor_.Now(), out);
    Carry(std::move(out));
  }
  void SendNode(const PeerId& to, const NodeMessage& message);
  void SendCore(const PeerId& to, collab::Message message);

  // node_report.cc: status, metrics, lines
  void ReportRound(Round round);
  json::Object StatusJson() const;
  std::string LackOfData() const;
  void WriteStatus();
  void SaveAddresses();  ///< whenever one becomes known
  void Event(json::Object object) const;
  void Say(const std::string& line) const;

  NodeOptions options_;
  store::PeerFolder folder_;  ///< storage thread once Live began
  crypto::SigningKey key_;
  collab::KeySigner signer_;
  std::optional<node::Run> run_;
  std::optional<swarm::Delegation> delegation_;  ///< of an owner to this peer
  train::RunSpec settings_;  ///< as owners' orders have changed them; compute thread
  std::optional<DataServer> data_;
  std::optional<data::Dataset> dataset_;
  train::FrozenWeights frozen_;  ///< Frozen()
  std::unique_ptr<collab::TileLayout> layout_;

  std::atomic<bool> interrupted_{false};
  std::atomic<bool> cut_restore_{false};
  bool interrupt_seen_ = false;
  net::Reactor reactor_;
  std::unique_ptr<net::Transport> transport_;
  Outbox outbox_{[this](const PeerId& to, std::uint16_t type, const Blob& encoded) {
    return transport_->Send(to, net::Channel::kBulk, type, encoded);
  }};
  std::unique_ptr<net::ControlServer> control_;
  swarm::Directory directory_;
  std::map<std::string, swarm::Directory::Candidate> dialling_;
  std::set<PeerId> same_machine_;  ///< connected over loopback
  std::vector<swarm::Address> own_addresses_;
  Time own_addresses_read_{};
  Reach reach_;
  std::map<PeerId, Neighbour> neighbours_;  ///< everybody connected
  DialBackDesk dial_backs_;
  std::optional<Checkup> checkup_;
  std::vector<std::uint16_t> ports_;
  std::unique_ptr<collab::Peer> peer_;
  std::uint64_t core_life_ = 0;  ///< of peer_: what an earlier one asked for is not its answer
  std::optional<NodeEnd> end_;
  bool stopping_ = false;
  bool finish_after_round_ = false;
  collab::Told told_;  ///< while a new core is started in the old one's place

  // bootstrap
  std::set<PeerId> up_;
  std::unique_ptr<swarm::Fetcher> data_fetcher_;
  std::map<Hash, store::PieceList> wanted_lists_;
  std::shared_ptr<DataWriter> data_writer_;  ///< used on the storage thread
  std::set<std::string> begun_files_;
  std::set<Hash> pieces_;  ///< on disk, or on their way there
  bool finishing_data_ = false;
  std::optional<train::RunFile> source_;  ///< of the data, until it was tried
  std::vector<DataFile> missing_data_;
  bool starting_peer_ = false;
  Time data_progress_{};
  std::uint32_t data_restarts_ = 0;
  bool told_lack_ = false;  ///< that the data cannot be fetched from anybody
  bool told_fetching_ = false;
  std::uint64_t data_bytes_seen_ = 0;  ///< read from sockets, when they last were progress
  Time data_shown_{};
  Time asked_{};        ///< for the run's record or its lists of pieces
  Time alone_since_{};  ///< nobody is connected since
  Time search_shown_{};
  std::string last_refusal_;  ///< what a member said to this peer while it had no link
  bool reached_ = false;

  // compute thread
  ForkJoin free_cores_;
  std::unique_ptr<collab::Engine> engine_;
  std::map<std::uint64_t, std::shared_ptr<std::atomic<bool>>> running_work_;  ///< reactor thread
  std::unique_ptr<JobRunner> runner_;
  std::unique_ptr<DiskExecutor> disk_;
  std::unique_ptr<WorkerThread> compute_;
  std::unique_ptr<WorkerThread> storage_;
  std::unique_ptr<WorkerThread> saving_;
  std::shared_future<void> saved_;  ///< of the last checkpoint that was begun; compute thread

  // reports
  Time last_status_{};
  Time round_started_{};
  std::optional<std::pair<Round, Time>> first_measured_;
  std::uint64_t tokens_reported_ = 0;
  std::uint64_t bytes_up_reported_ = 0;
  std::uint64_t bytes_down_reported_ = 0;
};

}  // namespace loom::node
