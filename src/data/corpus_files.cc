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

/// Reads names of one corpus into a list.
class Lister {
 public:
  explicit Lister(bool tokens) : tokens_(tokens) {}
  Status Add(const std::string& path, std::size_t source);
  std::vector<CorpusFile> files;

 private:
  bool HasKnownEnding(const std::string& path) const;
  Status AddFolder(const std::string& folder, std::size_t source);
  Status AddPath(const std::string& path, std::size_t source);

  bool tokens_;  ///< files of tokens are meant
};

bool Lister::HasKnownEnding(const std::string& path) const {
  const std::string_view name = UnpackedName(path);
  if (tokens_) return name.ends_with(".bin");
  return name.ends_with(".txt") || name.ends_with(".jsonl");
}

Error TooMany(const std::string& path) {
  return MakeError(Code::kLimit, fmt::format("'{}' holds more than {} files", path, kMaxFiles),
                   "join small files into larger ones");
}

Status Lister::AddFolder(const std::string& folder, std::size_t source) {
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
        Code::kNotFound,
        fmt::format("no {} file in '{}'", tokens_ ? ".bin" : ".txt or .jsonl", folder),
        "packed ones end in .txt.gz, .jsonl.zst and so on; name other files one by one");
  }
  std::sort(found.begin(), found.end());
  for (std::string& path : found) files.push_back({std::move(path), source});
  return {};
}

Status Lister::AddPath(const std::string& path, std::size_t source) {
  std::error_code error;
  if (fs::is_directory(path, error)) return AddFolder(path, source);
  files.push_back({path, source});
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

Status Lister::Add(const std::string& path, std::size_t source) {
  std::error_code error;
  if (fs::exists(fs::status(path, error))) return AddPath(path, source);
  const bool pattern = path.find_first_of("*?[") != std::string::npos;
  std::vector<std::string> matches;
  if (pattern) {
    LOOM_ASSIGN(matches, Matches(path));
  }
  if (matches.empty()) {
    return MakeError(
        Code::kNotFound,
        fmt::format("'{}' {}", path, pattern ? "matches nothing" : "does not exist"),
        "check the spelling of the path; one in run.toml ([data] paths) is meant from the "
        "folder of that file");
  }
  for (const std::string& match : matches) LOOM_RETURN_IF_ERROR(AddPath(match, source));
  return {};
}

}  // namespace

Result<std::vector<CorpusFile>> ListCorpus(const DataConfig& config) {
  if (config.paths.empty()) {
    return MakeError(Code::kInvalid, "data.paths is empty", "name a text file or a folder of them");
  }
  Lister lister(config.format == "nanogpt" || config.format == "llmc");
  for (std::size_t i = 0; i < config.paths.size(); ++i) {
    LOOM_RETURN_IF_ERROR(lister.Add(config.paths[i], i));
  }
  return std::move(lister.files);
}

}  // namespace loom::data
