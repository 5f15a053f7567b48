// What both file systems promise, on a real disk and on the simulated one, and what only the
// simulated one does.
#include "store/file_system.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <set>

#include "store/sim_file_system.h"

namespace loom::store {
namespace {

class FileSystemTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (GetParam()) {
      std::string name = testing::TempDir() + "/loom-store-XXXXXX";
      ASSERT_NE(::mkdtemp(name.data()), nullptr);
      root_ = name;
      fs_ = std::make_unique<PosixFileSystem>();
    } else {
      root_ = "root";
      fs_ = std::make_unique<SimFileSystem>();
      ASSERT_TRUE(fs_->MakeDirs(root_));
    }
  }
  void TearDown() override {
    ASSERT_NE(fs_, nullptr);
    EXPECT_TRUE(RemoveTree(*fs_, root_));
  }
  std::string At(std::string_view name) const { return JoinPath(root_, name); }

  std::unique_ptr<FileSystem> fs_;
  std::string root_;
};

TEST_P(FileSystemTest, WritesReadsRenamesAndRemoves) {
  {
    auto file = fs_->Open(At("a"), OpenMode::kCreate);
    ASSERT_TRUE(file);
    ASSERT_TRUE((*file)->Append(AsBytes("hello ")));
    ASSERT_TRUE((*file)->Append(AsBytes("world")));
    ASSERT_TRUE((*file)->WriteAt(0, AsBytes("J")));
    ASSERT_TRUE((*file)->WriteAt(13, AsBytes("!")));
    ASSERT_TRUE((*file)->Sync());
    EXPECT_EQ(*(*file)->Size(), 14u);
    Bytes tail(8);
    EXPECT_EQ(*(*file)->ReadAt(10, tail), 4u);
    EXPECT_EQ(*(*file)->ReadAt(100, tail), 0u);
  }
  ASSERT_TRUE(fs_->Rename(At("a"), At("b")));
  ASSERT_TRUE(fs_->SyncDir(root_));
  EXPECT_FALSE(fs_->Exists(At("a")));
  const auto whole = ReadWholeFile(*fs_, At("b"), 14);
  ASSERT_TRUE(whole);
  EXPECT_EQ(AsText(*whole), std::string_view("Jello world\0\0!", 14));
  EXPECT_EQ(ReadWholeFile(*fs_, At("b"), 13).error().code, Code::kLimit);
  EXPECT_EQ(fs_->Open(At("none"), OpenMode::kRead).error().code, Code::kNotFound);
  EXPECT_EQ(fs_->Remove(At("none")).error().code, Code::kNotFound);
  EXPECT_FALSE(fs_->Open(root_, OpenMode::kRead));

  ASSERT_TRUE(fs_->MakeDirs(At("x/y/z"), Access::kPrivate));
  ASSERT_TRUE(fs_->MakeDirs(At("x/y/z"), Access::kPrivate));
  ASSERT_TRUE(WriteFileAtomically(*fs_, At("x/y/z/f"), AsBytes("1")));
  ASSERT_TRUE(WriteFileAtomically(*fs_, At("x/y/z/f"), AsBytes("22"), Access::kPrivate));
  EXPECT_EQ(*fs_->Size(At("x/y/z/f")), 2u);
  EXPECT_FALSE(fs_->Remove(At("x/y/z")));
  EXPECT_FALSE(fs_->MakeDirs(At("b/under-a-file")));
  const auto names = fs_->List(root_);
  ASSERT_TRUE(names);
  ASSERT_EQ(names->size(), 2u);
  EXPECT_EQ((*names)[0].name, "b");
  EXPECT_FALSE((*names)[0].is_dir);
  EXPECT_TRUE((*names)[1].is_dir);
  ASSERT_TRUE(fs_->Rename(At("x"), At("w")));
  EXPECT_TRUE(fs_->Exists(At("w/y/z/f")));
  ASSERT_TRUE(RemoveTree(*fs_, At("w")));
  EXPECT_FALSE(fs_->Exists(At("w")));
  EXPECT_GT(*fs_->FreeBytes(root_), 0u);
}

TEST_P(FileSystemTest, LockIsExclusiveAndNamesItsHolder) {
  auto lock = fs_->Lock(At("lock"), "4711");
  ASSERT_TRUE(lock);
  const auto second = fs_->Lock(At("lock"), "4712");
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::kConflict);
  EXPECT_NE(second.error().message.find("4711"), std::string::npos);
  lock->reset();
  EXPECT_TRUE(fs_->Lock(At("lock"), "4712"));
}

INSTANTIATE_TEST_SUITE_P(Both, FileSystemTest, testing::Bool(),
                         [](const auto& which) { return which.param ? "Posix" : "Sim"; });

