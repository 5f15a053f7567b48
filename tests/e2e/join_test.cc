// Joining: no setting but the invite, in the middle of a run, on different kernel paths.
#include "base/file.h"
#include "tests/e2e/swarm_process.h"
#include "train/spec.h"

namespace loom::e2e {
namespace {

using Joining = SwarmTest;

bool Contributed(const app::FolderRecords& folder, std::uint64_t round, const std::string& id) {
  if (round == 0 || round > folder.records.size()) return false;
  for (const collab::Contribution& c : folder.records[round - 1].body.contributions) {
    if (c.peer.Hex() == id) return true;
  }
  return false;
}

/// The record that lists the peer as a member; 0 = none.
std::uint64_t ListedIn(const app::FolderRecords& folder, const std::string& id) {
  for (const collab::Record& record : folder.records) {
    for (const collab::Member& member : record.body.members) {
      if (member.id.Hex() == id) return record.body.round;
    }
  }
  return 0;
}

TEST_F(Joining, TheInviteIsEnoughAndAThirdContributesInTheRoundAfterItsListing) {
  Peer& host = Host("host");
  Peer& second = Join("second", host.invite);
  ASSERT_TRUE(UntilRound({&host, &second}, 3, 2, 30s));
  Peer& third = Join("third", host.invite);
  ASSERT_TRUE(UntilRound({&host, &second, &third}, 1, 3));
  const std::uint64_t listed = ListedIn(Records(third), third.id);
  ASSERT_GT(listed, 0U);
  ASSERT_TRUE(UntilRound({&host, &second, &third}, listed + 2, 3));
  EXPECT_TRUE(Contributed(Records(host), listed + 1, third.id));
  EXPECT_TRUE(Contributed(Records(host), listed + 2, third.id));
  ExpectOneHistory();
}

// R28: every kernel path and every number of threads gives the same bits.
TEST_F(Joining, PlainAndVectorKernelsWithOneAndTwoThreadsAgreeInEveryRound) {
  Peer& host = Host("host", {.arguments = {}, .environment = {}});
  Peer& plain = Join("plain", host.invite,
                     {.arguments = {"--isa", "plain", "--threads", "1"},
                      .environment = {"ATEN_CPU_CAPABILITY=default"}});
  Peer& avx2 = Join("avx2", host.invite,
                    {.arguments = {"--isa", "avx2", "--threads", "2"},
                     .environment = {"ATEN_CPU_CAPABILITY=avx2", "OMP_WAIT_POLICY=passive"}});
  ASSERT_TRUE(UntilRound({&host, &plain, &avx2}, 1, 3));
  const std::uint64_t from = host.round;
  ASSERT_TRUE(UntilRound({&host, &plain, &avx2}, from + 5, 3));
  const app::FolderRecords folder = Records(host);
  for (const Peer* peer : {&host, &plain, &avx2}) {
    EXPECT_TRUE(Contributed(folder, from + 3, peer->id)) << peer->name;
  }
  ExpectOneHistory();
}

TEST_F(Joining, AFolderKeepsTheSettingsOfItsLastStart) {
  Peer& host = Host("host", {.arguments = {"--max-up", "900k", "--announce", "localhost:4711"},
                             .environment = {}});
  ASSERT_TRUE(UntilRound({&host}, 2));
  Kill(host);
  Resume(host);
  ASSERT_TRUE(UntilRound({&host}, host.round + 2));
  const auto kept = ReadFile(host.dir + "/keys/local", 1U << 16);
  ASSERT_TRUE(kept.ok());
  const auto local = train::ParseRun(*kept, "local");
  ASSERT_TRUE(local.ok()) << local.error().ToString();
  EXPECT_EQ(local->local.max_up, 900000U);
  EXPECT_EQ(local->local.announce, "localhost:4711");
}

TEST_F(Joining, OneFolderIsOnePeer) {
  Peer& host = Host("host");
  ASSERT_TRUE(UntilRound({&host}, 1));
  const Ended again = Run({"join", "--dir", host.dir});
  EXPECT_NE(again.code, 0);
  EXPECT_NE(again.log.find(std::to_string(host.child->pid())), std::string::npos) << again.log;
  ASSERT_TRUE(UntilRound({&host}, host.round + 1));
}

}  // namespace
}  // namespace loom::e2e
