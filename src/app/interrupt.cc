// A signal handler can reach nothing but a static flag: the one static variable of the app.
#include "app/interrupt.h"

#include <csignal>

#include <unistd.h>

namespace loom::app {
namespace {

std::atomic<bool> stop_requested{false};

void OnSignal(int signal) {
  if (stop_requested.exchange(true)) _exit(128 + signal);
}

}  // namespace

const std::atomic<bool>& InterruptFlag() {
  static_assert(std::atomic<bool>::is_always_lock_free);
  struct sigaction action{};
  action.sa_handler = OnSignal;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  // A closed terminal ends it as Ctrl-C does; nohup, which has it ignored, keeps its meaning.
  struct sigaction hangup{};
  if (sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler != SIG_IGN)
    sigaction(SIGHUP, &action, nullptr);
  return stop_requested;
}

}  // namespace loom::app
