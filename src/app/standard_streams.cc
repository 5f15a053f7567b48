#include "app/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "app/args.h"
#include "app/print.h"

namespace loom::app {

void OpenMissingStreams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) == -1 && errno == EBADF) {
      static_cast<void>(open("/dev/null", O_RDWR));  // the lowest free number: this one
    }
  }
}

int CheckStdout(int code) {
  const bool failed = std::fflush(stdout) != 0 || std::ferror(stdout) != 0;
  if (code != 0 || !failed) return code;
  Print(stderr, "loom: stdout did not take the whole output\n");
  return ExitCode(Code::kIo);
}

}  // namespace loom::app
