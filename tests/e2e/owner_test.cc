// The owner's verbs on real processes (R14): settings changed and an older state returned to in a
// living run, and a reset of the smaller side of a split after which one history survives. The
// sides are kept apart by ending the smaller one while the larger works, and stopping the larger
// while the smaller does.
#include <signal.h>

#include <algorithm>
#include <fstream>

#include "base/file.h"
#include "store/append_log.h"
#include "store/file_system.h"
#include "tests/e2e/swarm_process.h"
#include "tests/e2e/tiny_run.h"

namespace loom::e2e {
namespace {

class Owning : public SwarmTest {
 protected:
  std::vector<Peer*> Five() {
    Peer& host = Host("host");
    std::vector<Peer*> all{&host};
    for (const char* name : {"second", "third", "fourth", "fifth"})
      all.push_back(&Join(name, host.invite));
    UntilRound(all, 2, 5);
    return all;
  }
  /// The peer told people of the order, and of nothing that only follows from it.
  static void ExpectTold(const Peer& peer, const std::vector<std::string>& words) {
    const auto log = ReadFile(peer.dir + ".log", 1U << 22);
    ASSERT_TRUE(log.ok()) << peer.name;
    for (const std::string& word : words)
      EXPECT_NE(log->find(word), std::string::npos) << peer.name << ": " << word << "\n" << *log;
    for (const char* noise : {"has started anew", "its host restarted", "nothing to contribute"})
      EXPECT_EQ(log->find(noise), std::string::npos) << peer.name << ": " << noise << "\n" << *log;
  }
  static void Signal(const std::vector<Peer*>& peers, int signal) {
    for (Peer* peer : peers) peer->child->Signal(signal);
  }
};

TEST_F(Owning, SettingsAreChangedInALivingRun) {
  const std::vector<Peer*> all = Three();
  ASSERT_FALSE(HasFailure());
  const Ended wrong = Run({"amend", "model.layers=3", "--dir", all[1]->dir});
  EXPECT_NE(wrong.code, 0);
  EXPECT_NE(wrong.log.find("model.layers cannot be changed"), std::string::npos) << wrong.log;
  const std::uint64_t then = all[0]->round;
  const Ended ended =
      Run({"amend", "optim.lr=1e-4,sync.outer_lr=0.5", "--dir", all[1]->dir, "--json"});
  ASSERT_EQ(ended.code, 0) << ended.log;
  ASSERT_TRUE(UntilRound(all, then + 6, 3));
  ExpectOneHistory();
  const app::FolderRecords records = Records(*all[2]);
  EXPECT_EQ(records.records.back().body.orders, 1U);
  for (const Peer* peer : all) {
    ExpectTold(*peer, {"the owner changed optim.lr from ", " to 0.0001, sync.outer_lr from "});
  }
  const Ended log = Run({"log", "--dir", all[1]->dir, "--json"});
  const auto taken = std::ranges::find_if(
      log.said, [](const json::Value& record) { return record.Find("order") != nullptr; });
  ASSERT_NE(taken, log.said.end()) << log.log;
  const std::string order = json::Dump(*taken->Find("order"));
  EXPECT_NE(order.find(R"("number": 1, "revert": null)"), std::string::npos) << order;
  EXPECT_NE(order.find(R"("key": "sync.outer_lr")"), std::string::npos) << order;
  Kill(*all[2]);  // and what a restart reads from its folder are the new settings
  Resume(*all[2]);
  ASSERT_TRUE(UntilRound(all, all[0]->round + 3, 3));
  ExpectOneHistory();
}

TEST_F(Owning, TheRunReturnsToAnOlderRound) {
  // Rounds that take as long as it takes to start a verb, however busy the machine is.
  std::ofstream(Path("run.toml")) << TinyRun("batch = 2\ntotal_tokens = 1000000\n",
                                             "rounds = 0\ninner_steps = 120\n",
                                             "checkpoint_every = 4\n");
  const std::vector<Peer*> all = Three();
  ASSERT_TRUE(UntilRound(all, 16, 3));
  const auto back_to = [&](std::uint64_t round) {
    return Run({"continue", "--from", std::to_string(round), "--dir", all[0]->dir, "--json"});
  };
  const Ended healthy = Run({"continue", "--dir", all[0]->dir, "--yes"});
  EXPECT_EQ(healthy.code, 11) << "there is nothing to reset";
  EXPECT_NE(healthy.log.find("every member is here"), std::string::npos) << healthy.log;
  const Ended too_far = back_to(2);
  EXPECT_EQ(too_far.code, 3) << "checkpoints of that time are gone";
  EXPECT_NE(too_far.log.find("keep_checkpoints"), std::string::npos) << too_far.log;
  std::uint64_t target = 0;
  Ended ended;
  for (int attempt = 0; attempt < 10 && ended.code != 0; ++attempt) {
    ASSERT_TRUE(UntilRound(all, all[0]->round + 1, 3));
    target = all[0]->round;
    ended = back_to(target);
  }
  ASSERT_EQ(ended.code, 0) << ended.log;
  ASSERT_FALSE(ended.said.empty());
  ASSERT_TRUE(UntilRound(all, *ended.said[0].Find("round")->AsUnsigned() + 8, 3));
  ExpectOneHistory();
  const app::FolderRecords records = Records(*all[1]);
  const auto order = std::ranges::find_if(
      records.records, [](const collab::Record& r) { return r.body.order.has_value(); });
  ASSERT_NE(order, records.records.end());
  EXPECT_EQ(order->body.root, records.records[target - 1].body.root);
  const std::string back =
      fmt::format("Round {}: the owner took the run back to the state after round {}.",
                  order->body.round, target);
  for (const Peer* peer : all) ExpectTold(*peer, {back});
  const Ended log = Run({"log", "--dir", all[2]->dir});
  EXPECT_NE(log.text.find(fmt::format("order 1: the owner took the run back to the state after "
                                      "round {}",
                                      target)),
            std::string::npos);
  EXPECT_EQ(Run({"export", all[1]->dir, "--out", Path("model")}).code, 0);
}

TEST_F(Owning, AResetOfTheSmallerSideLeavesExactlyOneHistory) {
  const std::vector<Peer*> all = Five();
  ASSERT_FALSE(HasFailure());
  const std::vector<Peer*> small{all[0], all[1]};
  const std::vector<Peer*> large{all[2], all[3], all[4]};
  LetHistoriesDiffer();
  Signal(small, SIGSTOP);  // else the second would hear that the first has gone
  for (Peer* peer : small) Kill(*peer);
  const std::uint64_t split = all[2]->round;
  ASSERT_TRUE(UntilRound(large, split + 6, 3));
  Signal(large, SIGSTOP);
  for (Peer* peer : small) Resume(*peer);
  ASSERT_TRUE(Until("both to wait for a quorum", [&] {
    return std::ranges::all_of(small, [&](const Peer* peer) {
      const auto status = ReadFile(peer->dir + "/status.json", 1U << 20);
      return status.ok() && status->find("no quorum") != std::string::npos;
    });
  }));
  const Ended no = Run({"continue", "--dir", all[0]->dir});
  EXPECT_NE(no.code, 0) << "nobody has confirmed";
  const Ended reset = Run({"continue", "--dir", all[0]->dir, "--yes", "--json"});
  ASSERT_EQ(reset.code, 0) << reset.log;
  const std::uint64_t then = all[0]->round;
  ASSERT_TRUE(UntilRound(small, then + 3, 2));
  const std::uint64_t before = all[2]->round;
  for (Peer* peer : large) peer->Forget();
  Signal(large, SIGCONT);
  ASSERT_TRUE(Until("five members of one history", [&] {
    return std::ranges::all_of(all, [](const Peer* p) { return p->members == 5; }) &&
           Records(*all[2]).records.back().body.era == 1;
  }));
  ASSERT_TRUE(UntilRound(all, all[0]->round + 2, 5));
  ExpectOneHistory();
  for (Peer* peer : large) {
    const auto log = store::ReadLog(store::PosixFileSystem(), peer->dir + "/orphaned.log", {});
    ASSERT_TRUE(log.ok()) << peer->name;
    EXPECT_GE(log->entries.size(), 5U) << peer->name << " was at round " << before;
  }
}

TEST_F(Owning, AMemberInvitesWhileTheOwnerIsAway) {
  Peer& host = Host("host");
  const Setting no_key{{}, {"LOOM_OWNER_KEY=" + Path("nobody.pem")}};
  Peer& second = Join("second", host.invite, no_key);
  ASSERT_TRUE(UntilRound({&host, &second}, 2, 2));
  EXPECT_NE(Run({"invite", "--dir", second.dir}, 30s, no_key).code, 0);
  const Ended wrong = Run({"delegate", "zz", "--dir", host.dir});
  EXPECT_NE(wrong.code, 0);
  EXPECT_NE(wrong.log.find("no member's id begins"), std::string::npos) << wrong.log;
  ASSERT_EQ(Run({"delegate", second.id.substr(0, 12), "--dir", host.dir}).code, 0);
  Ended invite;
  ASSERT_TRUE(Until("the delegation", [&] {
    invite = Run({"invite", "--dir", second.dir, "--json"}, 30s, no_key);
    return invite.code == 0 && !invite.said.empty();
  }));
  Kill(second);  // the word is on disk
  Resume(second, no_key);
  ASSERT_TRUE(UntilRound({&host, &second}, host.round + 2, 2));
  Peer& third = Join("third", *invite.said[0].Find("invite")->AsString(), no_key);
  ASSERT_TRUE(UntilRound({&host, &second, &third}, host.round + 1, 3));
  ExpectOneHistory();
}

}  // namespace
}  // namespace loom::e2e
