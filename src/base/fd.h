// A file descriptor that is closed at the end of its scope.
#pragma once

#include <unistd.h>

namespace loom {

struct Fd {
  int fd;  ///< negative: none
  explicit Fd(int f) : fd(f) {}
  ~Fd() {
    if (fd >= 0) ::close(fd);
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
};

}  // namespace loom
