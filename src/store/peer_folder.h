// A peer's folder D: everything a peer knows after kill -9 .
//
//   keys/ genesis genesis.copy votes.log records.log rounds/<r>-<id> checkpoints/<r>/
//   metrics.jsonl status.json control.sock lock
//
// The genesis record stands there twice: nothing else in the folder is worth anything without it.
// Opening locks it, so that one folder is one peer: the same folder twice is kConflict with the pid
// that holds it. Round bytes carry a part of their content id in the name, because a new attempt
// must not overwrite the bytes behind the last vote (R3).
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/id.h"
#include "store/append_log.h"
#include "store/checkpoint.h"
#include "store/file_system.h"
#include "store/round_file.h"

namespace loom::store {

inline constexpr std::size_t kMaxGenesisBytes = 4u << 20;
inline constexpr std::size_t kMaxKeyBytes = 64u << 10;

/// Owner thread: the storage thread. Verbs that only look use PeerFolderView.
class PeerFolder {
 public:
  struct Options {
    std::int64_t pid = 0;  ///< shown to whoever finds the folder locked
    std::size_t keep_checkpoints = kDefaultKeptCheckpoints;
  };

  /// Creates or resumes; removes what interrupted writes left behind.
  static Result<PeerFolder> Open(FileSystem& fs, const std::string& path, const Options& options);

  const std::string& path() const { return path_; }
  bool has_run() const { return !genesis_.empty(); }
  const Bytes& genesis() const { return genesis_; }
  /// Starts the run of this folder: stores genesis, opens the logs. kConflict when the folder
  /// belongs to another run (both ids shown); ok when it is the same.
  Status SetGenesis(ByteView genesis);

  /// Require has_run().
  AppendLog& votes() { return *votes_; }
  AppendLog& records() { return *records_; }
  Checkpoints& checkpoints() { return checkpoints_; }

  /// Durable when it returns (R6). Returns the id to open it by: Merkle root of the tile hashes,
  /// which are worked out here when they are not given.
  Result<Hash> WriteRound(Round round, std::span<const ByteView> tiles,
                          std::vector<Hash> hashes = {});
  Result<RoundFile> OpenRound(Round round, const Hash& id) const;
  bool HasRound(Round round, const Hash& id) const;
  /// Removes the bytes of other attempts at this round, once its record is held.
  Status KeepOnlyRound(Round round, const Hash& id);
  /// Removes round bytes up to and including the oldest kept checkpoint's round.
  Status PruneRounds();
  /// Gives up a history after round `keep`: its records go to the end of orphaned.log, checkpoints
  /// and round bytes of later rounds are removed, and `records` follow. Done again after an
  /// interruption it comes to the same.
  Status Rewind(Round keep, std::span<const Bytes> records);

  Status WriteKey(const std::string& name, ByteView bytes);  ///< mode 0600 in a folder of mode 0700
  Result<Bytes> ReadKey(const std::string& name) const;
  Status WriteStatus(std::string_view json);  ///< atomic, not synced
  Status AppendMetrics(std::string_view json_line);
  std::string control_socket_path() const { return JoinPath(path_, "control.sock"); }
  /// What was torn, damaged or missing and is mended, one line each, for the log.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  PeerFolder(FileSystem& fs, std::string path, const Options& options);
  Status OpenGenesis();
  Status OpenLogs();
  std::string RoundPath(Round round, const Hash& id) const;

  FileSystem* fs_;
  std::string path_;
  std::unique_ptr<FileLock> lock_;
  Bytes genesis_;
  std::optional<AppendLog> votes_;
  std::optional<AppendLog> records_;
  Checkpoints checkpoints_;
  std::unique_ptr<File> metrics_;
  std::vector<std::string> notes_;
};

/// Reads a folder without its lock, while its peer runs and after: `status`, `log`, `eval`.
class PeerFolderView {
 public:
  PeerFolderView(const FileSystem& fs, std::string path) : fs_(&fs), path_(std::move(path)) {}
  bool HasRun() const;
  Result<Bytes> Genesis() const;
  Result<LogContents> Records() const;
  Result<LogContents> Votes() const;
  Result<RoundFile> OpenRound(Round round, const Hash& id) const;
  Result<std::string> StatusJson() const;

 private:
  const FileSystem* fs_;
  std::string path_;
};

}  // namespace loom::store
