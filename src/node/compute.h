// The compute of a run on this machine: how libtorch is set up for it, and whether its kernels are
// those of the run's founder (R27).
#pragma once

#include "node/run_data.h"

namespace loom::node {

/// kNotFound for a device that is not here.
Status CheckDevice(const train::LocalConfig& local);
/// Sets up libtorch for the calling thread as the run wants it.
Status ConfigureCompute(const train::RunSpec& spec, const train::LocalConfig& local);
/// train::ProbeKernels in a thread of its own: thread counts of libtorch belong to the calling one.
Result<Hash> ProbeInThread(const train::RunSpec& spec, const train::LocalConfig& local);
/// Whether there is the memory that a peer of this run needs; kLimit says both and what to do.
Status CheckMemory(const train::RunSpec& spec, const train::LocalConfig& local);
/// Exact mode: whether this machine computes the units of the run; kRefused says what to do.
/// Thread: one for which ConfigureCompute was called.
Status CheckKernels(const Run& run, const train::LocalConfig& local);

}  // namespace loom::node
