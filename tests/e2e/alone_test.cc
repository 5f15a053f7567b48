// loom train, a swarm of one: however it is ended, and whatever byte of its folder the disk loses,
// the folder goes on to the very weights that an undisturbed run ends with.
#include <signal.h>

#include <algorithm>
#include <fstream>

#include "base/file.h"
#include "tests/e2e/swarm_process.h"

namespace loom::e2e {
namespace {

namespace fs = std::filesystem;
constexpr std::uint64_t kRounds = 11;

class Alone : public SwarmTest {
 protected:
  void SetUp() override {
    SwarmTest::SetUp();
    auto toml = ReadFile(Path("run.toml"), 1U << 16);
    ASSERT_TRUE(toml.ok());
    toml->replace(toml->find("rounds = 0"), 10, fmt::format("rounds = {}", kRounds));
    std::ofstream(Path("short.toml")) << *toml;
  }

  Hash RootOf(const std::string& dir) {
    const auto records = app::ReadFolderRecords(dir);
    EXPECT_TRUE(records.ok()) << dir;
    if (!records || records->records.empty()) return {};
    EXPECT_EQ(records->records.size(), kRounds) << dir;
    return records->records.back().body.root;
  }
  /// A run that went past its second checkpoint, with rounds beyond it, and was ended.
  Peer& Begun(const std::string& name, int signal) {
    Peer& peer = Train(name, Path("short.toml"));
    Until("round 9", [&] { return peer.round >= 9; });
    if (signal == SIGKILL) {
      Kill(peer);
    } else {
      EXPECT_EQ(Interrupt(peer), 0);
    }
    return peer;
  }
  Ended Finish(const std::string& dir) {
    return Run({"train", Path("short.toml"), "--dir", dir}, 120s);
  }
  void ExpectUndisturbed(const std::string& dir) {
    const Ended ended = Finish(dir);
    EXPECT_EQ(ended.code, 0) << ended.log;
    EXPECT_EQ(RootOf(dir), RootOf(Whole())) << ended.log;
  }
  std::string Whole() {
    if (!fs::exists(Path("whole"))) {
      const Ended ended = Finish(Path("whole"));
      EXPECT_EQ(ended.code, 0) << ended.log;
    }
    return Path("whole");
  }
  void Flip(const std::string& path) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    ASSERT_TRUE(file.good()) << path;
    const auto at = static_cast<std::streamoff>(fs::file_size(path) / 2);
    file.seekg(at);
    const int byte = file.get();
    file.seekp(at);
    file.put(static_cast<char>(byte ^ 1));
  }
  static std::string Newest(const std::string& folder) {
    std::string newest;
    std::uint64_t round = 0;
    for (const auto& entry : fs::directory_iterator(folder)) {
      const std::uint64_t n = std::stoull(entry.path().filename().string());
      if (n >= round) {
        round = n;
        newest = entry.path().string();
      }
    }
    return newest;
  }
};

TEST_F(Alone, InterruptedOrKilledItEndsWithTheSameWeights) {
  Peer& interrupted = Begun("interrupted", SIGINT);
  Peer& killed = Begun("killed", SIGKILL);
  ASSERT_FALSE(HasFailure());
  ExpectUndisturbed(interrupted.dir);
  ExpectUndisturbed(killed.dir);
}

TEST_F(Alone, ItEndsWithTheLossOfAllValidationTokens) {
  const Ended ended = Run({"train", Path("short.toml"), "--dir", Path("told"), "--json"}, 120s);
  ASSERT_EQ(ended.code, 0) << ended.log;
  ASSERT_FALSE(ended.said.empty());
  const Ended eval = Run({"eval", Path("told"), "--split", "val", "--json"});
  ASSERT_EQ(eval.code, 0) << eval.log;
  ASSERT_FALSE(eval.said.empty());
  const auto number = [](const json::Value& of, const char* key) {
    double value = -1;
    const json::Value* found = of.Find(key);
    EXPECT_TRUE(found != nullptr && found->AsNumber(value)) << key;
    return value;
  };
  const json::Value& done = ended.said.back();
  const double expected = number(eval.said.back(), "loss");
  EXPECT_NEAR(number(done, "val_loss"), expected, 1e-5 * expected);
  EXPECT_EQ(number(done, "val_tokens"), number(eval.said.back(), "tokens"));
}

TEST_F(Alone, ALostRoundAndALostCheckpointAreWorkedOutAgain) {
  Peer& peer = Begun("damaged", SIGKILL);
  ASSERT_FALSE(HasFailure());
  Flip(Newest(peer.dir + "/checkpoints") + "/state.bin");
  Flip(Newest(peer.dir + "/rounds"));
  const Ended ended = Finish(peer.dir);
  EXPECT_EQ(ended.code, 0) << ended.log;
  EXPECT_NE(ended.log.find("worked out again"), std::string::npos) << ended.log;
  EXPECT_NE(ended.log.find("checkpoints/8"), std::string::npos) << ended.log;
  EXPECT_NE(ended.log.find("back to that of round 4 instead"), std::string::npos) << ended.log;
  EXPECT_NE(ended.text.find("restoring the state: round 5 of "), std::string::npos) << ended.text;
  EXPECT_NE(ended.text.find("Going on after round "), std::string::npos) << ended.text;
  EXPECT_NE(ended.text.find("next: loom generate " + peer.dir), std::string::npos) << ended.text;
  EXPECT_EQ(RootOf(peer.dir), RootOf(Whole()));
}

TEST_F(Alone, WithoutAnyCheckpointEverythingIsWorkedOutAgain) {
  Peer& peer = Begun("damaged", SIGKILL);
  ASSERT_FALSE(HasFailure());
  for (const auto& entry : fs::directory_iterator(peer.dir + "/checkpoints")) {
    Flip(entry.path().string() + "/state.bin");
  }
  ExpectUndisturbed(peer.dir);
}

// Rounds of a second or so each, all of them to be done again: nobody waits for that after Ctrl-C.
TEST_F(Alone, ALongRestoreSaysSoAndStopsAtOnce) {
  auto toml = ReadFile(Path("run.toml"), 1U << 16);
  ASSERT_TRUE(toml.ok());
  toml->replace(toml->find("inner_steps = 30"), 16, "inner_steps = 3000");
  std::ofstream(Path("long.toml")) << *toml;
  Peer& peer = Train("long", Path("long.toml"));
  ASSERT_TRUE(Until("round 3", [&] { return peer.round >= 3; }));
  Kill(peer);
  const auto said = [&](const std::string& words) {
    const auto log = ReadFile(peer.dir + ".log", 1U << 20);
    return log.ok() && log->find(words) != std::string::npos;
  };
  TrainAgain(peer, Path("long.toml"));
  ASSERT_TRUE(
      Until("the restore to begin", [&] { return said("restoring the state: round 1 of"); }));
  EXPECT_EQ(Interrupt(peer), 0);
  EXPECT_TRUE(said("Stopped: interrupted; go on with: loom train " + Path("long.toml")));
  EXPECT_FALSE(said("Going on after round")) << "it was stopped before";
  TrainAgain(peer, Path("long.toml"));
  EXPECT_TRUE(Until("the next round", [&] { return peer.round >= 4; }));
}

// As if the end had come between the vote and the record: the vote of one who is alone decides.
TEST_F(Alone, ATornLastRecordCostsNothing) {
  Peer& killed = Begun("killed", SIGKILL);
  Peer& interrupted = Begun("interrupted", SIGINT);
  ASSERT_FALSE(HasFailure());
  for (const Peer* peer : {&killed, &interrupted}) {
    const std::string log = peer->dir + "/records.log";
    fs::resize_file(log, fs::file_size(log) - 1);
    ExpectUndisturbed(peer->dir);
  }
}

TEST_F(Alone, DamagedDataIsMadeAgainFromTheCorpus) {
  Peer& peer = Begun("damaged", SIGKILL);
  ASSERT_FALSE(HasFailure());
  Flip(peer.dir + "/data/train-00000.tokens");
  fs::remove(peer.dir + "/data/tokenizer.json");
  ExpectUndisturbed(peer.dir);
}

TEST_F(Alone, DataThatTheCorpusNoLongerGivesIsNamed) {
  Peer& peer = Begun("damaged", SIGKILL);
  ASSERT_FALSE(HasFailure());
  Flip(peer.dir + "/data/train-00000.tokens");
  std::ofstream(Path("story.txt"), std::ios::app) << "and so on.\n";
  const Ended ended = Finish(peer.dir);
  EXPECT_EQ(ended.code, 5) << ended.log;
  EXPECT_NE(ended.log.find("train-00000.tokens"), std::string::npos) << ended.log;
}

TEST_F(Alone, AStartThatComesToNothingLeavesNoFolder) {
  const Ended busy =
      Run({"host", Path("short.toml"), "--dir", Path("none"), "--listen", "nowhere"});
  EXPECT_EQ(busy.code, 3) << busy.log;
  EXPECT_FALSE(fs::exists(Path("none")));
  Peer& host = Host("host");
  const Ended taken = Run({"host", Path("short.toml"), "--dir", Path("none"), "--listen",
                           fmt::format("127.0.0.1:{}", PortOf(host))});
  EXPECT_NE(taken.code, 0) << taken.log;
  EXPECT_FALSE(fs::exists(Path("none")));
}

}  // namespace
}  // namespace loom::e2e
