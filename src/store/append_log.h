// An append-only file of entries that survives kill -9 and power cuts: votes and records live in
// two of these. Every entry carries its length, number and a checksum, and how many entries before
// it were known to be synced. So a reader tells a torn tail (bytes that never were promised: cut
// and reported) from damage to something promised: a single changed byte is found by the checks and
// put right, more is kCorrupt and never cut.
//
//   file  = magic "LOOMLOG1" | u32 version | u32 0 | file id (32) | check (8) | entry*
//   entry = u32 length | u64 number | u64 synced | head check (4) | payload | check (8)
//
// Damage to the very last entry cannot be told from a tear; rule R9 (others remember the highest
// number they saw) is what catches a vote that is lost this way.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/id.h"
#include "store/file_system.h"

namespace loom::store {

inline constexpr std::size_t kMaxLogEntry = 80U << 20;  ///< a body of a round and what is beside it
inline constexpr std::size_t kLogHeaderBytes = 56;
inline constexpr std::size_t kLogEntryOverhead = 32;

/// What a reader had to leave out at the end of a log.
struct TornTail {
  std::uint64_t offset = 0;  ///< where the good entries end
  std::uint64_t bytes = 0;   ///< how many bytes after it were left out
  std::uint64_t entry = 0;   ///< number of the first entry left out
};

struct LogContents {
  std::vector<Bytes> entries;
  std::optional<TornTail> torn;
  std::vector<std::string> repaired;  ///< bytes that the disk had changed, a line each
};

/// Reads a log without changing it, while its owner may be writing. `file_id` zero: any.
Result<LogContents> ReadLog(const FileSystem& fs, const std::string& path, const Hash& file_id);

/// Owner thread: the storage thread. Append is durable only after Sync.
class AppendLog {
 public:
  /// Opens or creates. file_id binds entries to this file of this run. A torn tail is cut (see
  /// torn()), a single changed byte before it is put right (see repaired()); a header of another
  /// version, run or file, or more damage, is an error that names the file, the entry and the
  /// offset.
  static Result<AppendLog> Open(FileSystem& fs, const std::string& path, const Hash& file_id);

  /// kLimit over kMaxLogEntry. When the write fails half-way the part is cut again.
  Status Append(ByteView payload);
  /// After a failed sync the log refuses everything until it is opened again.
  Status Sync();
  Status AppendAndSync(ByteView payload);

  std::uint64_t size() const { return offsets_.size(); }  ///< entries
  std::uint64_t synced() const { return synced_; }        ///< entries that survive a power cut
  std::uint64_t file_bytes() const { return end_; }
  const std::optional<TornTail>& torn() const { return torn_; }
  const std::vector<std::string>& repaired() const { return repaired_; }
  Result<Bytes> Read(std::uint64_t entry) const;
  Result<std::vector<Bytes>> ReadAll() const;
  /// Replaces all entries by these, atomically and durably (votes of old rounds are dropped so).
  Status Rewrite(const std::vector<Bytes>& entries);

 private:
  AppendLog(FileSystem& fs, std::string path, const Hash& file_id)
      : fs_(&fs), path_(std::move(path)), file_id_(file_id) {}
  Status Usable();

  FileSystem* fs_;
  std::string path_;
  Hash file_id_;
  std::unique_ptr<File> file_;
  std::vector<std::uint64_t> offsets_;
  std::uint64_t end_ = 0;
  std::uint64_t synced_ = 0;
  bool part_written_ = false;
  std::string broken_;
  std::optional<TornTail> torn_;
  std::vector<std::string> repaired_;
};

}  // namespace loom::store
