// The agreed settings of a run's rounds: the [sync] table of run.toml. Equal on every peer, part of
// the spec's hash.
#pragma once

#include <cstdint>
#include <string>

#include "agreed/step.h"

namespace loom::collab {

/// What a round is (rule R16, methods 2.1 and 2.3).
enum class Method : std::uint8_t {
  kDiloco,     ///< H inner steps on each worker, then an outer step on the mean pseudo-gradient
  kAllReduce,  ///< one gradient of each worker, then an optimizer step on the mean
};

/// How many equal votes make a record (rules R8, R10).
enum class QuorumRule : std::uint8_t {
  kMajority,   ///< more than half; exactly half counts with the most senior member. Survives
               ///< crashes.
  kTwoThirds,  ///< more than two thirds, no tie-break. Survives fewer than n/3 liars.
};

/// What becomes of a worker's inner optimizer state when its host dies (rule R22).
enum class InnerStateRule : std::uint8_t {
  kLocal,  ///< kept by the host; zero when it does not come back
  kReset,  ///< zero after every absence
};

using agreed::OuterKind;

struct SyncConfig {
  Method method = Method::kDiloco;
  /// Exact mode (R24-R27): the weights are those of the one-process run, whoever comes and goes.
  /// Requires kAllReduce, codec fp32 and a fixed number of workers.
  bool exact = false;
  std::uint32_t inner_steps = 30;  ///< H: inner steps of a full-speed worker in a round; 1 in
                                   ///< kAllReduce
  std::uint32_t batch = 4;         ///< samples of one inner step of one worker
  std::uint32_t accumulation = 1;  ///< units of one worker in one step (R24); divides batch
  std::uint32_t context = 64;      ///< T: tokens of a sample
  OuterKind outer = OuterKind::kNesterov;
  float outer_lr = 1.0F;              ///< η
  float outer_momentum = 0.5F;        ///< μ
  agreed::OptimizerConfig optimizer;  ///< of kAllReduce: steps after the reduce
  std::string codec = "int8";         ///< fp32 | bf16 | int8
  QuorumRule quorum = QuorumRule::kMajority;
  InnerStateRule inner_state = InnerStateRule::kLocal;
  std::uint32_t workers = 0;            ///< fixed number of logical workers; 0 = one per peer
  std::uint32_t tile_elements = 65536;  ///< elements of a tile; a multiple of 256
  float max_norm = 0.0F;     ///< largest L2 norm of one pseudo-gradient (R19); 0 = no limit
  std::uint64_t rounds = 0;  ///< the run finishes after this round; 0 = until `finish`
  std::uint64_t seed = 0;    ///< of first weights and sample order
};

/// Units of a step (R24): what exact mode sums.
inline std::uint64_t NumUnits(const SyncConfig& config) {
  return std::uint64_t{config.workers} * config.accumulation;
}

}  // namespace loom::collab
