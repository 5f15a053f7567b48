// A whole swarm in one thread: the real peers, engines and folders on a virtual clock, network and
// disk. One seed decides every delay, loss and tear, so every run can be replayed.
//
//   network   per pair: latency, bandwidth and order as of TCP; messages are encoded and decoded at
//             every hop; links can lose messages, be cut, and close
//   disk      SimFileSystem under the real PeerFolder; writes take time, in order
//   compute   one thread a peer, jobs in order; the real Engine on a plain-span worker
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <string>
#include <vector>

#include "collab/peer.h"
#include "node/disk.h"
#include "sim/audit.h"
#include "sim/fake_signer.h"
#include "sim/plain_worker.h"
#include "sim/random.h"
#include "store/sim_file_system.h"

namespace loom::sim {

/// Defects of the machine planted on purpose, each must be caught; collab/mutations.h has those of
/// the code.
struct Planted {
  bool vote_not_synced = false;  ///< the disk says "synced" and is not
  bool early_overwrite = false;  ///< W takes the step when the root is computed, before the record
};

struct WorldOptions {
  std::uint64_t seed = 1;
  std::size_t peers = 5;
  collab::SyncConfig config;
  collab::Timing timing;
  std::uint32_t checkpoint_every = 4;
  std::vector<std::uint64_t> tensors = {700, 900, 400};  ///< elements; the tile size is in config
  Duration step_time = 250ms;                            ///< of an inner step at speed 1
  std::vector<double> speed;                             ///< per peer; missing: 1
  std::vector<agreed::Isa> isa;                          ///< per peer; missing: the best one
  Duration latency = 12ms;                               ///< one way, up to 1.5 of it
  double bytes_per_second = 4e6;
  std::vector<double> upload;  ///< bytes a second, per peer; missing: bytes_per_second
  std::size_t bulk_bytes = collab::kMaxBulkBytes;
  std::uint32_t invite_uses = 0;  ///< of the one invite that joiners hold; 0: no limit
  PlainModel model;
  Planted planted;
  bool keep_trace = false;
};

class World {
 public:
  explicit World(WorldOptions options);
  ~World();

  // What a scenario does.
  void Start(std::size_t peer);  ///< a new process on the peer's folder
  /// The same after its disk was damaged: it may refuse to start, or have forgotten words.
  Status StartDamaged(std::size_t peer);
  void Kill(std::size_t peer);      ///< kill -9: connections close, redials are refused
  void PowerCut(std::size_t peer);  ///< unsynced bytes are lost, nobody hears a close
  /// Operation number `after` from now on of the peer's disk fails with `code`, once or for good. A
  /// process that it stops ends like a killed one, or with the power.
  struct DiskFault {
    std::uint64_t after = 0;
    Code code = Code::kIo;
    bool for_good = false;
    bool power_cut = false;
  };
  void FailDisk(std::size_t peer, const DiskFault& fault);
  store::SimFileSystem& DiskOf(std::size_t peer) { return nodes_[peer]->fs; }
  static constexpr const char* kFolder = "/peer";  ///< on each peer's disk
  void Freeze(std::size_t peer);
  void Thaw(std::size_t peer);
  void Partition(const std::vector<std::size_t>& minority);
  void Heal();
  /// Nothing passes between two peers; with `close` both hear their connection close.
  void CutLink(std::size_t a, std::size_t b, bool close);
  void MendLink(std::size_t a, std::size_t b);
  void SetLoss(double probability) { loss_ = probability; }
  void SetSpeed(std::vector<double> speed) { options_.speed = std::move(speed); }
  /// Messages for which it is true are lost.
  using Drop = std::function<bool(std::size_t from, std::size_t to, const collab::Message&)>;
  void SetDrop(Drop drop) { drop_ = std::move(drop); }
  void Poison(std::size_t peer) { nodes_[peer]->poisoned = true; }
  /// The peer's next contribution is bytes that decode to nothing finite, well committed to.
  void Corrupt(std::size_t peer) { nodes_[peer]->corrupt = true; }
  void Leave(std::size_t peer);
  // What the owner does, whose key is peer 0's.
  collab::Order SignedOrder(std::optional<Round> revert, std::string_view settings) const;
  collab::Seal SignedSeal(Era era, bool end) const;
  Status Ask(std::size_t peer,
             const std::function<Status(collab::Peer&, Time, collab::Effects&)>& what);
  Status CommitReset(std::size_t peer, bool leave_behind);
  /// Records in the peer's orphaned.log.
  std::size_t Orphans(std::size_t peer) const;
  void SnapshotDisk(std::size_t peer);
  void RestoreDisk(std::size_t peer);  ///< of a dead peer
  void After(Duration delay, std::function<void()> action);

  /// Runs until `done` or the limit; false when the limit was reached or the audit failed.
  bool RunUntil(const std::function<bool()>& done, Duration limit);

