// The adapter to POSIX. Interrupted calls are repeated, short writes go on, errno becomes an Error
// that names the path; "no space", "over quota" and "too large" are kDiskFull.
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>

#include "base/os_error.h"
#include "store/file_system.h"

namespace loom::store {
namespace {

Error FromErrno(int error, std::string_view what, const std::string& path) {
  return OsError(error, fmt::format("{}: {}", path, what));
}

template <class Call>
auto Retry(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

class PosixFile final : public File {
 public:
  PosixFile(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}

  Status Append(ByteView bytes) override {
    LOOM_ASSIGN(const std::uint64_t size, Size());
    return WriteAt(size, bytes);
  }

  Status WriteAt(std::uint64_t offset, ByteView bytes) override {
    while (!bytes.empty()) {
      const ssize_t n = Retry([&] {
        return ::pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
      });
      if (n < 0) return FromErrno(errno, fmt::format("write {} bytes", bytes.size()), path_);
      bytes = bytes.subspan(static_cast<std::size_t>(n));
      offset += static_cast<std::uint64_t>(n);
    }
    return {};
  }

  Result<std::size_t> ReadAt(std::uint64_t offset, MutableByteView out) const override {
    std::size_t done = 0;
    while (done < out.size()) {
      const ssize_t n = Retry([&] {
        return ::pread(fd_.get(), out.data() + done, out.size() - done,
                       static_cast<off_t>(offset + done));
      });
      if (n < 0) return FromErrno(errno, fmt::format("read {} bytes", out.size()), path_);
      if (n == 0) break;
      done += static_cast<std::size_t>(n);
    }
    return done;
  }

  Status Truncate(std::uint64_t size) override {
    if (Retry([&] { return ::ftruncate(fd_.get(), static_cast<off_t>(size)); }) < 0) {
      return FromErrno(errno, fmt::format("cut to {} bytes", size), path_);
    }
    return {};
  }

  Result<std::uint64_t> Size() const override {
    struct stat info{};
    if (::fstat(fd_.get(), &info) < 0) return FromErrno(errno, "stat", path_);
    return static_cast<std::uint64_t>(info.st_size);
  }

  Status Sync() override {
    // Not repeated after an error: the kernel may have dropped the pages it could not write.
    if (::fsync(fd_.get()) < 0) return FromErrno(errno, "sync", path_);
    return {};
  }

 private:
  Descriptor fd_;
  std::string path_;
};

class PosixLock final : public FileLock {
 public:
  explicit PosixLock(int fd) : fd_(fd) {}

 private:
  Descriptor fd_;
};

}  // namespace

Result<std::unique_ptr<File>> PosixFileSystem::Open(const std::string& path, OpenMode mode,
                                                    Access access) {
  int flags = O_CLOEXEC;
  switch (mode) {
    case OpenMode::kRead:
      flags |= O_RDONLY;
      break;
    case OpenMode::kWrite:
      flags |= O_RDWR | O_CREAT;
      break;
    case OpenMode::kCreate:
      flags |= O_RDWR | O_CREAT | O_TRUNC;
      break;
  }
  const mode_t bits = access == Access::kPrivate ? 0600 : 0666;
  const int fd = Retry([&] { return ::open(path.c_str(), flags, bits); });
  if (fd < 0) return FromErrno(errno, "open", path);
  auto file = std::make_unique<PosixFile>(fd, path);
  struct stat info{};
  if (::fstat(fd, &info) < 0) return FromErrno(errno, "stat", path);
  if (!S_ISREG(info.st_mode)) return MakeError(Code::kIo, fmt::format("{}: not a file", path));
  return std::unique_ptr<File>(std::move(file));
}

Status PosixFileSystem::Rename(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) < 0) {
    return FromErrno(errno, fmt::format("rename to {}", to), from);
  }
  return {};
}

Status PosixFileSystem::Remove(const std::string& path) {
  if (std::remove(path.c_str()) < 0) return FromErrno(errno, "remove", path);
  return {};
}

