// std::filesystem, its errors turned into ours.
#include "app/folders.h"

#include <fmt/core.h>

#include <filesystem>

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

Status MakeFolder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (!fs::is_directory(path, error)) {
    return MakeError(Code::kIo, fmt::format("cannot make the folder {}", path),
                     "is there a file of that name?");
  }
  return {};
}

std::string ResolvePath(const std::string& path, const std::string& run_toml) {
  const fs::path given(path);
  if (given.is_absolute() || run_toml.empty()) return path;
  return (fs::path(run_toml).parent_path() / given).string();
}

}  // namespace loom::app
