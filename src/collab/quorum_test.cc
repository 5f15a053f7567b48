// Rules R2, R8, R10, R13: who decides, who leads, for whom a swarm waits.
#include "collab/quorum.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "collab/agreement_explorer.h"

namespace loom::collab {
namespace {

using testing::MakeMembers;

std::set<PeerId> Ids(const std::vector<Member>& members, std::initializer_list<std::size_t> which) {
  std::set<PeerId> ids;
  for (const std::size_t i : which) ids.insert(members[i].id);
  return ids;
}

constexpr auto kMajority = QuorumRule::kMajority;
constexpr auto kTwoThirds = QuorumRule::kTwoThirds;

TEST(Quorum, R10SeniorityIsTheRoundListedThenTheId) {
  std::vector<Member> members = MakeMembers(3);
  const std::vector<Member> by_id = members;
  members[0].since = 7;
  members[2].since = 3;
  SortBySeniority(members);
  EXPECT_EQ(members[0].id, by_id[1].id);
  EXPECT_EQ(members[1].id, by_id[2].id);
  EXPECT_EQ(members[2].id, by_id[0].id);
}

TEST(Quorum, R10MoreThanHalfOrHalfWithTheSenior) {
  const auto four = MakeMembers(4);
  EXPECT_TRUE(IsQuorum(four, Ids(four, {1, 2, 3}), kMajority));
  EXPECT_TRUE(IsQuorum(four, Ids(four, {0, 3}), kMajority));
  EXPECT_FALSE(IsQuorum(four, Ids(four, {2, 3}), kMajority));
  EXPECT_FALSE(IsQuorum(four, Ids(four, {0}), kMajority));
  const auto two = MakeMembers(2);
  EXPECT_TRUE(IsQuorum(two, Ids(two, {0}), kMajority));
  EXPECT_FALSE(IsQuorum(two, Ids(two, {1}), kMajority));
  const auto one = MakeMembers(1);
  EXPECT_TRUE(IsQuorum(one, Ids(one, {0}), kMajority));
}

TEST(Quorum, R10StrangersCountForNothing) {
  const auto all = MakeMembers(5);
  const std::vector<Member> three(all.begin(), all.begin() + 3);
  EXPECT_FALSE(IsQuorum(three, Ids(all, {0, 3, 4}), kMajority));
  EXPECT_FALSE(IsQuorum({}, Ids(all, {0, 1, 2}), kMajority));
}

// Any two quorums of one list meet; under two-thirds in more than a third, so a liar cannot be all
// of it.
TEST(Quorum, R8R10AnyTwoQuorumsMeet) {
  for (std::size_t n = 1; n <= 7; ++n) {
    const auto members = MakeMembers(n);
    for (const QuorumRule rule : {kMajority, kTwoThirds}) {
      std::vector<std::set<PeerId>> quorums;
      for (std::size_t bits = 0; bits < (std::size_t{1} << n); ++bits) {
        std::set<PeerId> who;
        for (std::size_t i = 0; i < n; ++i) {
          if (((bits >> i) & 1U) != 0) who.insert(members[i].id);
        }
        if (IsQuorum(members, who, rule)) quorums.push_back(who);
      }
      ASSERT_FALSE(quorums.empty());
      for (const auto& a : quorums) {
        for (const auto& b : quorums) {
          const auto common = static_cast<std::size_t>(
              std::count_if(a.begin(), a.end(), [&](const PeerId& p) { return b.contains(p); }));
          ASSERT_GT(rule == kTwoThirds ? 3 * common : n * common, rule == kTwoThirds ? n : 0) << n;
        }
      }
    }
  }
}

TEST(Quorum, R8TwoThirdsHasNoTieBreak) {
  const auto three = MakeMembers(3);
  EXPECT_FALSE(IsQuorum(three, Ids(three, {0, 1}), kTwoThirds));
  EXPECT_TRUE(IsQuorum(three, Ids(three, {0, 1, 2}), kTwoThirds));
  const auto four = MakeMembers(4);
  EXPECT_FALSE(IsQuorum(four, Ids(four, {0, 1}), kTwoThirds));
  EXPECT_TRUE(IsQuorum(four, Ids(four, {1, 2, 3}), kTwoThirds));
}

TEST(Quorum, R2LeadersTakeTurnsByRoundAndTerm) {
  const auto members = MakeMembers(3);
  EXPECT_EQ(LeaderOf(members, 3, 0), members[0].id);
  EXPECT_EQ(LeaderOf(members, 4, 0), members[1].id);
  EXPECT_EQ(LeaderOf(members, 4, 1), members[2].id);
  EXPECT_EQ(LeaderOf(members, 4, 2), members[0].id);
}

TEST(Quorum, R13WaitsForTheFewestAndTheMostSenior) {
  const auto four = MakeMembers(4);
  EXPECT_TRUE(MissingForQuorum(four, Ids(four, {0, 3}), kMajority).empty());
  EXPECT_EQ(MissingForQuorum(four, Ids(four, {2, 3}), kMajority), std::vector<PeerId>{four[0].id});
  EXPECT_EQ(MissingForQuorum(four, {}, kMajority), (std::vector<PeerId>{four[0].id, four[1].id}));
  const auto five = MakeMembers(5);
  EXPECT_EQ(MissingForQuorum(five, Ids(five, {4}), kMajority),
            (std::vector<PeerId>{five[0].id, five[1].id}));
  EXPECT_EQ(MissingForQuorum(four, Ids(four, {0, 3}), kTwoThirds), std::vector<PeerId>{four[1].id});
}

TEST(Quorum, R10NamesThoseWhoseLossWouldStopTheRun) {
  const auto two = MakeMembers(2);
  EXPECT_EQ(Critical(two, Ids(two, {0, 1}), kMajority), std::vector<PeerId>{two[0].id});
  const auto three = MakeMembers(3);
  EXPECT_TRUE(Critical(three, Ids(three, {0, 1, 2}), kMajority).empty());
  EXPECT_EQ(Critical(three, Ids(three, {0, 2}), kMajority),
            (std::vector<PeerId>{three[0].id, three[2].id}));
  const auto four = MakeMembers(4);
  EXPECT_EQ(Critical(four, Ids(four, {0, 1, 2}), kMajority), std::vector<PeerId>{four[0].id});
}

}  // namespace
}  // namespace loom::collab
