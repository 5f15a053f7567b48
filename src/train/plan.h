// What a run will take from a machine and its link, before anything is allocated: `--dry-run`.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "train/spec.h"

namespace loom::train {

/// What a link's queue holds, encoded, of the bulk that waits for it.
inline constexpr std::uint64_t kLinkQueueBytes = 8U << 20;

/// Bytes of one peer: its anonymous memory at the peak, files that are mapped not counted.
struct RunPlan {
  std::uint64_t parameters = 0;  ///< trained
  std::uint64_t frozen = 0;      ///< parameters that keep their values
  std::uint64_t hosted = 0;      ///< workers of this peer
  std::uint64_t weights = 0;     ///< agreed weights, those that workers train, and frozen ones
  std::uint64_t gradients = 0;
  std::uint64_t inner = 0;        ///< the inner optimizers' state and scratch memory
  std::uint64_t outer = 0;        ///< what the step rule keeps, and a lossy codec's error feedback
  std::uint64_t encoded = 0;      ///< contributions, and the result of the reduce
  std::uint64_t activations = 0;  ///< peak of one micro-batch
  std::uint64_t base = 0;         ///< the program itself, libtorch's own memory and small things
  std::uint64_t total = 0;
  std::uint64_t payload = 0;  ///< one encoded pseudo-gradient
  std::uint64_t bytes_up_per_round = 0;
  std::uint64_t bytes_down_per_round = 0;
  std::uint64_t tokens_per_round = 0;  ///< of all workers
  double seconds_per_round = 0;        ///< compute and transfer, nothing hidden
  double eta_s = 0;                    ///< of the whole run; 0 when it has no last round
};

/// What is not in the spec.
struct PlanInput {
  std::uint32_t peers = 1;
  double tokens_per_second = 0;  ///< of one worker; 0 = not known, then no times
  double link_up = 0;            ///< bytes a second; 0 = as fast as needed
  double link_down = 0;
};

/// spec must be resolved; a vocabulary of 0 is planned as 256.
Result<RunPlan> PlanRun(const RunSpec& spec, const LocalConfig& local, const PlanInput& input);

}  // namespace loom::train
