// Which files a corpus has: paths, folders and patterns made into one sorted list.
#include <fmt/format.h>
#include <glob.h>

#include <algorithm>
#include <filesystem>

#include "data/byte_input.h"
#include "data/corpus.h"

namespace loom::data {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxFiles = 1'000'000;

bool HasKnownEnding(const std::string& path) {
  const std::string_view name = UnpackedName(path);
  return name.ends_with(".txt") || name.ends_with(".jsonl");
}

Error TooMany(const std::string& path) {
  return MakeError(Code::kLimit, fmt::format("'{}' holds more than {} files", path, kMaxFiles),
                   "join small files into larger ones");
}

Status AddFolder(const std::string& folder, std::vector<std::string>& files) {
  std::error_code error;
  std::vector<std::string> found;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    if (it->is_regular_file(error) && HasKnownEnding(it->path().string())) {
      found.push_back(it->path().string());
    }
    if (found.size() + files.size() > kMaxFiles) return TooMany(folder);
  }
  if (error) {
    return MakeError(Code::kIo, fmt::format("cannot list '{}': {}", folder, error.message()));
  }
  if (found.empty()) {
    return MakeError(
        Code::kNotFound, fmt::format("no .txt or .jsonl file in '{}'", folder),
        "packed ones end in .txt.gz, .jsonl.zst and so on; name other files one by one");
  }
  std::sort(found.begin(), found.end());
  files.insert(files.end(), found.begin(), found.end());
  return {};
}

Status AddPath(const std::string& path, std::vector<std::string>& files) {
  std::error_code error;
  if (fs::is_directory(path, error)) return AddFolder(path, files);
  files.push_back(path);
  return files.size() > kMaxFiles ? TooMany(path) : Status();
}

/// What a pattern matches, sorted by bytes whatever the locale says.
Result<std::vector<std::string>> Matches(const std::string& pattern) {
  glob_t found{};
  const int result = ::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found);
  std::vector<std::string> paths(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  if (result == GLOB_NOSPACE) return MakeError(Code::kLimit, "no memory to list files");
  if (result != 0 && result != GLOB_NOMATCH) {
    return MakeError(Code::kIo, fmt::format("cannot list what '{}' matches", pattern));
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace

Result<std::vector<std::string>> ListCorpus(const DataConfig& config) {
  if (config.paths.empty()) {
    return MakeError(Code::kInvalid, "data.paths is empty", "name a text file or a folder of them");
  }
  std::vector<std::string> files;
  for (const std::string& path : config.paths) {
    std::error_code error;
    if (fs::exists(fs::status(path, error))) {
      LOOM_RETURN_IF_ERROR(AddPath(path, files));
      continue;
    }
    const bool pattern = path.find_first_of("*?[") != std::string::npos;
    std::vector<std::string> matches;
    if (pattern) {
      LOOM_ASSIGN(matches, Matches(path));
    }
    if (matches.empty()) {
      return MakeError(Code::kNotFound,
                       fmt::format("'{}' {}", path, pattern ? "matches nothing" : "does not exist"),
                       "check data.paths");
    }
    for (const std::string& match : matches) LOOM_RETURN_IF_ERROR(AddPath(match, files));
  }
  return files;
}

}  // namespace loom::data
