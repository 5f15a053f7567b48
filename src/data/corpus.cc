#include "data/corpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/file.h"
#include "base/json.h"
#include "base/utf8.h"

namespace loom::data {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kMaxFiles = 1'000'000;

bool HasKnownEnding(const fs::path& path) {
  return path.extension() == ".txt" || path.extension() == ".jsonl";
}

Result<bool> IsJsonl(const std::string& path, const std::string& format) {
  if (format == "jsonl") return true;
  if (format == "txt") return false;
  if (format == "auto") return fs::path(path).extension() == ".jsonl";
  return MakeError(Code::kInvalid, fmt::format("data.format is '{}'", format),
                   "use \"auto\", \"txt\" or \"jsonl\"");
}

Status AddFolder(const std::string& folder, std::vector<std::string>& files) {
  std::error_code error;
  std::vector<std::string> found;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    if (it->is_regular_file(error) && HasKnownEnding(it->path())) {
      found.push_back(it->path().string());
    }
    if (found.size() + files.size() > kMaxFiles) {
      return MakeError(Code::kLimit,
                       fmt::format("'{}' holds more than {} files", folder, kMaxFiles));
    }
  }
  if (error) {
    return MakeError(Code::kIo, fmt::format("cannot list '{}': {}", folder, error.message()));
  }
  if (found.empty()) {
    return MakeError(Code::kNotFound, fmt::format("no .txt or .jsonl file in '{}'", folder));
  }
  std::sort(found.begin(), found.end());
  files.insert(files.end(), found.begin(), found.end());
  return {};
}

/// What makes a text no text; empty when nothing does.
std::string WhyNotText(std::string_view text) {
  if (const std::size_t zero = text.find('\0'); zero != std::string_view::npos) {
    return fmt::format("a zero byte at byte {}: a binary file?", zero);
  }
  if (const std::size_t bad = FindInvalidUtf8(text); bad != std::string_view::npos) {
    return fmt::format("invalid UTF-8 at byte {}", bad);
  }
  return {};
}

// One read of a corpus: counts what it saw and decides about bad lines.
class CorpusReader {
 public:
  CorpusReader(const DataConfig& config, const std::function<Status(const Document&)>& visit)
      : config_(config), visit_(visit) {}

  Status ReadTextFile(const std::string& path, ByteView bytes) {
    std::string_view text = AsText(bytes);
    if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
    if (text.empty()) return Bad(path, 0, "the file is empty");
    if (const std::string why = WhyNotText(text); !why.empty()) {
      const std::size_t at = std::min(FirstBadByte(text), text.size());
      const auto line =
          std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n') + 1;
      return Bad(path, static_cast<std::uint64_t>(line), why);
    }
    return Visit({text, path, 0});
  }

  Status ReadJsonlFile(const std::string& path, ByteView bytes) {
    const std::string_view text = AsText(bytes);
    if (text.empty()) return Bad(path, 0, "the file is empty");
    std::uint64_t number = 0;
    for (std::size_t at = 0; at < text.size();) {
      std::size_t end = text.find('\n', at);
      if (end == std::string_view::npos) end = text.size();
      LOOM_RETURN_IF_ERROR(ReadLine(path, ++number, text.substr(at, end - at)));
      at = end + 1;
    }
    return {};
  }

  CorpusStats stats;

 private:
  static std::size_t FirstBadByte(std::string_view text) {
    return std::min(text.find('\0'), FindInvalidUtf8(text));
  }

