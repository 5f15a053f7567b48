// Faults of the disk change nothing: whatever it does to a peer at whatever moment, the run ends
// with the bits of an undisturbed one, or stops with an error that names the file, and nothing that
// was committed before is lost (promise 5). Every disk operation of a run is tried in turn.
#include <gtest/gtest.h>

#include <set>

#include "sim/lone_run.h"
#include "sim/scenario.h"

namespace loom::sim {
namespace {

using store::JoinPath;
using store::SimFileSystem;

constexpr Round kRounds = 8;

LoneOptions LocalSteps() {
  LoneOptions options;
  options.config = SmallWorld(7).config;
  options.config.rounds = kRounds;
  return options;
}

LoneOptions Exact() {
  LoneOptions options;
  options.config = ExactWorld(7).config;
  options.config.workers = 2;
  options.config.rounds = kRounds;
  options.codec = codec::CodecKind::kFp32;
  return options;
}

/// A mode of training, and what its undisturbed run ends with.
struct Mode {
  explicit Mode(const LoneOptions& options) : run(options) {
    SimFileSystem disk;
    whole = run.Live(disk);
    operations = disk.operations();
    bytes = disk.used_bytes();
  }
  LoneRun run;
  LoneLife whole;
  std::uint64_t operations = 0;
  std::uint64_t bytes = 0;
};

const Mode& ModeOf(bool exact) {
  static const Mode kLocal(LocalSteps());
  static const Mode kExact(Exact());
  return exact ? kExact : kLocal;
}

class Faults : public ::testing::TestWithParam<bool> {
 protected:
  const Mode& mode() const { return ModeOf(GetParam()); }
  const LoneRun& run() const { return mode().run; }

