// The exhaustive check of the agreement core (rules R1-R6, R10, R12): small configurations, every
// interleaving. How states are counted and merged is told in agreement_explorer.h. The planted
// faults prove that the check sees what it is meant to see: each must end in a printed
// counterexample.
#include <gtest/gtest.h>

#include <chrono>

#include "collab/agreement_explorer.h"

namespace loom::collab::testing {
namespace {

Outcome Explore(const char* name, const Limits& limits) {
  const auto start = std::chrono::steady_clock::now();
  Outcome outcome = Explorer(limits).Run();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::printf(
      "%s: %zu states visited (%zu local states, %zu local steps, %zu messages, %zu message sets), "
      "%s, %s [%.1f s]\n",
      name, outcome.states, outcome.locals, outcome.steps, outcome.messages, outcome.message_sets,
      outcome.complete ? "complete" : "not complete",
      outcome.violation.empty() ? "no violation" : outcome.violation.c_str(), seconds.count());
  for (const std::string& line : outcome.trace) std::printf("    %s\n", line.c_str());
  std::fflush(stdout);
  return outcome;
}

void ExpectSafe(const char* name, const Limits& limits) {
  const Outcome outcome = Explore(name, limits);
  EXPECT_EQ(outcome.violation, "");
  EXPECT_TRUE(outcome.complete);
  EXPECT_GT(outcome.finished, 0U) << "no state in which everyone holds every record";
}

void ExpectCaught(const char* name, const Limits& limits) {
  const Outcome outcome = Explore(name, limits);
  EXPECT_EQ(outcome.violation, "two records of one decision");
  EXPECT_FALSE(outcome.trace.empty());
}

TEST(AgreementModel, R1toR6ThreeMembersTwoRoundsTwoTermsOneCrash) {
  ExpectSafe("3 members, 2 rounds, 2 terms, 1 crash", {});
}

TEST(AgreementModel, R4ThreeMembersOneRoundThreeTerms) {
  ExpectSafe("3 members, 1 round, 3 terms", {.rounds = 1, .terms = 3, .crashes = 0});
}

TEST(AgreementModel, R3ThreeMembersOneRoundTwoCrashes) {
  ExpectSafe("3 members, 1 round, 2 terms, 2 crashes", {.rounds = 1, .crashes = 2});
}

TEST(AgreementModel, R3R4ThreeMembersOneRoundThreeTermsOneCrashPromptDisk) {
  ExpectSafe("3 members, 1 round, 3 terms, 1 crash, prompt disk",
             {.rounds = 1, .terms = 3, .crashes = 1, .prompt_disk = true});
}

TEST(AgreementModel, R10TwoMembersTwoRoundsThreeTermsTwoCrashes) {
  ExpectSafe("2 members, 2 rounds, 3 terms, 2 crashes",
             {.members = 2, .rounds = 2, .terms = 3, .crashes = 2});
}

TEST(AgreementModel, R12ARoundThatDelistsAMember) {
  ExpectSafe("3 members, 2 rounds, 2 terms, 1 crash, the first record delists",
             {.delisted_by_term = {2, 0}});
}

// Dropping messages that can do nothing any more must not hide a single combination of local
// states.
void ExpectSameCombinations(Limits limits) {
  limits.count_combinations = true;
  const Outcome dropped = Explore("messages dropped", limits);
  limits.keep_messages = true;
  const Outcome kept = Explore("messages kept", limits);
  EXPECT_TRUE(dropped.complete && kept.complete);
  EXPECT_EQ(dropped.combinations, kept.combinations);
  EXPECT_LT(dropped.states, kept.states);
}

TEST(AgreementModel, DroppedMessagesHideNothing) {
  ExpectSameCombinations({.rounds = 1});
  ExpectSameCombinations({.members = 2, .rounds = 2, .terms = 2, .crashes = 1});
}

TEST(AgreementModelFaults, R3VoteNotSynced) {
  ExpectCaught("vote not synced", {.rounds = 1, .fault = Fault::kVoteNotSynced});
}

TEST(AgreementModelFaults, R4TakeoverIgnoresVotes) {
  ExpectCaught("takeover ignores votes",
               {.rounds = 1, .crashes = 0, .fault = Fault::kTakeoverIgnoresVotes});
}

TEST(AgreementModelFaults, Trace1VoteRaisesNoPromise) {
  ExpectCaught("a vote raises no promise",
               {.rounds = 1, .terms = 3, .crashes = 0, .fault = Fault::kVoteRaisesNoPromise});
}

TEST(AgreementModelFaults, R2LeaderForgetsThatItLed) {
  ExpectCaught("a leader forgets that it led", {.rounds = 1, .fault = Fault::kForgetsThatItLed});
}

TEST(AgreementModelFaults, Trace2RecordNotSyncedBeforeTheNextRound) {
  ExpectCaught("record not synced", {.fault = Fault::kRecordNotSynced});
}

}  // namespace
}  // namespace loom::collab::testing
