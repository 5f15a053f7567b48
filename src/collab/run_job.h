// A compute job on an engine: what the compute thread of a daemon and the simulator's cost model both
// call, so that there is one place where jobs meet numbers.
#pragma once

#include <atomic>

#include "collab/effects.h"

namespace loom::collab {

/// Runs any job but CheckpointJob, which needs a disk. `cut` stops a WorkJob early; it may be null.
JobResult RunJob(Engine& engine, const Job& job, const std::atomic<bool>* cut);

}  // namespace loom::collab