  void ExpectSameBits(const LoneLife& life, const std::string& what) const {
    EXPECT_TRUE(life.finished) << what << ": " << life.error;
    EXPECT_EQ(life.root, mode().whole.root) << what;
    EXPECT_TRUE(life.inner == mode().whole.inner) << what << ": other inner state";
  }
};

INSTANTIATE_TEST_SUITE_P(Sim, Faults, ::testing::Bool(), [](const auto& param) {
  return std::string(param.param ? "Exact" : "LocalSteps");
});

TEST_P(Faults, ALifeEndsWithTheSameBitsAsTheNext) {
  ASSERT_TRUE(mode().whole.finished) << mode().whole.error;
  for (Round until = 1; until <= kRounds; ++until) {
    SimFileSystem disk;
    (void)run().Live(disk, until);
    disk.Kill();
    ExpectSameBits(run().Live(disk), fmt::format("ended after round {}", until));
  }
}

// Its votes go further than its records, and it comes back to the very decision that it has voted
// in: the record is the one it voted for, the work is done again (R22).
TEST_P(Faults, R22WhoLostRecordsItHadVotedForDoesTheirWorkAgain) {
  SimFileSystem disk;
  (void)run().Live(disk, 7);
  disk.Kill();
  const auto ended = disk.Snapshot();
  const std::string path = JoinPath(LoneRun::kFolder, "records.log");
  const std::uint64_t size = disk.Size(path).value();
  for (std::uint64_t cut = 1; cut < size; cut += 37) {
    disk.Restore(ended);
    ASSERT_TRUE(disk.Open(path, store::OpenMode::kWrite).value()->Truncate(size - cut).ok());
    ExpectSameBits(run().Live(disk), fmt::format("{} of {} bytes cut", cut, size));
    if (HasFailure()) return;
  }
}

enum class Fault { kFull, kFullFromThenOn, kBroken, kBrokenFromThenOn, kKill, kPowerCut };
constexpr Fault kFaults[] = {Fault::kFull, Fault::kFullFromThenOn,   Fault::kBroken,
                             Fault::kKill, Fault::kBrokenFromThenOn, Fault::kPowerCut};
constexpr const char* kFaultNames[] = {
    "full", "full from then on", "broken", "broken from then on", "kill -9", "power cut"};

/// Operation `at` from now on goes wrong in that way.
void Plan(SimFileSystem& disk, Fault fault, std::uint64_t at) {
  const bool full = fault == Fault::kFull || fault == Fault::kFullFromThenOn;
  const bool once = fault == Fault::kFull || fault == Fault::kBroken;
  disk.FailAt(disk.operations() + at, full ? Code::kDiskFull : Code::kIo, !once);
}

/// The time after it: the process is gone, the disk works again.
void Pass(SimFileSystem& disk, Fault fault, std::uint64_t seed) {
  if (fault == Fault::kPowerCut) {
    disk.Crash(seed);
  } else {
    disk.Kill();
  }
}

TEST_P(Faults, AnyDiskOperationMayGoWrong) {
  std::uint64_t ended = 0;
  std::uint64_t lives = 0;
  for (const Fault fault : kFaults) {
    for (std::uint64_t at = 0; at < mode().operations; ++at) {
      const std::string what =
          fmt::format("{} at operation {}", kFaultNames[static_cast<std::size_t>(fault)], at);
      SimFileSystem disk;
      Plan(disk, fault, at);
      const LoneLife first = run().Live(disk);
      ++lives;
      if (first.finished) {
        ExpectSameBits(first, what);
      } else {
        ++ended;
        EXPECT_NE(first.error.find(LoneRun::kFolder), std::string::npos) << what << first.error;
      }
      Pass(disk, fault, at);
      const LoneLife second = run().Live(disk);
      EXPECT_GE(second.restored, first.committed) << what << ": a committed round is lost";
      ExpectSameBits(second, what);
      if (HasFailure()) return;
    }
  }
  fmt::print("{} lives, {} of them ended by an error that names the file\n", lives, ended);
}

// The restart is disturbed as well, and the next one, too.
TEST_P(Faults, SeveralLivesInARowMayEndAnywhere) {
  Random random(11);
  for (int n = 0; n < 300; ++n) {
    SimFileSystem disk;
    Round committed = 0;
    std::string what;
    for (int life = 0; life < 4; ++life) {
      const Fault fault = kFaults[random.Below(std::size(kFaults))];
      const std::uint64_t at = random.Below(mode().operations / 2);
      what += fmt::format(" {} at {};", kFaultNames[static_cast<std::size_t>(fault)], at);
      Plan(disk, fault, at);
      const LoneLife ended = run().Live(disk);
      if (ended.restored > 0) {
        EXPECT_GE(ended.restored, committed) << what;
      }
      committed = std::max(committed, ended.committed);
      Pass(disk, fault, random.Next());
    }
    const LoneLife last = run().Live(disk);
    EXPECT_GE(last.restored, committed) << what << " a committed round is lost";
    ExpectSameBits(last, what);
    if (HasFailure()) return;
  }
}

TEST_P(Faults, ADiskOfAnySizeThatIsTooSmallIsNamedAndCostsNothing) {
  const std::uint64_t step = std::max<std::uint64_t>(1, mode().bytes / 150);
  for (std::uint64_t capacity = 0; capacity < mode().bytes; capacity += step) {
    const std::string what = fmt::format("a disk of {} bytes", capacity);
    SimFileSystem disk(capacity);
    const LoneLife first = run().Live(disk);
    if (!first.finished) {
      EXPECT_TRUE(first.Names(LoneRun::kFolder)) << what << ": " << first.error;
      EXPECT_TRUE(first.Names("more bytes")) << what << ": " << first.error;
    }
    disk.Kill();
    const LoneLife again = run().Live(disk);  // as full as before: it says so again
    if (again.restored > 0) {
      EXPECT_GE(again.restored, first.committed) << what;
    }
    disk.Kill();
    disk.SetCapacity(UINT64_MAX);
    const LoneLife last = run().Live(disk);
    EXPECT_GE(last.restored, std::max(first.committed, again.committed)) << what;
    ExpectSameBits(last, what);
    if (HasFailure()) return;
  }
}

/// All files below a folder.
std::vector<std::string> FilesOf(const SimFileSystem& disk, const std::string& folder) {
  std::vector<std::string> files;
  const std::vector<store::DirEntry> entries = disk.List(folder).value();
  for (const store::DirEntry& entry : entries) {
    const std::string path = JoinPath(folder, entry.name);
    if (!entry.is_dir) {
      files.push_back(path);
      continue;
    }
    for (std::string& file : FilesOf(disk, path)) files.push_back(std::move(file));
  }
  return files;
}

/// A folder with records, votes, two checkpoints and rounds past them, and ways to damage it.
class Damage : public Faults {
 protected:
  void SetUp() override {
    (void)run().Live(disk_, 7);
    disk_.Kill();
    ended_ = disk_.Snapshot();
    files_ = FilesOf(disk_, LoneRun::kFolder);
    ASSERT_GE(files_.size(), 10U);
  }
  /// After what was done to `file`: named, or made good, or both; and the bits are the same.
  void ExpectNamedOrMadeGood(const std::string& file, const std::string& what) {
    const LoneLife life = run().Live(disk_);
    if (life.finished) {
      ExpectSameBits(life, what);
      // What of an older checkpoint and of older rounds is not read is not missed either.
      if (IsRead(file)) {
        EXPECT_TRUE(life.Names(file)) << what << " and it was not said";
      }
    } else {
      EXPECT_NE(life.error.find(file), std::string::npos) << what << ": " << life.error;
      ++refused_;
      // Nothing more is lost by the attempt: with the file as it was the run goes on.
      const Bytes right = ReadWas(file);
      disk_.Kill();
      ASSERT_TRUE(store::WriteFileAtomically(disk_, file, right).ok());
      ExpectSameBits(run().Live(disk_), what + ", brought back");
    }
    disk_.Restore(ended_);
  }
  Bytes ReadWas(const std::string& file) const {
    SimFileSystem was;
    was.Restore(ended_);
    return store::ReadWholeFile(was, file, 1U << 24).value();
  }
  static bool IsRead(const std::string& file) {
    return file.find("/checkpoints/3/") == std::string::npos &&
           file.find("/rounds/") == std::string::npos;
  }