  // What a scenario looks at.
  Time now() const { return now_; }
  std::size_t size() const { return nodes_.size(); }
  bool Alive(std::size_t peer) const { return nodes_[peer]->peer != nullptr; }
  bool Frozen(std::size_t peer) const { return nodes_[peer]->frozen; }
  const collab::Peer& PeerAt(std::size_t peer) const { return *nodes_[peer]->peer; }
  collab::Engine& EngineAt(std::size_t peer) { return *nodes_[peer]->engine; }
  PeerId IdOf(std::size_t peer) const { return nodes_[peer]->id; }
  std::optional<std::size_t> IndexOf(const PeerId& id) const;
  Audit& audit() { return *audit_; }
  Random& random() { return random_; }
  const std::vector<std::string>& trace() const { return trace_; }
  void Note(std::string line);
  std::uint64_t events() const { return events_; }
  /// Time the commits of the last rounds took, longest.
  Duration longest_wait() const { return longest_wait_; }

  /// Called before an effect of a live peer is carried out.
  using Watch = std::function<void(std::size_t peer, const collab::Effect&)>;
  void SetWatch(Watch watch) { watch_ = std::move(watch); }
  /// R37: fails the audit when no commit came within `bound` while a quorum was connected.
  void SetHangBound(Duration bound) { hang_bound_ = bound; }
  /// When the head last moved.
  Time last_commit() const { return last_commit_; }

 private:
  collab::ReadSettings SettingsReader() const;
  struct Node {
    std::size_t index = 0;
    crypto::PublicKey key;
    PeerId id;
    std::unique_ptr<FakeSigner> signer;
    store::SimFileSystem fs;
    std::shared_ptr<const store::SimFileSystem::Node> snapshot;
    std::uint64_t life = 0;
    bool frozen = false;
    bool poisoned = false;
    bool corrupt = false;
    bool powered_off = false;
    std::optional<DiskFault> disk_fault;
    std::deque<std::function<void()>> held;  ///< what happened to it while frozen
    std::uint32_t step_limit = UINT32_MAX;

    std::optional<store::PeerFolder> folder;
    std::optional<node::DiskExecutor> disk;
    std::unique_ptr<collab::Engine> engine;
    std::optional<node::JobRunner> runner;
    std::unique_ptr<collab::Peer> peer;
    Round engine_round = 0;
    std::uint64_t said_seq = 0;  ///< highest sequence number that left this key
    bool old_state = false;

    std::deque<collab::Compute> jobs;
    bool computing = false;
    Time job_started{};
    std::uint64_t job_number = 0;
    std::deque<collab::Persist> writes;
    Time disk_free{};
  };
  struct Pair {
    bool up = false;
    std::uint64_t generation = 0;
    bool cut = false;                              ///< partitioned: bytes wait
    std::array<std::array<Time, 2>, 2> free{};     ///< per direction and channel
    std::array<std::array<Time, 2>, 2> arrived{};  ///< of the newest message
    std::vector<std::function<void()>> waiting;
    std::array<bool, 2> silent{};  ///< [0]: the higher index is silent to the lower
  };
  struct Item {
    Time at;
    std::uint64_t order;
    std::function<void()> run;
    bool operator<(const Item& other) const {
      return std::tie(at, order) > std::tie(other.at, other.order);
    }
  };

  void At(Time at, std::function<void()> run);
  /// Runs for a peer's process: dropped when it died, held while it is frozen.
  void AtNode(Time at, Node& node, std::function<void()> run);
  void ForNode(Node& node, std::uint64_t life, std::function<void()> run);
  /// One call of the peer, call(peer, out), and what it asks for.
  template <class F>
  void Call(Node& node, F&& call) {
    collab::Effects out;
    call(*node.peer, out);
    LookAtRecords(node);
    Carry(node, std::move(out));
  }
  void Carry(Node& node, collab::Effects effects);
  void Transmit(Node& from, const PeerId& to, const collab::Message& message);
  void Deliver(Node& from, Node& to, std::uint16_t type, const Blob& bytes);
  void StartWrite(Node& node, collab::Persist persist);
  void FinishWrite(Node& node);
  void StartJob(Node& node);
  void FinishJob(Node& node);
  void CutWork(Node& node);
  Duration CostOf(const Node& node, const collab::Job& job) const;
  void Tick(Node& node);
  void Connect(Node& a, Node& b);
  void Disconnect(Node& a, Node& b, bool refused);
  void BecomeSilent(Node& at, Node& about, bool silent);
  bool Reachable(const Node& a, const Node& b);
  void WatchSilence(Node& a, Node& b);
  Pair& PairOf(const Node& a, const Node& b);
  void LookAtRecords(Node& node);
  void CheckHang();
  bool QuorumConnected() const;
  Status Begin(Node& node);
  void End(Node& node);
  void TearWrite(Node& node);

  WorldOptions options_;
  Random random_;
  agreed::TileGrid grid_;
  codec::CodecKind codec_;
  Time now_{};
  std::uint64_t order_ = 0;
  std::uint64_t events_ = 0;
  std::priority_queue<Item> queue_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::map<PeerId, std::size_t> index_;
  std::map<std::pair<std::size_t, std::size_t>, Pair> pairs_;
  double loss_ = 0;
  Drop drop_;
  collab::Record genesis_;
  std::vector<float> first_weights_;
  std::unique_ptr<Audit> audit_;
  Watch watch_;
  std::optional<Duration> hang_bound_;
  Time last_commit_{};
  Time quorum_since_{};
  bool quorum_ = false;
  Duration longest_wait_{};
  std::vector<std::string> trace_;
};

}  // namespace loom::sim
