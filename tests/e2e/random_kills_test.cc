// kill -9 of loom train at random points, resumed each time: while it starts, restores, works,
// votes, writes rounds, records and checkpoints. However often that happens, the run ends with the
// bits of the uninterrupted one: every record's root, the last weights and the inner optimizer.
//
// The points are drawn from a fixed seed: of a third of the kills after a part of the time that a
// start takes, of a third some milliseconds after an event of the run, of a third as soon as a
// file or checkpoint is seen that is being written aside.
#include <fstream>
#include <random>
#include <thread>

#include "base/file.h"
#include "tests/e2e/swarm_process.h"
#include "tests/e2e/tiny_run.h"

namespace loom::e2e {
namespace {

namespace fs = std::filesystem;

/// LOOM_KILLS=50 for the number that the acceptance names.
std::uint64_t NumKills() {
  const char* wanted = std::getenv("LOOM_KILLS");
  return wanted != nullptr ? static_cast<std::uint64_t>(std::atoi(wanted)) : 15;
}

class RandomKills : public SwarmTest {
 protected:
  /// So many rounds are more than most lives see.
  std::string WriteSpec(const std::string& sync, std::uint64_t rounds_a_kill) {
    rounds_ = rounds_a_kill * NumKills() + 6;
    std::ofstream(Path("kills.toml"))
        << TinyRun("batch = 8\ntotal_tokens = 1000000\n",
                   fmt::format("{}\nrounds = {}\n", sync, rounds_), "checkpoint_every = 2\n");
    return Path("kills.toml");
  }

  std::map<std::string, std::string> LastCheckpoint(const std::string& dir) {
    std::map<std::string, std::string> files;
    const std::string folder = fmt::format("{}/checkpoints/{}", dir, rounds_);
    for (const char* name : {"state.bin", "extra/worker-0.bin"}) {
      if (!fs::exists(folder + "/" + name)) continue;
      const auto bytes = ReadFile(folder + "/" + name, 1U << 26);
      EXPECT_TRUE(bytes.ok());
      if (bytes) files[name] = *bytes;
    }
    return files;
  }

  static bool WritesAside(const std::string& dir) {
    for (const char* folder : {"/checkpoints", "/rounds"}) {
      std::error_code gone;  // what is listed may be renamed meanwhile
      for (fs::directory_iterator it(dir + folder, gone), end; !gone && it != end;
           it.increment(gone)) {
        if (it->path().extension() == ".tmp") return true;
      }
    }
    return false;
  }

  /// Waits for the drawn point of this life and kills it there. False: the run had finished.
  bool KillSomewhere(Peer& peer, Duration start_time) {
    enum class Where : std::uint8_t { kStart, kEvent, kWrite };
    const auto where = static_cast<Where>(random_() % 3);
    if (where == Where::kStart) {
      const double part = static_cast<double>(random_() % 1000) / 1000;
      std::this_thread::sleep_for(FromSeconds(part * Seconds(start_time)));
    } else {
      const std::uint64_t events = 1 + random_() % 6;
      Until("its next events", [&] { return peer.done || peer.events >= events; });
      if (where == Where::kEvent) {
        std::this_thread::sleep_for(std::chrono::milliseconds(random_() % 30));
      } else {
        const std::uint64_t limit = peer.round + 2;  // it may be that none is caught in the act
        Until("a file that is being written", [&] {
          for (int look = 0; look < 200; ++look) {
            if (WritesAside(peer.dir)) return true;
          }
          return peer.done || peer.round >= limit;
        });
      }
    }
    if (peer.done) return false;
    Kill(peer);
    return !HasFailure();
  }

  void ExpectTheBitsOfTheUninterruptedRun(const std::string& sync, std::uint64_t rounds_a_kill) {
    const std::string spec = WriteSpec(sync, rounds_a_kill);
    ASSERT_EQ(Run({"train", spec, "--dir", Path("whole")}, 300s).code, 0);

    // On a fast machine a run may be over before it was killed often enough: then another follows.
    std::uint64_t kills = 0, runs = 0;
    while (kills < NumKills()) {
      ASSERT_LT(++runs, 30U) << "runs end before anybody can kill them";
      const Time begin = SystemClock().Now();
      Peer& peer = Train(fmt::format("killed-{}", runs), spec);
      ASSERT_TRUE(Until("its first round", [&] { return peer.round > 0; }));
      const Duration start_time = SystemClock().Now() - begin;
      while (kills < NumKills() && KillSomewhere(peer, start_time)) {
        ++kills;
        TrainAgain(peer, spec);
      }
      ASSERT_FALSE(HasFailure());
      EXPECT_EQ(AwaitEnd(peer, 300s), 0);
      ExpectEqual(peer.dir, Path("whole"));
    }
    fmt::print("{} kills in {} runs of {} rounds: the same bits\n", kills, runs, rounds_);
  }

  void ExpectEqual(const std::string& dir, const std::string& other) {
    const auto killed = app::ReadFolderRecords(dir);
    const auto whole = app::ReadFolderRecords(other);
    ASSERT_TRUE(whole.ok() && killed.ok());
    ASSERT_EQ(whole->records.size(), rounds_);
    ASSERT_EQ(killed->records.size(), rounds_);
    for (std::size_t i = 0; i < rounds_; ++i) {
      ASSERT_EQ(killed->records[i].body.root, whole->records[i].body.root)
          << "after round " << i + 1;
    }
    const auto files = LastCheckpoint(other);
    EXPECT_FALSE(files.empty());
    EXPECT_TRUE(LastCheckpoint(dir) == files) << "another last checkpoint";
  }

 private:
  std::uint64_t rounds_ = 0;
  std::mt19937 random_{2026};
};

TEST_F(RandomKills, WithLocalStepsTheBitsAreThoseOfTheUninterruptedRun) {
  ExpectTheBitsOfTheUninterruptedRun("preset = \"diloco\"\ninner_steps = 8", 2);
}

TEST_F(RandomKills, InExactModeTheBitsAreThoseOfTheUninterruptedRun) {
  ExpectTheBitsOfTheUninterruptedRun("preset = \"allreduce\"\nworkers = 4", 6);
}

}  // namespace
}  // namespace loom::e2e