  SimFileSystem disk_;
  std::shared_ptr<const SimFileSystem::Node> ended_;
  std::vector<std::string> files_;
  int refused_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Sim, Damage, ::testing::Bool(), [](const auto& param) {
  return std::string(param.param ? "Exact" : "LocalSteps");
});

TEST_P(Damage, AFlippedBitAnywhereIsNamedOrMadeGood) {
  Random random(5);
  for (const std::string& file : files_) {
    const std::uint64_t size = disk_.Size(file).value();
    std::set<std::uint64_t> offsets{0, 7, 8, 12, 20, 40, size / 2, size - 1, size - 9};
    for (int n = 0; n < 12; ++n) offsets.insert(random.Below(size));
    for (const std::uint64_t offset : offsets) {
      if (offset >= size) continue;
      const auto mask = static_cast<std::byte>(1U << random.Below(8));
      ASSERT_TRUE(disk_.FlipByte(file, offset, mask).ok());
      ExpectNamedOrMadeGood(file, fmt::format("byte {} of {} of {}", offset, size, file));
      if (HasFailure()) return;
    }
  }
}

TEST_P(Damage, ASectorOfZerosAnywhereIsNamedOrMadeGood) {
  constexpr std::uint64_t kSector = 512;
  for (const std::string& file : files_) {
    const std::uint64_t size = disk_.Size(file).value();
    for (std::uint64_t at = 0; at < size; at += kSector) {
      const Bytes zeros(std::min(kSector, size - at));
      ASSERT_TRUE(disk_.Open(file, store::OpenMode::kWrite).value()->WriteAt(at, zeros).ok());
      ExpectNamedOrMadeGood(file, fmt::format("zeros at {} of {} of {}", at, size, file));
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(refused_, 0) << "in the middle of a log nothing can be made good";
}

TEST_P(Damage, AShorterOrMissingFileIsNamedOrMadeGood) {
  for (const std::string& file : files_) {
    const std::uint64_t size = disk_.Size(file).value();
    for (const std::uint64_t left : {std::uint64_t{0}, size / 3, size / 2, size - 1}) {
      ASSERT_TRUE(disk_.Open(file, store::OpenMode::kWrite).value()->Truncate(left).ok());
      ExpectNamedOrMadeGood(file, fmt::format("{} of {} bytes left of {}", left, size, file));
      if (HasFailure()) return;
    }
    ASSERT_TRUE(disk_.Remove(file).ok());
    ExpectNamedOrMadeGood(file, file + " removed");
    if (HasFailure()) return;
  }
}

// A member of three comes back with one damaged file: it says which and stays away, or it goes on
// with what it has, fetches the rest, and has a vote again once the others may trust it (R9). The
// audit compares every record and state.
TEST(SwarmDamage, AMemberWithADamagedFileNamesItOrComesBack) {
  std::size_t back = 0;
  for (std::uint64_t seed = 1; seed <= 90; ++seed) {
    WorldOptions options = seed % 3 == 0 ? ExactWorld(seed) : SmallWorld(seed);
    options.peers = 3;
    options.config.rounds = 40;
    options.keep_trace = true;
    World world(options);
    world.SetHangBound(17s);
    for (std::size_t i = 0; i < 3; ++i) world.Start(i);
    ASSERT_TRUE(world.RunUntil([&] { return world.audit().rounds() >= 10; }, 100s));
    const std::size_t victim = seed % 3;
    world.Kill(victim);
    SimFileSystem& disk = world.DiskOf(victim);
    const std::vector<std::string> files = FilesOf(disk, World::kFolder);
    const std::string& file = files[world.random().Below(files.size())];
    const std::uint64_t size = disk.Size(file).value();
    std::string what = fmt::format("seed {}: {}", seed, file);
    switch (const std::uint64_t at = world.random().Below(size); world.random().Below(3)) {
      case 0:
        what += fmt::format(", byte {} of {}", at, size);
        ASSERT_TRUE(disk.FlipByte(file, at, std::byte{0x10}).ok());
        break;
      case 1:
        what += fmt::format(", {} of {} bytes left", at, size);
        ASSERT_TRUE(disk.Open(file, store::OpenMode::kWrite).value()->Truncate(at).ok());
        break;
      default: {
        const Bytes zeros(std::min<std::uint64_t>(300, size - at));
        what += fmt::format(", zeros from {} of {}", at, size);
        ASSERT_TRUE(disk.Open(file, store::OpenMode::kWrite).value()->WriteAt(at, zeros).ok());
      }
    }
    if (const Status begun = world.StartDamaged(victim); begun) {
      ++back;
    } else {
      EXPECT_NE(begun.error().message.find(file), std::string::npos)
          << what << ": " << begun.error().ToString();
    }
    const bool finished = world.RunUntil(
        [&] {
          for (std::size_t i = 0; i < 3; ++i) {
            if (world.Alive(i) && world.PeerAt(i).applied().body.round < 40) return false;
          }
          return world.audit().rounds() >= 40;
        },
        400s);
    EXPECT_TRUE(finished) << what;
    for (const std::string& failure : world.audit().failures())
      ADD_FAILURE() << what << ": " << failure;
    if (world.Alive(victim)) {
      EXPECT_EQ(world.audit().At(40).body.members.size(), 3U) << what;
    }
    if (HasFailure()) {
      for (const std::string& line : world.trace()) fmt::print("{}\n", line);
      return;
    }
  }
  fmt::print("{} of 90 came back by themselves\n", back);
  EXPECT_GT(back, 60U);
}

}  // namespace
}  // namespace loom::sim
