// A disk in memory that lies as real ones do: bytes that were not synced may be lost, torn or kept
// after Crash(seed), names whose folder was not synced may be old or new, space runs out, single
// operations fail, bytes flip. The simulator gives one to each peer; crash tests run on it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "store/file_system.h"

namespace loom::store {

/// Not thread-safe. Handles and locks of before a Crash or Restore are dead: they return kIo.
class SimFileSystem final : public FileSystem {
 public:
  struct Node;  ///< a file or a folder

  explicit SimFileSystem(std::uint64_t capacity = UINT64_MAX);
  ~SimFileSystem() override;
  SimFileSystem(const SimFileSystem&) = delete;
  SimFileSystem& operator=(const SimFileSystem&) = delete;

  Result<std::unique_ptr<File>> Open(const std::string& path, OpenMode mode,
                                     Access access = Access::kShared) override;
  Status Rename(const std::string& from, const std::string& to) override;
  Status Remove(const std::string& path) override;
  Result<std::vector<DirEntry>> List(const std::string& path) const override;
  Status MakeDirs(const std::string& path, Access access = Access::kShared) override;
  Status SyncDir(const std::string& path) override;
  Result<std::uint64_t> Size(const std::string& path) const override;
  bool Exists(const std::string& path) const override;
  Result<std::uint64_t> FreeBytes(const std::string& path) const override;
  Result<std::unique_ptr<FileLock>> Lock(const std::string& path, std::string_view owner) override;

  /// A power cut: of what was not synced the seed decides what stayed, sector by sector and name by
  /// name. Ends a failure set by FailAt.
  void Crash(std::uint64_t seed);
  /// kill -9: the disk keeps everything, handles and locks die.
  void Kill();

  /// Operations that change the disk (writes, syncs, renames, removals, creations) so far.
  std::uint64_t operations() const { return operations_; }
  /// Operation number `operation` (see operations()) fails with `code`; a write keeps a part of its
  /// bytes. With `and_all_later`, as a machine that stopped there, every later one fails too.
  void FailAt(std::uint64_t operation, Code code, bool and_all_later);
  void ClearFailure() { failure_.reset(); }
  /// Makes syncs succeed without effect: the mutation "a vote that is not synced".
  void IgnoreSyncs(bool ignore) { ignore_syncs_ = ignore; }
  void SetCapacity(std::uint64_t bytes) { capacity_ = bytes; }
  std::uint64_t used_bytes() const { return used_; }
  /// XORs one stored byte; kNotFound outside the file.
  Status FlipByte(const std::string& path, std::uint64_t offset, std::byte mask);

  /// The disk as it is now, as if all of it were synced.
  std::shared_ptr<const Node> Snapshot() const;
  /// Back to an older disk: "restarted with old state".
  void Restore(const std::shared_ptr<const Node>& snapshot);

 private:
  friend class SimFile;
  friend class SimLock;
  struct Failure {
    std::uint64_t operation;
    Code code;
    bool and_all_later;
  };

  /// Counts one operation; the error when it is the one that has to fail.
  Status Begin(const std::string& path);
  /// Past the operation at which the machine stopped.
  bool Stopped() const;
  Status Reserve(const std::string& path, std::uint64_t bytes);
  std::shared_ptr<Node> Find(const std::string& path) const;
  Result<std::shared_ptr<Node>> Folder(const std::string& path) const;

  std::uint64_t capacity_;
  std::uint64_t used_ = 0;
  std::uint64_t operations_ = 0;
  std::uint64_t generation_ = 0;
  bool ignore_syncs_ = false;
  std::optional<Failure> failure_;
  std::shared_ptr<Node> root_;
  std::map<std::string, std::string> locks_;
};

}  // namespace loom::store
