// kill -9 and freezing: whoever remains a quorum goes on, and whoever comes back takes part again.
#include <signal.h>

#include "tests/e2e/swarm_process.h"

namespace loom::e2e {
namespace {

class Killing : public SwarmTest {
 protected:
  void AnyOfThreeMayDieAndComeBack(std::size_t which) {
    const std::vector<Peer*> all = Three();
    ASSERT_FALSE(HasFailure());
    Kill(*all[which]);
    std::vector<Peer*> others;
    for (Peer* peer : all) {
      if (peer != all[which]) others.push_back(peer);
    }
    const std::uint64_t then = std::max(others[0]->round, others[1]->round);
    ASSERT_TRUE(UntilRound(others, then + 3, 2));
    Resume(*all[which]);
    ASSERT_TRUE(UntilRound(all, then + 4, 3));
    const std::uint64_t back = others[0]->round;
    ASSERT_TRUE(UntilRound(all, back + 2, 3));
    ExpectOneHistory();
  }
};

TEST_F(Killing, TheHostOfThreeMayDieAndComeBack) { AnyOfThreeMayDieAndComeBack(0); }
TEST_F(Killing, TheSecondOfThreeMayDieAndComeBack) { AnyOfThreeMayDieAndComeBack(1); }
TEST_F(Killing, TheThirdOfThreeMayDieAndComeBack) { AnyOfThreeMayDieAndComeBack(2); }

TEST_F(Killing, ALeaderInItsReduceMayDie) {
  const std::vector<Peer*> all = Three();
  ASSERT_FALSE(HasFailure());
  Peer* leader = nullptr;
  ASSERT_TRUE(Until("a leader in its reduce", [&] {
    for (Peer* peer : all) {
      if (peer->leading && peer->phase == "reduce") leader = peer;
    }
    return leader != nullptr;
  }));
  Kill(*leader);
  std::vector<Peer*> others;
  for (Peer* peer : all) {
    if (peer != leader) others.push_back(peer);
  }
  ASSERT_TRUE(UntilRound(others, leader->phase_round + 2, 2));
  ExpectOneHistory();
}

TEST_F(Killing, OfTwoTheJuniorMayDieAndComeBack) {
  Peer& host = Host("host");
  Peer& junior = Join("junior", host.invite);
  ASSERT_TRUE(UntilRound({&host, &junior}, 2, 2));
  Kill(junior);
  ASSERT_TRUE(UntilRound({&host}, host.round + 3, 1));
  Resume(junior);
  ASSERT_TRUE(UntilRound({&host, &junior}, host.round + 1, 2));
  ExpectOneHistory();
}

TEST_F(Killing, AllAtOnceAndTheRunGoesOnFromTheLastRecord) {
  const std::vector<Peer*> all = Three();
  ASSERT_FALSE(HasFailure());
  for (Peer* peer : all) peer->child->Signal(SIGKILL);
  for (Peer* peer : all) Kill(*peer);
  std::uint64_t last = 0;
  for (Peer* peer : all) last = std::max<std::uint64_t>(last, Records(*peer).records.size());
  ASSERT_GE(last, 2U);
  for (Peer* peer : all) Resume(*peer);
  ASSERT_TRUE(UntilRound(all, last + 3));
  ExpectOneHistory();  // the old rounds are in it, unchanged
}

// LOOM_E2E_FREEZE_S=30 for the length that the acceptance names.
TEST_F(Killing, AFrozenMemberIsPassedOverAndComesBackWhenItThaws) {
  const std::vector<Peer*> all = Three();
  ASSERT_FALSE(HasFailure());
  const char* wanted = std::getenv("LOOM_E2E_FREEZE_S");
  const Duration freeze = wanted != nullptr ? FromSeconds(std::atof(wanted)) : 6s;
  const Time begin = SystemClock().Now();
  all[1]->child->Signal(SIGSTOP);
  const std::uint64_t then = all[0]->round;
  ASSERT_TRUE(Until("the others' progress", [&] {
    return SystemClock().Now() - begin >= freeze && all[0]->round >= then + 2 &&
           all[2]->round >= then + 2;
  }));
  all[1]->child->Signal(SIGCONT);
  const std::uint64_t thaw = all[0]->round;
  ASSERT_TRUE(UntilRound(all, thaw + 2, 3));
  ExpectOneHistory();
}

}  // namespace
}  // namespace loom::e2e
