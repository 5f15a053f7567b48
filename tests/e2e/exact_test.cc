// Exact mode with real processes: members are killed, restarted, join and leave, all of them end at
// once, and every step still leads to the very root of the one-process run of the same spec.
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <random>
#include <set>

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
  /// steps 0: until somebody ends it. What a step computes does not depend on their number.
  void WriteSpec(const std::string& name, unsigned threads, std::uint64_t steps) {
    std::ofstream(Path(name)) << fmt::format(R"([model]
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
total_tokens = 1000000
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
                                             steps, threads);
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
    // Where another one has just been taken off the list, those that are left may have to wait.
    const std::uint64_t then = others[0]->round;
    ASSERT_TRUE(Until("steps without it, or fewer members", [&] {
      const auto fewer = [&](const Peer* p) { return p->members + 1 < all.size(); };
      return std::ranges::any_of(others, fewer) || std::ranges::all_of(others, [&](const Peer* p) {
               return p->round >= then + 2 && p->members + 1 == all.size();
             });
    }));
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

  /// Ends the run some steps from now; the last one.
  std::uint64_t EndSoon(const Peer& peer) {
    for (std::uint64_t ahead = 40; ahead < 100'000; ahead *= 4) {  // more pass on a busy machine
      const std::uint64_t last = peer.round + ahead;
      if (Run({"amend", fmt::format("sync.rounds={}", last), "--dir", peer.dir}).code == 0)
        return last;
    }
    ADD_FAILURE() << "the run does not end";
    return 0;
  }

  void SwarmEqualsOneProcess(unsigned threads) {
    WriteSpec("run.toml", threads, 0);
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
    const std::uint64_t steps = EndSoon(host);
    for (Peer* peer : all) EXPECT_EQ(AwaitEnd(*peer, 300s), 0) << peer->name;

    WriteSpec("alone.toml", threads, steps);
    ASSERT_EQ(Run({"train", Path("alone.toml"), "--dir", Path("alone")}, 300s).code, 0);
    const std::vector<Hash> alone = RootsOf(Path("alone"));
    ASSERT_EQ(alone.size(), steps);
    for (Peer* peer : all) {
      const std::vector<Hash> roots = RootsOf(peer->dir);
      ASSERT_EQ(roots.size(), alone.size()) << peer->name;
      for (std::size_t i = 0; i < roots.size(); ++i)
        ASSERT_EQ(roots[i], alone[i]) << peer->name << " after step " << i + 1;
    }
    ExpectOneHistory();
  }
};

TEST_F(Exact, StepsWhoseBytesAreLostAreComputedAgain) {
  WriteSpec("run.toml", 1, 40);
  ASSERT_EQ(Run({"train", Path("run.toml"), "--dir", Path("alone")}, 300s).code, 0);
  Peer& peer = Train("damaged", Path("run.toml"));
  ASSERT_TRUE(Until("step 27", [&] { return peer.round >= 27; }));
  Kill(peer);
  for (const auto& entry : std::filesystem::directory_iterator(peer.dir + "/rounds"))
    std::filesystem::remove(entry);
  EXPECT_EQ(Run({"train", Path("run.toml"), "--dir", peer.dir}, 300s).code, 0);
  EXPECT_EQ(RootsOf(peer.dir), RootsOf(Path("alone")));
}

// R23: what goes to one owner is several times what a link's queue takes.
TEST_F(Exact, APartLargerThanALinksQueueArrives) {
  std::ofstream(Path("run.toml")) << R"([model]
preset = "loom-0.2m"
layers = 4
width = 256
heads = 4
kv_heads = 4
head_dim = 64
ffn = 1024
context = 16
[data]
paths = ["story.txt"]
tokenizer = "chars"
[optim]
batch = 2
schedule = "constant"
accumulation = 2
[sync]
preset = "allreduce"
workers = 2
rounds = 0
[local]
threads = 1
)";
  Peer& host = Host("host");
  Peer& other = Join("other", host.invite);
  ASSERT_TRUE(UntilRound({&host, &other}, 1, 2));
  const std::uint64_t since = host.round + 1;
  ASSERT_TRUE(UntilRound({&host, &other}, since + 6, 2));
  for (Peer* peer : {&host, &other}) Kill(*peer);
  ExpectOneHistory();
  const auto folder = app::ReadFolderRecords(host.dir);
  ASSERT_TRUE(folder.ok());
  std::size_t by_both = 0;
  for (const collab::Record& record : folder->records) {
    std::set<PeerId> hosts;
    for (const collab::Contribution& c : record.body.contributions) hosts.insert(c.peer);
    by_both += hosts.size() == 2 ? 1 : 0;
  }
  EXPECT_GE(by_both, 5U);
}

TEST_F(Exact, WithOneThreadASwarmThatLosesMembersIsTheOneProcessRun) { SwarmEqualsOneProcess(1); }
TEST_F(Exact, WithTwoThreadsASwarmThatLosesMembersIsTheOneProcessRun) { SwarmEqualsOneProcess(2); }

}  // namespace
}  // namespace loom::e2e
