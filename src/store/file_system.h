// The file system as Loom sees it: a small interface in which every durable step (sync of a file,
// sync of a folder, rename) is explicit. The daemon uses PosixFileSystem; simulators and tests use
// SimFileSystem, which forgets what was not synced.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

namespace loom::store {

enum class OpenMode {
  kRead,    ///< the file must exist
  kWrite,   ///< read and write; created when missing, kept when present
  kCreate,  ///< read and write; created or cut to zero bytes
};

/// Who may read a new file or folder: the user's umask decides, or only the user (0600, 0700).
enum class Access { kShared, kPrivate };

/// One open file; destroying it closes it without a sync. Owner thread: the storage thread.
class File {
 public:
  virtual ~File() = default;
  /// Writes at the end. On failure a part of the bytes may be there.
  virtual Status Append(ByteView bytes) = 0;
  /// Writes at an offset; a hole before it reads as zeros.
  virtual Status WriteAt(std::uint64_t offset, ByteView bytes) = 0;
  /// Returns how many bytes were read: fewer than asked for only at the end of the file.
  virtual Result<std::size_t> ReadAt(std::uint64_t offset, MutableByteView out) const = 0;
  virtual Status Truncate(std::uint64_t size) = 0;
  virtual Result<std::uint64_t> Size() const = 0;
  /// The bytes survive a power cut once this returned ok. After a failed Sync nothing written since
  /// the last good one may be relied on: reopen and look.
  virtual Status Sync() = 0;
};

/// Held while it lives.
class FileLock {
 public:
  virtual ~FileLock() = default;
};

struct DirEntry {
  std::string name;
  bool is_dir = false;
};

/// Paths use '/'. Errors: kNotFound, kDiskFull, kConflict (a lock), kIo; each names the path.
class FileSystem {
 public:
  virtual ~FileSystem() = default;
  virtual Result<std::unique_ptr<File>> Open(const std::string& path, OpenMode mode,
                                             Access access = Access::kShared) = 0;
  /// Open for reading, which changes nothing.
  Result<std::unique_ptr<File>> OpenToRead(const std::string& path) const;
  /// Atomic; replaces a file of the new name. Durable after SyncDir of the folder.
  virtual Status Rename(const std::string& from, const std::string& to) = 0;
  /// A file or an empty folder.
  virtual Status Remove(const std::string& path) = 0;
  /// Sorted by name.
  virtual Result<std::vector<DirEntry>> List(const std::string& path) const = 0;
  /// Makes the folder and what is missing above it, and syncs each folder that got a new entry.
  virtual Status MakeDirs(const std::string& path, Access access = Access::kShared) = 0;
  /// Makes creations, renames and removals inside the folder durable.
  virtual Status SyncDir(const std::string& path) = 0;
  virtual Result<std::uint64_t> Size(const std::string& path) const = 0;
  virtual bool Exists(const std::string& path) const = 0;
  virtual Result<std::uint64_t> FreeBytes(const std::string& path) const = 0;
  /// Takes the file as an exclusive lock and writes `owner` (a pid) into it; kConflict names the
  /// owner that holds it. The lock ends with the process, however it ends.
  virtual Result<std::unique_ptr<FileLock>> Lock(const std::string& path,
                                                 std::string_view owner) = 0;
};

/// The operating system's files.
class PosixFileSystem final : public FileSystem {
 public:
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
};

/// "a/b" of "a" and "b".
std::string JoinPath(std::string_view folder, std::string_view name);
/// The folder of a path: "a" of "a/b", "." of "b".
std::string ParentPath(std::string_view path);

/// The whole file; kLimit when it is longer than max_bytes (nothing is allocated then).
Result<Bytes> ReadWholeFile(const FileSystem& fs, const std::string& path, std::uint64_t max_bytes);
/// Fills `out` from `offset`; kCorrupt when the file ends before it is full.
Status ReadExactly(const File& file, const std::string& path, std::uint64_t offset,
                   MutableByteView out);
/// Writes "<path>.tmp", syncs it, renames it to `path` and syncs the folder: after a power cut the
/// file holds the old bytes or the new ones. On failure the old ones stay.
Status WriteFileAtomically(FileSystem& fs, const std::string& path, ByteView bytes,
                           Access access = Access::kShared);
/// Removes a file, or a folder with everything in it; ok when there is nothing.
Status RemoveTree(FileSystem& fs, const std::string& path);

}  // namespace loom::store
