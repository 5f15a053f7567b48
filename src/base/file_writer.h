// A file written piece by piece, for what is too large to lie in memory: beside its name at first,
// and in its place only when it is whole and synced.
#pragma once

#include <string>
#include <utility>

#include "base/bytes.h"
#include "base/result.h"

namespace loom {

/// Movable. Without Finish nothing is left behind and the old file, if any, stays as it was.
class FileWriter {
 public:
  static Result<FileWriter> Create(const std::string& path);
  FileWriter(FileWriter&& other) noexcept;
  FileWriter& operator=(FileWriter&&) = delete;
  ~FileWriter();

  Status Write(ByteView bytes);
  /// Syncs, renames path.tmp to path and syncs the folder.
  Status Finish();

 private:
  FileWriter(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  std::string path_;
  int fd_ = -1;
};

}  // namespace loom
