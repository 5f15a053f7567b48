// A peer on a machine of its own, for targets that drive whole peers: the real Peer, Engine,
// JobRunner, PeerFolder and DiskExecutor, on a disk in memory. Nothing happens by itself: writes,
// jobs and messages wait until they are asked for, in any order that an input says.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collab/peer.h"
#include "node/disk.h"
#include "sim/fake_signer.h"
#include "sim/plain_worker.h"
#include "store/sim_file_system.h"

namespace loom::fuzz {

/// A signature that every machine takes: an input can say anything in anybody's name.
crypto::Signature ForgedSignature();

/// Keyed hashes as signatures, and the forged one.
class ForgeableSigner final : public collab::Signer {
 public:
  explicit ForgeableSigner(const crypto::PublicKey& key) : honest_(key) {}
  crypto::Signature Sign(std::string_view domain, ByteView message) const override {
    return honest_.Sign(domain, message);
  }
  bool Verify(const crypto::PublicKey& key, std::string_view domain, ByteView message,
              const crypto::Signature& signature) const override;

 private:
  sim::FakeSigner honest_;
};

/// A run small enough for thousands of inputs a second: two tiles, a step of one sample.
struct TinyRun {
  explicit TinyRun(bool exact);
  collab::SyncConfig config;
  agreed::TileGrid grid;
  codec::CodecKind codec = codec::CodecKind::kFp32;
  std::vector<float> first_weights;
  std::vector<crypto::PublicKey> keys;  ///< of three machines and a stranger; 0 founds and owns
  collab::Record genesis;
  PeerId IdOf(std::size_t i) const { return crypto::PeerIdOf(keys[i]); }
};

class Machine {
 public:
  Machine(const TinyRun& run, std::size_t index);

  /// A process on what the disk holds. An error is the folder's: no process is there then.
  Status Start(Time now);
  void End();
  bool alive() const { return peer_ != nullptr; }

  collab::Peer& peer() { return *peer_; }
  collab::Engine& engine() { return *engine_; }
  store::SimFileSystem& disk() { return disk_; }
  const PeerId& id() const { return id_; }

  /// One call of the peer, call(peer, effects), and what it asks for.
  template <class F>
  void Call(Time now, F&& call) {
    if (peer_ == nullptr) return;
    collab::Effects out;
    call(*peer_, out);
    Carry(std::move(out), now);
  }
  /// The oldest write or job that waits; false when none does. Work takes longer than other jobs:
  /// without `work` it is left at it.
  bool FinishWrite(Time now);
  bool FinishJob(Time now, bool work = true);
  /// What it has said since.
  std::vector<collab::Send> TakeSent() { return std::exchange(sent_, {}); }
  /// It asked to be started anew: do it soon.
  bool wants_restart() const { return wants_restart_; }

 private:
  void Carry(collab::Effects effects, Time now);

  const TinyRun* run_;
  std::size_t index_;
  PeerId id_;
  ForgeableSigner signer_;
  store::SimFileSystem disk_;
  std::uint32_t step_limit_ = UINT32_MAX;
  std::uint64_t session_ = 0;

  std::optional<store::PeerFolder> folder_;
  std::unique_ptr<collab::Engine> engine_;
  std::optional<node::DiskExecutor> executor_;
  std::optional<node::JobRunner> runner_;
  std::unique_ptr<collab::Peer> peer_;
  std::deque<collab::Persist> writes_;
  std::deque<collab::Compute> jobs_;
  std::vector<collab::Send> sent_;
  bool wants_restart_ = false;
};

inline constexpr const char* kMachineFolder = "/peer";

}  // namespace loom::fuzz
