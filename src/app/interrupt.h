// Ctrl-C, SIGTERM and SIGHUP as a flag that loops look at: the first asks to stop cleanly, the
// second ends the process at once.
#pragma once

#include <atomic>

namespace loom::app {

/// Installs the handlers on the first call. The flag turns true once and stays so.
const std::atomic<bool>& InterruptFlag();

}  // namespace loom::app
