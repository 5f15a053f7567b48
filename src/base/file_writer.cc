#include "base/file_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "base/file.h"
#include "base/os_error.h"

namespace loom {
namespace {

std::string Aside(const std::string& path) { return path + ".tmp"; }

Error WriterError(std::string_view what, const std::string& path) {
  return OsError(errno, fmt::format("cannot {} '{}'", what, path));
}

}  // namespace

Result<FileWriter> FileWriter::Create(const std::string& path) {
  const int fd = ::open(Aside(path).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return WriterError("create", Aside(path));
  return FileWriter(path, fd);
}

FileWriter::FileWriter(FileWriter&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

FileWriter::~FileWriter() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(Aside(path_).c_str());
}

Status FileWriter::Write(ByteView bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return WriterError("write", Aside(path_));
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return {};
}

Status FileWriter::Finish() {
  if (::fsync(fd_) != 0) return WriterError("sync", Aside(path_));
  if (::rename(Aside(path_).c_str(), path_.c_str()) != 0) return WriterError("rename to", path_);
  ::close(std::exchange(fd_, -1));
  const std::string folder = std::filesystem::path(path_).parent_path().string();
  return SyncFolder(folder.empty() ? "." : folder);
}

}  // namespace loom
