// Whole files: memory-mapped for reading, and written so that a reader sees the old bytes or the
// new ones, never half. What a peer writes while a run lasts goes through store/file_system.h
// instead, which the simulator can break; here are the files of users.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/bytes.h"
#include "base/result.h"

namespace loom {

/// A read-only map of a regular file. Move-only; views die with it. A file that others shorten
/// while it is mapped ends the process (SIGBUS): map only files that nobody rewrites in place.
class MappedFile {
 public:
  static Result<MappedFile> Open(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  ByteView bytes() const { return bytes_; }
  const std::string& path() const { return path_; }

 private:
  MappedFile(std::string path, ByteView bytes) : path_(std::move(path)), bytes_(bytes) {}
  std::string path_;
  ByteView bytes_;
};

/// The bytes of a file of at most max_bytes.
Result<std::string> ReadFile(const std::string& path, std::size_t max_bytes);

/// Writes the pieces one after the other to path.tmp, syncs, renames to path and syncs the folder.
/// On failure the temporary file is removed and path is as it was.
Status WriteFileAtomic(const std::string& path, std::span<const ByteView> pieces);
inline Status WriteFileAtomic(const std::string& path, ByteView bytes) {
  return WriteFileAtomic(path, std::span<const ByteView>(&bytes, 1));
}

/// The path of `name` in the folder.
std::string InFolder(const std::string& folder, std::string_view name);

/// fsync of a folder, so that renames and new names in it last.
Status SyncFolder(const std::string& path);

}  // namespace loom
