#include "app/standard_streams.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "app/args.h"

namespace loom::app {

void OpenMissingStreams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) == -1 && errno == EBADF) {
      static_cast<void>(open("/dev/null", O_RDWR));  // the lowest free number: this one
    }
  }
}

int CheckStdout(int code) {
  const bool failed_before = std::ferror(stdout) != 0;
  const bool flushed = std::fflush(stdout) == 0;
  const int error = errno;
  if (code != 0 || (flushed && !failed_before)) return code;
  fmt::print(stderr, "loom: the output could not be written whole{}\n",
             flushed ? std::string() : fmt::format(": {}", std::strerror(error)));
  return ExitCode(!flushed && error == ENOSPC ? Code::kDiskFull : Code::kIo);
}

}  // namespace loom::app
