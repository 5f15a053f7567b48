// One peer alone on a simulated disk, life after life: the real Peer, Engine, restore and folder,
// and what the daemon does around them, in one thread without any chance. So two runs differ in
// what their disks did and in nothing else, and whatever the disk did, the bits must not.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "collab/peer.h"
#include "node/disk.h"
#include "sim/fake_signer.h"
#include "sim/plain_worker.h"
#include "store/sim_file_system.h"

namespace loom::sim {

struct LoneOptions {
  collab::SyncConfig config;  ///< rounds says where the run ends
  codec::CodecKind codec = codec::CodecKind::kInt8;
  std::uint32_t checkpoint_every = 3;
  std::vector<std::uint64_t> tensors = {300, 500};  ///< elements
  PlainModel model;
};

/// One life of the process, from its start to the last round, an error, or where it was stopped.
struct LoneLife {
  bool finished = false;
  std::string error;              ///< of a life that ended by itself before the last round
  std::vector<std::string> told;  ///< what was damaged at the start, and problems on the way
  Round restored = 0;             ///< the state that it began with
  Round committed = 0;            ///< the newest round that it said was committed
  Hash root;                      ///< of its last state
  std::map<WorkerIndex, Bytes> inner;

  /// `text` is in the error or in what it told.
  bool Names(std::string_view text) const;
};

class LoneRun {
 public:
  explicit LoneRun(LoneOptions options);

  /// A life on this disk. It ends, as by kill -9, when round `until` is committed.
  LoneLife Live(store::SimFileSystem& disk, Round until = UINT64_MAX) const;
  /// Its folder on the disk.
  static constexpr const char* kFolder = "/peer";

 private:
  class Process;

  LoneOptions options_;
  agreed::TileGrid grid_;
  std::vector<float> first_weights_;
  crypto::PublicKey key_;
  FakeSigner signer_;
  collab::Record genesis_;
};

}  // namespace loom::sim
