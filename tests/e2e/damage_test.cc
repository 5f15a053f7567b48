// What a disk can do to the folder of a real run: a changed bit, a shortened or a missing file at
// every file of it, no space at any size. Each time loom train names the file or makes it good, and
// nothing older is lost: the run ends with the bits of an undisturbed one, at once or when the file
// is brought back or space is made.
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "base/file.h"
#include "tests/e2e/swarm_process.h"

namespace loom::e2e {
namespace {

namespace fs = std::filesystem;
constexpr std::uint64_t kRounds = 10;

/// LOOM_DAMAGES=all for every file, more places in each of them, and more sizes of disks.
bool AllDamages() {
  const char* wanted = std::getenv("LOOM_DAMAGES");
  return wanted != nullptr && std::string_view(wanted) == "all";
}

/// Files that are only for people, or made anew by each start.
bool IsHarmless(const std::string& file) {
  return file == "lock" || file == "status.json" || file == "metrics.jsonl" ||
         file == "keys/listen" || file == "keys/local" || file == "keys/port";
}

class Damage : public SwarmTest {
 protected:
  void SetUp() override {
    SwarmTest::SetUp();
    auto toml = ReadFile(Path("run.toml"), 1U << 16);
    ASSERT_TRUE(toml.ok());
    toml->replace(toml->find("rounds = 0"), 10, fmt::format("rounds = {}", kRounds));
    toml->replace(toml->find("inner_steps = 30"), 16, "inner_steps = 6");
    std::ofstream(Path("short.toml")) << *toml;
    const Ended whole = Finish(Path("whole"));
    ASSERT_EQ(whole.code, 0) << whole.log;
    root_ = Records(Path("whole")).back();
  }

  Ended Finish(const std::string& dir) {
    return Run({"train", Path("short.toml"), "--dir", dir}, 120s);
  }
  /// The roots of a folder's records.
  std::vector<Hash> Records(const std::string& dir) {
    std::vector<Hash> roots;
    const auto records = app::ReadFolderRecords(dir);
    EXPECT_TRUE(records.ok()) << dir;
    if (!records) return roots;
    for (const collab::Record& record : records->records) roots.push_back(record.body.root);
    return roots;
  }
  void ExpectSameEnd(const std::string& dir, const Ended& ended, const std::string& what) {
    EXPECT_EQ(ended.code, 0) << what << "\n" << ended.log;
    const std::vector<Hash> roots = Records(dir);
    ASSERT_EQ(roots.size(), kRounds) << what;
    EXPECT_EQ(roots.back(), root_) << what << "\n" << ended.log;
  }

  /// A run that was killed past its second checkpoint, with a round beyond it.
  void Begin() {
    Peer& peer = Train("begun", Path("short.toml"));
    Until("round 9", [&] { return peer.round >= 9; });
    Kill(peer);
    for (const auto& entry : fs::recursive_directory_iterator(peer.dir)) {
      if (entry.is_regular_file()) files_.push_back(fs::relative(entry.path(), peer.dir).string());
    }
    std::ranges::sort(files_);
    ASSERT_GE(files_.size(), 20U);
  }
  /// A copy of that run's folder.
  std::string Copy(const std::string& name) {
    const fs::path to = Path(name);
    fs::remove_all(to);
    for (const std::string& file : files_) {
      fs::create_directories((to / file).parent_path());
      fs::copy_file(Path("begun") + "/" + file, to / file);
    }
    fs::permissions(to / "keys", fs::perms::owner_all);
    return to.string();
  }
  /// What is read at a start: the newest checkpoint, the rounds after it.
  static bool IsRead(const std::string& file) {
    const auto number = [&](std::string_view folder) {
      return std::strtoull(file.c_str() + folder.size(), nullptr, 10);
    };
    if (file.starts_with("checkpoints/")) return number("checkpoints/") == 8;
    if (file.starts_with("rounds/")) return number("rounds/") > 8;
    return !IsHarmless(file);
  }

  void ExpectNamedOrMadeGood(const std::string& file, const std::string& how,
                             const std::function<void(const std::string& path)>& damage) {
    const std::string what = file + ": " + how;
    const std::string dir = Copy("damaged");
    damage(dir + "/" + file);
    const Ended ended = Finish(dir);
    const bool named = ended.log.find(file) != std::string::npos;
    if (IsRead(file)) {
      EXPECT_TRUE(named) << what << "\n" << ended.log;
    }
    if (ended.code == 0) {
      ExpectSameEnd(dir, ended, what);
      return;
    }
    EXPECT_TRUE(named) << what << "\n" << ended.log;
    fmt::print("refused ({}): {}\n", ended.code, what);
    fs::copy_file(Path("begun") + "/" + file, dir + "/" + file,
                  fs::copy_options::overwrite_existing);
    ExpectSameEnd(dir, Finish(dir), what + ", then brought back");
  }

  static void Flip(const std::string& path, std::uint64_t at) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(at));
    const int byte = file.get();
    file.seekp(static_cast<std::streamoff>(at));
    file.put(static_cast<char>(byte ^ 4));
    ASSERT_TRUE(file.good()) << path;
  }

