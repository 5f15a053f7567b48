// std::filesystem, its errors turned into ours.
#include "app/folders.h"

#include <fmt/core.h>
#include <unistd.h>

#include <filesystem>
#include <vector>

#include "app/peer_folder_source.h"
#include "base/printable.h"
#include "store/file_system.h"

namespace loom::app {
namespace fs = std::filesystem;

std::string ChooseFolder(const std::string& dir, const std::string& run_toml) {
  if (!dir.empty()) return dir;
  std::error_code ignored;
  for (int k = 1;; ++k) {
    std::string path = fmt::format("./loom-{}-{}", NameOfRun(run_toml), k);
    if (!fs::exists(path, ignored)) return path;
  }
}

std::string NameOfRun(const std::string& run_toml) {
  const std::string stem = fs::path(run_toml).stem().string();
  return stem.empty() ? "run" : stem;
}

std::string SeenFrom(const std::string& run_toml, const std::string& path) {
  std::error_code error;
  const fs::path folder = fs::absolute(run_toml, error).parent_path();
  if (error || fs::path(path).is_absolute()) return path;
  const fs::path seen = fs::proximate(path, folder, error);
  return error ? fs::absolute(path).string() : seen.string();
}

Status MakeFolder(const std::string& path) {
  std::error_code error;
  std::error_code ignored;
  fs::create_directories(path, error);
  if (fs::is_directory(path, ignored)) return {};
  if (fs::exists(path, ignored)) {
    return MakeError(Code::kIo,
                     fmt::format("cannot make the folder {}: there is a file of that name", path),
                     "give another --dir");
  }
  if (fs::is_symlink(path, ignored)) {
    return MakeError(
        Code::kIo,
        fmt::format("cannot make the folder {}: it is a link to {}, which is not there", path,
                    fs::read_symlink(path, ignored).string()),
        "mount or make what it leads to, or give another --dir");
  }
  return MakeError(Code::kIo, fmt::format("cannot make the folder {}: {}", path, error.message()),
                   "choose a place that exists and that you may write to with --dir");
}

/// kConflict for a folder with other things in it than a peer's.
static Status CheckOurs(const std::string& path) {
  if (IsPeerFolder(path)) return {};
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(path, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name == "lock" || name == "lost+found") continue;  // a start that was killed; a whole disk
    // A run's data that was brought along is not fetched again.
    if (name == "data" && fs::exists(entry.path() / "dataset.json", ignored)) continue;
    return MakeError(Code::kConflict,
                     fmt::format("{} exists and holds {}, but no run", path, OneLine(name)),
                     "give a folder that is empty or not there yet with --dir");
  }
  return {};
}

Result<FreshFolder> FreshFolder::Make(const std::string& path) {
  std::error_code error;
  const bool was_there = fs::exists(path, error);
  const bool in_use = was_there && !fs::is_empty(path, error);
  if (in_use) LOOM_RETURN_IF_ERROR(CheckOurs(path));
  LOOM_RETURN_IF_ERROR(MakeFolder(path));
  return FreshFolder(in_use ? std::string() : path, was_there);
}

FreshFolder::~FreshFolder() {
  if (path_.empty()) return;
  std::error_code ignored;
  if (fs::is_empty(path_, ignored)) {
    if (!was_there_) fs::remove(path_, ignored);
    return;
  }
  store::PosixFileSystem disk;
  const auto lock = disk.Lock(path_ + "/lock", std::to_string(::getpid()));
  if (!lock || (!own_ && fs::exists(path_ + "/genesis", ignored))) return;
  std::vector<fs::path> inside;
  for (const auto& entry : fs::directory_iterator(path_, ignored)) inside.push_back(entry.path());
  for (const fs::path& path : inside) fs::remove_all(path, ignored);
  if (!was_there_) fs::remove(path_, ignored);
}

}  // namespace loom::app
