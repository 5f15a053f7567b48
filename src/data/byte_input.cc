#include "data/byte_input.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/fd.h"
#include "base/os_error.h"

namespace loom::data {
namespace {

constexpr std::string_view kGzip = ".gz";
constexpr std::string_view kZstd = ".zst";

class FileInput final : public ByteInput {
 public:
  FileInput(std::string path, int fd) : path_(std::move(path)), file_(fd) {}

  Status Check() const {
    if (file_.fd < 0) return OsError(errno, fmt::format("cannot open '{}'", path_));
    struct stat info{};
    if (::fstat(file_.fd, &info) != 0)
      return OsError(errno, fmt::format("cannot stat '{}'", path_));
    if (S_ISREG(info.st_mode)) return {};
    return MakeError(Code::kInvalid, fmt::format("'{}' is not a regular file", path_));
  }

  Result<std::size_t> Read(MutableByteView out) override {
    for (;;) {
      const ssize_t n = ::read(file_.fd, out.data(), out.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return OsError(errno, fmt::format("cannot read '{}'", path_));
      taken_ += static_cast<std::uint64_t>(n);
      return static_cast<std::size_t>(n);
    }
  }
  std::uint64_t taken() const override { return taken_; }

 private:
  std::string path_;
  Fd file_;
  std::uint64_t taken_ = 0;
};

}  // namespace

std::string_view UnpackedName(std::string_view path) {
  for (const std::string_view ending : {kGzip, kZstd}) {
    if (path.ends_with(ending)) return path.substr(0, path.size() - ending.size());
  }
  return path;
}

Result<std::unique_ptr<ByteInput>> OpenInput(const std::string& path) {
  auto file =
      std::make_unique<FileInput>(path, ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  LOOM_RETURN_IF_ERROR(file->Check());
  if (path.ends_with(kGzip)) return UnpackGzip(std::move(file));
  if (path.ends_with(kZstd)) return UnpackZstd(std::move(file));
  return std::unique_ptr<ByteInput>(std::move(file));
}

Result<std::size_t> ViewInput::Read(MutableByteView out) {
  const std::size_t n = std::min(out.size(), bytes_.size() - taken_);
  if (n > 0) std::memcpy(out.data(), bytes_.data() + taken_, n);
  taken_ += n;
  return n;
}

}  // namespace loom::data
