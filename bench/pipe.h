// Values between the processes of a measurement, and its end when something is wrong.
#pragma once

#include <errno.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace loom {

[[noreturn]] inline void Die(const std::string& why) {
  std::fprintf(stderr, "%s: %s\n", program_invocation_short_name, why.c_str());
  std::_Exit(1);
}

template <class T>
void Put(int fd, const T& value) {
  if (::write(fd, &value, sizeof value) != static_cast<ssize_t>(sizeof value)) Die("a pipe broke");
}
template <class T>
T Get(int fd) {
  T value;
  if (::read(fd, &value, sizeof value) != static_cast<ssize_t>(sizeof value)) Die("a pipe broke");
  return value;
}

}  // namespace loom
