// How threads of libtorch's operators wait for each other. OpenMP's own default is to spin for some
// milliseconds, which makes a step several times slower as soon as another program wants the
// processors: a thread spins in the place of the one that it waits for.
#pragma once

#include <cstdint>

namespace loom::app {

/// Lets them sleep instead, unless there is one thread only or the user has said otherwise
/// (OMP_WAIT_POLICY, GOMP_SPINCOUNT). OpenMP reads that before main, so this starts the program
/// again, in the same process: call it before anything is opened or printed. Returns when there is
/// nothing to change, or when the program cannot be started again.
void WaitPassively(std::uint32_t threads);

}  // namespace loom::app
