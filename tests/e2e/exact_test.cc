// Exact mode with real processes: members are killed, restarted, join and leave, all of them end at
// once, and every step still leads to the very root of the one-process run of the same spec.
#include <signal.h>

#include <cstdlib>
#include <fstream>
#include <random>

#include "base/file.h"
#include "tests/e2e/swarm_process.h"

namespace loom::e2e {
namespace {

/// LOOM_E2E_KILLS=40 for a longer trial.
std::size_t NumKills() {
  const char* wanted = std::getenv("LOOM_E2E_KILLS");
  return wanted != nullptr ? static_cast<std::size_t>(std::atoi(wanted)) : 6;
}

class Exact : public SwarmTest {
 protected:
  void WriteSpec(unsigned threads, std::size_t steps) {
    steps_ = steps;
    std::ofstream(Path("run.toml")) << fmt::format(R"([model]
preset = "loom-0.2m"
layers = 2
width = 48
heads = 2
kv_heads = 1
head_dim = 24
ffn = 96
context = 48
[data]
paths = ["story.txt"]
tokenizer = "chars"
[optim]
lr = 3e-3
batch = 8
accumulation = 2
[sync]
preset = "allreduce"
workers = 6
rounds = {}
tile_elements = 4096
[determinism]
threads = {}
[local]
checkpoint_every = 16
)",
                                                   steps_, threads);
  }

  /// The root after each step.
  std::vector<Hash> RootsOf(const std::string& dir) {
    std::vector<Hash> roots;
    const auto folder = app::ReadFolderRecords(dir);
    EXPECT_TRUE(folder.ok()) << dir;
    if (!folder) return roots;
    EXPECT_TRUE(folder->run.spec.sync.exact);
    for (const collab::Record& record : folder->records) {
      if (record.body.contributions.empty()) continue;
      EXPECT_EQ(record.body.steps, roots.size() + 1) << dir;
      roots.push_back(record.body.root);
    }
    return roots;
  }

  void KillAndRestart(Peer& victim, const std::vector<Peer*>& all) {
    Kill(victim);
    std::vector<Peer*> others;
    for (Peer* peer : all) {
      if (peer != &victim) others.push_back(peer);
    }
    ASSERT_TRUE(UntilRound(others, others[0]->round + 2, all.size() - 1));
    Resume(victim);
    ASSERT_TRUE(UntilRound(all, others[0]->round + 1, all.size()));
  }

  void JoinAndLeave(std::size_t number, std::vector<Peer*> all) {
    Peer& guest = Join(fmt::format("guest-{}", number), all[0]->invite);
    all.push_back(&guest);
    ASSERT_TRUE(UntilRound(all, all[0]->round + 1, all.size()));
    ASSERT_TRUE(UntilRound(all, all[0]->round + 3, all.size()));
    EXPECT_EQ(Run({"leave", "--dir", guest.dir}).code, 0);
    EXPECT_EQ(AwaitEnd(guest, 90s), 0);
  }

  void AllAtOnce(const std::vector<Peer*>& all) {
    for (Peer* peer : all) peer->child->Signal(SIGKILL);
    for (Peer* peer : all) Kill(*peer);
    for (Peer* peer : all) Resume(*peer);
    ASSERT_TRUE(Until("a round of the restarted", [&] {
      return std::all_of(all.begin(), all.end(), [](const Peer* p) { return p->round > 0; });
    }));
  }

  void SwarmEqualsOneProcess(unsigned threads) {
    // Enough for the kills: a restarted process is back after some tens of steps.
    WriteSpec(threads, 60 + 60 * NumKills());
    ASSERT_EQ(Run({"train", Path("run.toml"), "--dir", Path("alone")}, 300s).code, 0);
    const std::vector<Hash> alone = RootsOf(Path("alone"));
    ASSERT_EQ(alone.size(), steps_);

    Peer& host = Host("host");
    std::vector<Peer*> all{&host};
    for (const char* name : {"second", "third", "fourth"}) all.push_back(&Join(name, host.invite));
    ASSERT_TRUE(UntilRound(all, 2, 4));
    std::mt19937 random(threads);
    for (std::size_t kill = 0; kill < NumKills() && !HasFailure(); ++kill) {
      KillAndRestart(*all[random() % all.size()], all);
      if (HasFailure()) return;
      if (kill < 3) JoinAndLeave(kill, all);
      if (HasFailure()) return;
      if (kill == NumKills() / 2) AllAtOnce(all);
    }
    if (HasFailure()) return;
    for (Peer* peer : all) EXPECT_EQ(AwaitEnd(*peer, 300s), 0) << peer->name;
    for (Peer* peer : all) {
      const std::vector<Hash> roots = RootsOf(peer->dir);
      ASSERT_EQ(roots.size(), alone.size()) << peer->name;
      for (std::size_t i = 0; i < roots.size(); ++i)
        ASSERT_EQ(roots[i], alone[i]) << peer->name << " after step " << i + 1;
    }
    ExpectOneHistory();
  }

  std::size_t steps_ = 0;
};

TEST_F(Exact, StepsWhoseBytesAreLostAreComputedAgain) {
  WriteSpec(1, 40);
  ASSERT_EQ(Run({"train", Path("run.toml"), "--dir", Path("alone")}, 300s).code, 0);
  Peer& peer = Train("damaged", Path("run.toml"));
  ASSERT_TRUE(Until("step 27", [&] { return peer.round >= 27; }));
  Kill(peer);
  for (const auto& entry : std::filesystem::directory_iterator(peer.dir + "/rounds"))
    std::filesystem::remove(entry);
  EXPECT_EQ(Run({"train", Path("run.toml"), "--dir", peer.dir}, 300s).code, 0);
  EXPECT_EQ(RootsOf(peer.dir), RootsOf(Path("alone")));
}

TEST_F(Exact, WithOneThreadASwarmThatLosesMembersIsTheOneProcessRun) { SwarmEqualsOneProcess(1); }
TEST_F(Exact, WithTwoThreadsASwarmThatLosesMembersIsTheOneProcessRun) { SwarmEqualsOneProcess(2); }

}  // namespace
}  // namespace loom::e2e