  Status ReadLine(const std::string& path, std::uint64_t number, std::string_view line) {
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.size() > config_.max_line_bytes) {
      return Bad(path, number,
                 fmt::format("the line has {} bytes, the limit is {}", line.size(),
                             config_.max_line_bytes));
    }
    auto text = ParseJsonlText(line);
    if (!text) return Bad(path, number, text.error().message);
    return Visit({*text, path, number});
  }

  Status Visit(const Document& document) {
    ++stats.documents;
    stats.bytes += document.text.size();
    return visit_(document);
  }

  Status Bad(const std::string& path, std::uint64_t line, std::string reason) {
    ++stats.bad_count;
    if (!config_.skip_bad) {
      const std::string where =
          line == 0 ? fmt::format("'{}'", path) : fmt::format("'{}' line {}", path, line);
      return MakeError(Code::kInvalid, fmt::format("{}: {}", where, reason),
                       "`loom data check` lists all bad lines; data.skip_bad = true leaves them "
                       "out");
    }
    if (stats.bad_lines.size() < kMaxBadLines) {
      stats.bad_lines.push_back({path, line, std::move(reason)});
    }
    return {};
  }

  const DataConfig& config_;
  const std::function<Status(const Document&)>& visit_;
};

}  // namespace

Result<std::vector<std::string>> ListCorpus(const DataConfig& config) {
  if (config.paths.empty()) {
    return MakeError(Code::kInvalid, "data.paths is empty", "name a text file or a folder of them");
  }
  std::vector<std::string> files;
  for (const std::string& path : config.paths) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (!fs::exists(status)) {
      return MakeError(Code::kNotFound, fmt::format("'{}' does not exist", path),
                       "check data.paths");
    }
    if (fs::is_directory(status)) {
      LOOM_RETURN_IF_ERROR(AddFolder(path, files));
    } else {
      files.push_back(path);
    }
  }
  return files;
}

std::string CorpusStats::BadLinesText() const {
  std::string out;
  for (const BadLine& bad : bad_lines) {
    out += bad.line == 0 ? fmt::format("  {}: {}\n", bad.file, bad.reason)
                         : fmt::format("  {}:{}: {}\n", bad.file, bad.line, bad.reason);
  }
  if (bad_count > bad_lines.size())
    out += fmt::format("  and {} more\n", bad_count - bad_lines.size());
  return out;
}

Result<CorpusStats> ReadCorpus(const DataConfig& config,
                               const std::function<Status(const Document&)>& visit) {
  CorpusReader reader(config, visit);
  LOOM_ASSIGN(reader.stats.files, ListCorpus(config));
  for (const std::string& path : reader.stats.files) {
    LOOM_ASSIGN(const bool jsonl, IsJsonl(path, config.format));
    LOOM_ASSIGN(const auto map, MappedFile::Open(path));
    LOOM_RETURN_IF_ERROR(jsonl ? reader.ReadJsonlFile(path, map.bytes())
                               : reader.ReadTextFile(path, map.bytes()));
  }
  if (reader.stats.documents == 0) {
    std::string listed = "\n" + reader.stats.BadLinesText();
    listed.pop_back();  // the last line's end, or the only one
    return MakeError(Code::kInvalid,
                     fmt::format("the corpus has no document ({} files, {} bad lines){}",
                                 reader.stats.files.size(), reader.stats.bad_count, listed));
  }
  return std::move(reader.stats);
}

Result<std::string> ParseJsonlText(std::string_view line) {
  if (line.find_first_not_of(" \t\r") == std::string_view::npos) {
    return MakeError(Code::kInvalid, "an empty line");
  }
  LOOM_ASSIGN(
      const auto value,
      json::Parse(line, {.max_bytes = line.size(), .max_depth = 32, .max_values = 1 << 16}));
  if (value.AsObject() == nullptr) {
    return MakeError(Code::kInvalid, fmt::format("the line is no object but {}", value.KindName()));
  }
  const json::Value* text = value.Find("text");
  if (text == nullptr) {
    for (const std::string_view other : {"messages", "prompt", "chosen"}) {
      if (value.Find(other) != nullptr) {
        return MakeError(Code::kInvalid, fmt::format("a line of another shape: it has the key '{}' "
                                                     "and no 'text'",
                                                     other));
      }
    }
    return MakeError(Code::kInvalid, "no key 'text'");
  }
  if (text->AsString() == nullptr) {
    return MakeError(Code::kInvalid, fmt::format("'text' is no string but {}", text->KindName()));
  }
  if (text->AsString()->empty()) return MakeError(Code::kInvalid, "'text' is empty");
  return *text->AsString();
}

}  // namespace loom::data