Result<std::vector<DirEntry>> PosixFileSystem::List(const std::string& path) const {
  DIR* dir = ::opendir(path.c_str());
  if (dir == nullptr) return FromErrno(errno, "list", path);
  std::vector<DirEntry> out;
  int error = 0;
  while (true) {
    errno = 0;
    const dirent* entry = ::readdir(dir);
    if (entry == nullptr) {
      error = errno;
      break;
    }
    const std::string_view name = entry->d_name;
    if (name == "." || name == "..") continue;
    struct stat info{};
    const bool known = ::fstatat(::dirfd(dir), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0;
    out.push_back({std::string(name), known && S_ISDIR(info.st_mode)});
  }
  ::closedir(dir);
  if (error != 0) return FromErrno(error, "list", path);
  std::sort(out.begin(), out.end(),
            [](const DirEntry& a, const DirEntry& b) { return a.name < b.name; });
  return out;
}

Status PosixFileSystem::MakeDirs(const std::string& path, Access access) {
  struct stat info{};
  if (::stat(path.c_str(), &info) == 0) {
    if (S_ISDIR(info.st_mode)) return {};
    return MakeError(Code::kIo, fmt::format("{}: is a file where a folder is needed", path));
  }
  const std::string parent = ParentPath(path);
  if (parent != path) LOOM_RETURN_IF_ERROR(MakeDirs(parent, Access::kShared));
  const mode_t bits = access == Access::kPrivate ? 0700 : 0777;
  if (::mkdir(path.c_str(), bits) < 0 && errno != EEXIST) {
    return FromErrno(errno, "make folder", path);
  }
  return SyncDir(parent);
}

Status PosixFileSystem::SyncDir(const std::string& path) {
  const Descriptor dir(
      Retry([&] { return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
  if (dir.get() < 0) return FromErrno(errno, "open folder", path);
  // Some file systems cannot sync a folder and say so; their renames are as durable as they get.
  if (::fsync(dir.get()) < 0 && errno != EINVAL && errno != ENOTSUP) {
    return FromErrno(errno, "sync folder", path);
  }
  return {};
}

Result<std::uint64_t> PosixFileSystem::Size(const std::string& path) const {
  struct stat info{};
  if (::stat(path.c_str(), &info) < 0) return FromErrno(errno, "stat", path);
  return static_cast<std::uint64_t>(info.st_size);
}

bool PosixFileSystem::Exists(const std::string& path) const {
  struct stat info{};
  return ::stat(path.c_str(), &info) == 0;
}

Result<std::uint64_t> PosixFileSystem::FreeBytes(const std::string& path) const {
  struct statvfs info{};
  if (::statvfs(path.c_str(), &info) < 0) return FromErrno(errno, "ask for free space", path);
  return static_cast<std::uint64_t>(info.f_bavail) * info.f_frsize;
}

Result<std::unique_ptr<FileLock>> PosixFileSystem::Lock(const std::string& path,
                                                        std::string_view owner) {
  const int fd = Retry([&] { return ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666); });
  if (fd < 0) return FromErrno(errno, "open", path);
  auto lock = std::make_unique<PosixLock>(fd);
  if (Retry([&] { return ::flock(fd, LOCK_EX | LOCK_NB); }) < 0) {
    if (errno != EWOULDBLOCK) return FromErrno(errno, "lock", path);
    std::array<char, 64> text{};
    const ssize_t n = ::pread(fd, text.data(), text.size(), 0);
    std::string_view holder(text.data(), n > 0 ? static_cast<std::size_t>(n) : 0);
    while (!holder.empty() && (holder.back() == '\n' || holder.back() == ' ')) {
      holder.remove_suffix(1);
    }
    return MakeError(Code::kConflict,
                     fmt::format("{}: in use by process {}", ParentPath(path),
                                 holder.empty() ? "unknown" : holder),
                     "stop that process, or use another folder");
  }
  const std::string text = fmt::format("{}\n", owner);
  if (::ftruncate(fd, 0) < 0 || ::pwrite(fd, text.data(), text.size(), 0) < 0) {
    return FromErrno(errno, "write the lock", path);
  }
  return std::unique_ptr<FileLock>(std::move(lock));
}

}  // namespace loom::store
