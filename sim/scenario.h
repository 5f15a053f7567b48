// The fault matrix: one fault at one phase of one round of a swarm of five, then recovery, with
// every promise checked by the audit. `loom_sim --seed N --scenario NAME` replays any cell.
#pragma once

#include <string>
#include <vector>

#include "sim/world.h"

namespace loom::sim {

enum class Phase : std::uint8_t { kWork, kScatter, kReduce, kVote, kCommit };
enum class Fault : std::uint8_t {
  kNone,
  kLeaderKilled,
  kMemberKilled,
  kOwnerKilled,
  kLeaderFrozen,
  kMemberFrozen,
  kPartition,
  kOldState,
  kLoss,
  kPowerCut,
  kAllKilled,
  kSplitVote,     ///< votes get lost; who first holds the record is killed at once, and the leader
  kShortFreeze,   ///< an owner stops for a few seconds and comes back into a later attempt
  kLinkCut,       ///< two members lose their link, for 20 s or for good, both reach the rest (R35)
  kHiddenQuorum,  ///< only the leader hears the votes, has the record, and dies of it (R4)
};

struct Scenario {
  Fault fault = Fault::kNone;
  Phase phase = Phase::kWork;
  bool exact = false;  ///< exact all-reduce, held to the one-process run by the audit
  std::string Name() const;
};

/// Every fault at every phase, with local steps and in exact mode; a hidden quorum has only one.
std::vector<Scenario> FaultMatrix();
/// kNotFound lists the names.
Result<Scenario> ParseScenario(const std::string& name);

struct Outcome {
  std::vector<std::string> failures;
  std::vector<std::string> trace;
  Round rounds = 0;
  double virtual_seconds = 0;
  std::uint64_t events = 0;
  double longest_wait = 0;  ///< seconds between commits while a quorum was connected
  double fault_free = 0;    ///< seconds of a round before the fault
  std::uint64_t used = 0;
  std::uint64_t returned = 0;
};

struct RunOptions {
  std::uint64_t seed = 1;
  bool trace = false;
  Planted planted;
};

Outcome RunScenario(const Scenario& scenario, const RunOptions& options);

/// The settings of every simulated swarm, unless a test says otherwise.
WorldOptions SmallWorld(std::uint64_t seed);
/// The same in exact mode: seven workers of two units, one of which in one step breaks its bound.
WorldOptions ExactWorld(std::uint64_t seed);

}  // namespace loom::sim
