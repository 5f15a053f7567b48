#include "base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "base/fd.h"
#include "base/file_writer.h"
#include "base/os_error.h"

namespace loom {

namespace {

Error FileError(std::string_view what, const std::string& path) {
  return OsError(errno, fmt::format("cannot {} '{}'", what, path));
}

Result<std::size_t> RegularSize(int fd, const std::string& path) {
  struct stat info{};
  if (::fstat(fd, &info) != 0) return FileError("stat", path);
  if (!S_ISREG(info.st_mode)) {
    return MakeError(Code::kInvalid, fmt::format("'{}' is not a regular file", path));
  }
  return static_cast<std::size_t>(info.st_size);
}

}  // namespace

Result<MappedFile> MappedFile::Open(const std::string& path) {
  const Fd file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) return FileError("open", path);
  LOOM_ASSIGN(const std::size_t size, RegularSize(file.fd, path));
  if (size == 0) return MappedFile(path, {});
  void* at = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (at == MAP_FAILED) return FileError("map", path);
  return MappedFile(path, {static_cast<const std::byte*>(at), size});
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

Result<std::string> ReadFile(const std::string& path, std::size_t max_bytes) {
  const Fd file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) return FileError("open", path);
  LOOM_ASSIGN(const std::size_t size, RegularSize(file.fd, path));
  if (size > max_bytes) {
    return MakeError(Code::kLimit,
                     fmt::format("'{}' has {} bytes, the limit is {}", path, size, max_bytes));
  }
  std::string out(size, '\0');
  std::size_t done = 0;
  while (done < size) {
    const ssize_t n = ::read(file.fd, out.data() + done, size - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FileError("read", path);
    if (n == 0) break;
    done += static_cast<std::size_t>(n);
  }
  out.resize(done);
  return out;
}

Status WriteFileAtomic(const std::string& path, std::span<const ByteView> pieces) {
  LOOM_ASSIGN(FileWriter file, FileWriter::Create(path));
  for (const ByteView piece : pieces) LOOM_RETURN_IF_ERROR(file.Write(piece));
  return file.Finish();
}

std::string InFolder(const std::string& folder, std::string_view name) {
  return (std::filesystem::path(folder) / name).string();
}

Status SyncFolder(const std::string& path) {
  const Fd folder{::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (folder.fd < 0) return FileError("open folder", path);
  if (::fsync(folder.fd) != 0) return FileError("sync folder", path);
  return {};
}

}  // namespace loom
