// Defects planted on purpose: a simulator that does not catch them proves nothing. This program has
// its own copy of the core, compiled with LOOM_MUTATIONS.
#include <gtest/gtest.h>

#include "collab/mutations.h"
#include "sim/scenario.h"

namespace loom::sim {
namespace {

/// The first failure that some seed of some scenario finds; empty when none does.
std::string Hunt(const std::vector<Scenario>& scenarios, std::uint64_t seeds,
                 const Planted& planted = {}) {
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    for (const Scenario& scenario : scenarios) {
      const Outcome outcome =
          RunScenario(scenario, {.seed = seed, .trace = false, .planted = planted});
      if (outcome.failures.empty()) continue;
      fmt::print("caught with seed {} of {}: {}\n", seed, scenario.Name(),
                 outcome.failures.front());
      return outcome.failures.front();
    }
  }
  return {};
}

class MutationTest : public ::testing::Test {
 protected:
  void TearDown() override { collab::planted_mutations = {}; }
};

TEST_F(MutationTest, WithoutOneNothingIsFound) {
  EXPECT_EQ(Hunt({{Fault::kPowerCut, Phase::kVote},
                  {Fault::kOwnerKilled, Phase::kReduce},
                  {Fault::kHiddenQuorum, Phase::kVote}},
                 3),
            "");
}

TEST_F(MutationTest, R3AVoteThatIsNotSyncedIsCaught) {
  const std::string found =
      Hunt({{Fault::kPowerCut, Phase::kVote}, {Fault::kPowerCut, Phase::kCommit}}, 20,
           {.vote_not_synced = true});
  EXPECT_NE(found.find("not synced before it left"), std::string::npos) << found;
}

TEST_F(MutationTest, R4ATakeoverThatIgnoresVotesIsCaught) {
  collab::planted_mutations.votes_ignored = true;
  const std::string found = Hunt({{Fault::kHiddenQuorum, Phase::kVote}}, 20);
  EXPECT_NE(found.find("two records of round"), std::string::npos) << found;
}

TEST_F(MutationTest, R5AnEarlyOverwriteIsCaught) {
  const std::string found = Hunt({{Fault::kNone, Phase::kWork}}, 1, {.early_overwrite = true});
  EXPECT_NE(found.find("its state has root"), std::string::npos) << found;
}

TEST_F(MutationTest, R17ARetryThatCountsTwiceIsCaught) {
  collab::planted_mutations.retry_counted_twice = true;
  const std::string found = Hunt({{Fault::kNone, Phase::kWork}}, 1);
  EXPECT_NE(found.find("without having been returned"), std::string::npos) << found;
}

TEST_F(MutationTest, R20AReduceThatMixesTwoAttemptsIsCaught) {
  collab::planted_mutations.attempts_mixed = true;
  const std::string found =
      Hunt({{Fault::kOwnerKilled, Phase::kReduce}, {Fault::kShortFreeze, Phase::kReduce}}, 100);
  EXPECT_NE(found.find("is not the mean of the listed contributions"), std::string::npos) << found;
}

}  // namespace
}  // namespace loom::sim
