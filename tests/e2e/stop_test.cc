// What a person does to a running swarm: Ctrl-C, pause, resume, leave. Nobody is stranded, nothing
// is lost, and nobody says anything after his last word.
#include <signal.h>

#include <algorithm>

#include "tests/e2e/swarm_process.h"

namespace loom::e2e {
namespace {

class Stopping : public SwarmTest {
 protected:
  void Tell(const Peer& peer, const std::string& verb) {
    const Ended ended = Run({verb, "--dir", peer.dir});
    EXPECT_EQ(ended.code, 0) << ended.log;
  }
};

TEST_F(Stopping, OneOfThreeLeavesAndTheOthersGoOnAtOnce) {
  const std::vector<Peer*> all = Three();
  ASSERT_FALSE(HasFailure());
  EXPECT_EQ(Interrupt(*all[1]), 0);
  ASSERT_TRUE(UntilRound({all[0], all[2]}, all[0]->round + 2, 2));
  Resume(*all[1]);
  ASSERT_TRUE(UntilRound(all, all[0]->round + 2, 3));
  ExpectOneHistory();
}

TEST_F(Stopping, AllAtOnceAndTheRunGoesOn) {
  const std::vector<Peer*> all = Three();
  ASSERT_FALSE(HasFailure());
  for (Peer* peer : all) peer->child->Signal(SIGINT);
  for (Peer* peer : all) EXPECT_EQ(AwaitEnd(*peer, 90s), 0) << peer->name;
  std::uint64_t last = 0;
  for (Peer* peer : all) last = std::max<std::uint64_t>(last, Records(*peer).records.size());
  for (Peer* peer : all) Resume(*peer);
  ASSERT_TRUE(UntilRound(all, last + 2));
  ExpectOneHistory();
}

TEST_F(Stopping, APausedSwarmMakesNoRoundsAndGoesOnWhenResumed) {
  const std::vector<Peer*> all = Three();
  ASSERT_FALSE(HasFailure());
  for (Peer* peer : all) Tell(*peer, "pause");
  // The rounds that only say who paused.
  const Time begin = SystemClock().Now();
  ASSERT_TRUE(Until("quiet", [&] { return SystemClock().Now() - begin >= 8s; }));
  const std::uint64_t then = all[0]->round;
  const Time quiet = SystemClock().Now();
  ASSERT_TRUE(Until("quiet", [&] { return SystemClock().Now() - quiet >= 6s; }));
  EXPECT_LE(all[0]->round, then + 1) << "a paused swarm races through empty rounds";
  for (Peer* peer : all) Tell(*peer, "resume");
  ASSERT_TRUE(UntilRound(all, then + 3, 3));
  ExpectOneHistory();
}

TEST_F(Stopping, TheOthersSeeWhoIsPausedAndGoOn) {
  const std::vector<Peer*> all = Three();
  ASSERT_FALSE(HasFailure());
  Tell(*all[2], "pause");
  const std::string shown = fmt::format(R"("id": "{}", "state": "paused")", all[2]->id);
  ASSERT_TRUE(Until("the host's status shows the pause", [&] {
    const Ended status = Run({"status", "--dir", all[0]->dir, "--json"});
    return status.said.size() == 1 && json::Dump(status.said[0]).find(shown) != std::string::npos;
  }));
  ASSERT_TRUE(UntilRound({all[0], all[1]}, all[0]->round + 2, 2));
  Tell(*all[2], "resume");
  ASSERT_TRUE(UntilRound(all, all[0]->round + 2, 3));
  ExpectOneHistory();
}

TEST_F(Stopping, TheHostMayLeave) {
  const std::vector<Peer*> all = Three();
  ASSERT_FALSE(HasFailure());
  Tell(*all[0], "leave");
  EXPECT_EQ(AwaitEnd(*all[0], 90s), 0);
  ASSERT_TRUE(UntilRound({all[1], all[2]}, all[1]->round + 2, 2));
  ExpectOneHistory();
}

}  // namespace
}  // namespace loom::e2e
