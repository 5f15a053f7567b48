#include "base/os_error.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

namespace loom {

Error OsError(int error, std::string what) {
  std::string message = fmt::format("{}: {}", what, std::strerror(error));
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return MakeError(Code::kDiskFull, std::move(message),
                       "free some space; nothing older was changed");
    case EFBIG:
      return MakeError(Code::kDiskFull, std::move(message),
                       "this disk or the limit `ulimit -f` allows no file of that size; nothing "
                       "older was changed");
    case ENOENT:
      return MakeError(Code::kNotFound, std::move(message));
    case EACCES:
    case EPERM:
    case EROFS:
      return MakeError(Code::kIo, std::move(message),
                       "check who owns the folder and that it can be written");
    default:
      return MakeError(Code::kIo, std::move(message));
  }
}

}  // namespace loom
