// The arguments are read back from /proc, so that no caller has to carry them here.
#include "app/passive_wait.h"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/log.h"

namespace loom::app {

void WaitPassively(std::uint32_t threads) {
  constexpr const char* kPolicy = "OMP_WAIT_POLICY";
  if (threads < 2 || ::getenv(kPolicy) != nullptr || ::getenv("GOMP_SPINCOUNT") != nullptr) return;
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string words{std::istreambuf_iterator<char>(file), {}};
  std::vector<char*> argv;
  for (std::size_t at = 0; at < words.size();) {
    argv.push_back(words.data() + at);
    const std::size_t end = words.find('\0', at);
    at = end == std::string::npos ? words.size() : end + 1;
  }
  if (argv.empty()) return;
  argv.push_back(nullptr);
  ::setenv(kPolicy, "PASSIVE", 1);
  ::execv("/proc/self/exe", argv.data());
  Log(LogLevel::kWarn, "threads", "compute threads will spin: the program cannot start again");
}

}  // namespace loom::app
