// Defects planted on purpose: a simulator that does not catch them proves nothing. This program has
// its own copy of the core, compiled with LOOM_MUTATIONS.
#include <gtest/gtest.h>

#include <string_view>

#include "collab/mutations.h"
#include "sim/scenario.h"

namespace loom::sim {
namespace {

/// The first failure with these words that some seed of some scenario finds; empty when none does.
/// A defect may show in other ways before.
std::string Hunt(const std::vector<Scenario>& scenarios, std::uint64_t seeds,
                 std::string_view words, const Planted& planted = {}) {
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    for (const Scenario& scenario : scenarios) {
      const Outcome outcome =
          RunScenario(scenario, {.seed = seed, .trace = false, .planted = planted});
      for (const std::string& failure : outcome.failures) {
        if (failure.find(words) == std::string::npos) continue;
        fmt::print("caught with seed {} of {}: {}\n", seed, scenario.Name(), failure);
        return failure;
      }
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
                 3, ""),
            "");
}

TEST_F(MutationTest, R3AVoteThatIsNotSyncedIsCaught) {
  EXPECT_NE(Hunt({{Fault::kPowerCut, Phase::kVote}, {Fault::kPowerCut, Phase::kCommit}}, 20,
                 "not synced before it left", {.vote_not_synced = true}),
            "");
}

TEST_F(MutationTest, R4ATakeoverThatIgnoresVotesIsCaught) {
  collab::planted_mutations.votes_ignored = true;
  EXPECT_NE(Hunt({{Fault::kHiddenQuorum, Phase::kVote}}, 20, "two records of round"), "");
}

TEST_F(MutationTest, R5AnEarlyOverwriteIsCaught) {
  EXPECT_NE(
      Hunt({{Fault::kNone, Phase::kWork}}, 1, "its state has root", {.early_overwrite = true}), "");
}

TEST_F(MutationTest, R17ARetryThatCountsTwiceIsCaught) {
  collab::planted_mutations.retry_counted_twice = true;
  EXPECT_NE(Hunt({{Fault::kNone, Phase::kWork}}, 1, "without having been returned"), "");
}

TEST_F(MutationTest, R20AReduceThatMixesTwoAttemptsIsCaught) {
  collab::planted_mutations.attempts_mixed = true;
  EXPECT_NE(Hunt({{Fault::kOwnerKilled, Phase::kReduce}, {Fault::kShortFreeze, Phase::kReduce}},
                 100, "is not the mean of the listed contributions"),
            "");
}

}  // namespace
}  // namespace loom::sim
