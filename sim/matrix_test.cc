// The fault matrix: every fault at every phase of a round of five peers, many seeds
// each. The audit inside checks R5, R17, R20, R37 and promises 1, 2 and 4 in every run.
#include <gtest/gtest.h>

#include "sim/scenario.h"

#ifndef LOOM_SIM_SEEDS
#define LOOM_SIM_SEEDS 100
#endif

namespace loom::sim {
namespace {

class FaultMatrixTest : public ::testing::TestWithParam<Scenario> {};

TEST_P(FaultMatrixTest, SurvivorsAgreeAndNothingHangs) {
  fmt::print("{}: seeds 1..{}\n", GetParam().Name(), LOOM_SIM_SEEDS);
  for (std::uint64_t seed = 1; seed <= LOOM_SIM_SEEDS; ++seed) {
    const Outcome outcome = RunScenario(GetParam(), {.seed = seed, .trace = false, .planted = {}});
    if (outcome.failures.empty()) continue;
    const Outcome again = RunScenario(GetParam(), {.seed = seed, .trace = true, .planted = {}});
    const std::size_t from = again.trace.size() > 60 ? again.trace.size() - 60 : 0;
    for (std::size_t i = from; i < again.trace.size(); ++i) fmt::print("{}\n", again.trace[i]);
    ADD_FAILURE() << outcome.failures.front() << "\nreplay: loom_sim --seed " << seed
                  << " --scenario " << GetParam().Name();
    return;
  }
}

INSTANTIATE_TEST_SUITE_P(Sim, FaultMatrixTest, ::testing::ValuesIn(FaultMatrix()),
                         [](const auto& param) {
                           std::string name = param.param.Name();
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(SimTest, TheSameSeedGivesTheSameRun) {
  const Scenario scenario{Fault::kPowerCut, Phase::kVote};
  const Outcome a = RunScenario(scenario, {.seed = 4, .trace = true, .planted = {}});
  const Outcome b = RunScenario(scenario, {.seed = 4, .trace = true, .planted = {}});
  EXPECT_EQ(a.trace, b.trace);
  EXPECT_EQ(a.events, b.events);
}

}  // namespace
}  // namespace loom::sim