TEST(PosixFileSystem, KeysAreForTheUserAlone) {
  std::string root = testing::TempDir() + "/loom-store-XXXXXX";
  ASSERT_NE(::mkdtemp(root.data()), nullptr);
  PosixFileSystem fs;
  const std::string folder = JoinPath(root, "keys");
  ASSERT_TRUE(fs.MakeDirs(folder, Access::kPrivate));
  ASSERT_TRUE(
      WriteFileAtomically(fs, JoinPath(folder, "peer"), AsBytes("secret"), Access::kPrivate));
  struct stat info{};
  ASSERT_EQ(::stat(folder.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777u, 0700u);
  ASSERT_EQ(::stat(JoinPath(folder, "peer").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777u, 0600u);
  EXPECT_TRUE(RemoveTree(fs, root));
}

TEST(PosixFileSystem, FullDiskIsItsOwnError) {
  PosixFileSystem fs;
  if (!fs.Exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  EXPECT_FALSE(fs.Open("/dev/full", OpenMode::kWrite)) << "a device is no file";
}

TEST(SimFileSystem, UnsyncedBytesMayBeLostSyncedOnesNot) {
  std::set<std::string> seen;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SimFileSystem fs;
    ASSERT_TRUE(WriteFileAtomically(fs, "f", AsBytes(std::string(600, 'a'))));
    {
      auto file = fs.Open("f", OpenMode::kWrite);
      ASSERT_TRUE((*file)->Append(AsBytes(std::string(600, 'b'))));
      fs.Crash(seed);
      EXPECT_EQ((*file)->Append(AsBytes("c")).error().code, Code::kIo) << "a dead handle";
    }
    const auto after = ReadWholeFile(fs, "f", 5000);
    ASSERT_TRUE(after);
    ASSERT_GE(after->size(), 600u);
    EXPECT_EQ(AsText(*after).substr(0, 600), std::string(600, 'a'));
    EXPECT_EQ(AsText(*after).substr(600).find_first_not_of(std::string_view("b\0", 2)),
              std::string_view::npos);
    seen.insert(std::string(AsText(*after)));
  }
  EXPECT_GT(seen.size(), 10u) << "crashes that tear in many ways";
}

TEST(SimFileSystem, UnsyncedNamesMayBeOldOrNew) {
  bool old_name = false;
  bool new_name = false;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SimFileSystem fs;
    ASSERT_TRUE(WriteFileAtomically(fs, "a", AsBytes("1")));
    ASSERT_TRUE(fs.Rename("a", "b"));
    fs.Crash(seed);
    EXPECT_NE(fs.Exists("a"), fs.Exists("b")) << "a rename is atomic";
    old_name |= fs.Exists("a");
    new_name |= fs.Exists("b");
  }
  EXPECT_TRUE(old_name && new_name);
}

TEST(SimFileSystem, SnapshotBringsOldStateBack) {
  SimFileSystem fs;
  ASSERT_TRUE(WriteFileAtomically(fs, "a", AsBytes("old")));
  const auto snapshot = fs.Snapshot();
  ASSERT_TRUE(WriteFileAtomically(fs, "a", AsBytes("newer")));
  ASSERT_TRUE(fs.Remove("a"));
  fs.Restore(snapshot);
  EXPECT_EQ(AsText(*ReadWholeFile(fs, "a", 10)), "old");
  EXPECT_EQ(fs.used_bytes(), 3u);
}

TEST(SimFileSystem, CapacityIsCountedAndFreed) {
  SimFileSystem fs(10);
  ASSERT_TRUE(WriteFileAtomically(fs, "a", AsBytes("12345678")));
  EXPECT_EQ(*fs.FreeBytes("."), 2u);
  const Status full = WriteFileAtomically(fs, "b", AsBytes("abc"));
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code, Code::kDiskFull);
  EXPECT_EQ(fs.used_bytes(), 8u);
  ASSERT_TRUE(fs.Remove("a"));
  EXPECT_TRUE(WriteFileAtomically(fs, "b", AsBytes("abc")));
}

TEST(Paths, JoinAndParent) {
  EXPECT_EQ(JoinPath("a", "b"), "a/b");
  EXPECT_EQ(JoinPath("a/", "b"), "a/b");
  EXPECT_EQ(ParentPath("a/b"), "a");
  EXPECT_EQ(ParentPath("b"), ".");
  EXPECT_EQ(ParentPath("/b"), "/");
  EXPECT_EQ(ParentPath("/"), "/");
  EXPECT_EQ(ParentPath("a/b/"), "a");
}

}  // namespace
}  // namespace loom::store