  /// It stops with an error that names a file of the folder, or it ends as it would without.
  void ExpectNoSpaceIsNamed(const std::string& dir, const Ended& ended, const char* why,
                            const std::string& what) {
    if (ended.code == 0) {
      ExpectSameEnd(dir, ended, what);
      return;
    }
    EXPECT_EQ(ended.code, 7) << what << "\n" << ended.log;
    EXPECT_NE(ended.log.find("nothing older was changed"), std::string::npos) << ended.log;
    EXPECT_NE(ended.log.find(dir + "/"), std::string::npos) << what << "\n" << ended.log;
    EXPECT_NE(ended.log.find(why), std::string::npos) << what << "\n" << ended.log;
  }

  Hash root_;
  std::vector<std::string> files_;
};

TEST_F(Damage, AtEveryFileItIsNamedOrMadeGood) {
  Begin();
  for (const std::string& file : files_) {
    if (HasFailure()) return;
    if (!AllDamages() && !IsRead(file)) continue;
    const std::uint64_t size = fs::file_size(Path("begun") + "/" + file);
    std::vector<std::uint64_t> places{size / 2};
    if (AllDamages()) places = {0, 9, size / 4, size / 2, size - size / 4, size - 1};
    for (const std::uint64_t at : places) {
      if (at >= size) continue;
      ExpectNamedOrMadeGood(file, fmt::format("a bit of byte {} of {}", at, size),
                            [&](const std::string& path) { Flip(path, at); });
    }
    std::vector<std::uint64_t> lengths{size / 2};
    if (AllDamages()) lengths = {0, size / 2, size - 1};
    // Without more, of four files one is shortened, too, and one removed.
    const auto turn = (&file - files_.data()) % 4;
    for (const std::uint64_t length : lengths) {
      if (size == 0 || (!AllDamages() && turn != 0)) continue;
      ExpectNamedOrMadeGood(file, fmt::format("cut to {} of {} bytes", length, size),
                            [&](const std::string& path) { fs::resize_file(path, length); });
    }
    if (!AllDamages() && turn != 2) continue;
    ExpectNamedOrMadeGood(file, "removed", [](const std::string& path) { fs::remove(path); });
  }
}

/// While it lives, what this process starts can write no file longer than that.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(std::uint64_t bytes) : handler_(::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
  sighandler_t handler_;
};

TEST_F(Damage, AFileThatCannotGrowIsNamedAndCostsNothing) {
  Begin();
  std::vector<std::uint64_t> limits{12'000, 40'000};
  if (AllDamages()) limits = {9'000, 12'000, 20'000, 30'000, 40'000, 60'000, 90'000, 150'000};
  for (const std::uint64_t limit : limits) {
    const std::string what = fmt::format("no file over {} bytes", limit);
    for (const bool begun : {false, true}) {
      const std::string dir = begun ? Copy("limited") : Path("new");
      if (!begun) fs::remove_all(dir);
      Ended ended;
      {
        const FileSizeLimit in_force(limit);
        ended = Finish(dir);
      }
      ExpectNoSpaceIsNamed(dir, ended, "File too large", what);
      ExpectSameEnd(dir, Finish(dir), what + ", then without the limit");
      if (HasFailure()) return;
    }
  }
}

TEST_F(Damage, AFullDiskIsNamedAndCostsNothing) {
  // Mounts are made in a namespace of this process and its children; they end with it.
  if (::unshare(CLONE_NEWNS) != 0 ||
      ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
    GTEST_SKIP() << "mounting a small disk needs root";
  }
  std::uint64_t whole = 0;
  for (const auto& entry : fs::recursive_directory_iterator(Path("whole"))) {
    if (entry.is_regular_file()) whole += (entry.file_size() + 8191) / 4096 * 4096;
  }
  const std::string disk = Path("disk");
  fs::create_directories(disk);
  const std::uint64_t steps = AllDamages() ? 16 : 3;
  for (std::uint64_t k = 1; k <= steps; ++k) {
    const std::uint64_t bytes = whole * k / (steps + 1);
    const std::string what = fmt::format("a disk of {} bytes", bytes);
    ASSERT_EQ(::mount("tmpfs", disk.c_str(), "tmpfs", 0, fmt::format("size={}", bytes).c_str()), 0);
    const std::string dir = disk + "/run";
    const Ended ended = Finish(dir);
    ExpectNoSpaceIsNamed(dir, ended, "No space left on device", what);
    const std::size_t before = fs::exists(dir + "/records.log") ? Records(dir).size() : 0;
    ASSERT_EQ(::mount(nullptr, disk.c_str(), nullptr, MS_REMOUNT, "size=64m"), 0);
    const Ended last = Finish(dir);
    ExpectSameEnd(dir, last, what + ", then a larger one");
    fmt::print("{}: {} rounds, then all {}\n", what, before, kRounds);
    ASSERT_EQ(::umount(disk.c_str()), 0);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace loom::e2e
