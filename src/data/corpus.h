// A corpus: text documents from files and folders, in one order that every peer gets. What cannot
// be read as text (empty, binary, invalid UTF-8, over-long or malformed lines) is a bad line with
// file, number and reason: the read stops there, or counts it and goes on when told to skip.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "data/config.h"

namespace loom::data {

struct BadLine {
  std::string file;
  std::uint64_t line = 0;  ///< from 1; 0 means the whole file
  std::string reason;
};

struct Document {
  std::string_view text;  ///< valid UTF-8, not empty; lives for the call only
  std::string_view file;
  std::uint64_t line = 0;  ///< of a jsonl file, from 1; 0 for a whole text file
};

struct CorpusStats {
  std::vector<std::string> files;  ///< in the order they were read
  std::uint64_t documents = 0;
  std::uint64_t bytes = 0;  ///< of the documents' text, without separators
  std::uint64_t bad_count = 0;
  std::vector<BadLine> bad_lines;  ///< the first kMaxBadLines

  /// "  FILE:LINE: REASON", a line each, and how many more there are.
  std::string BadLinesText() const;
};
inline constexpr std::size_t kMaxBadLines = 100;

/// The files of the corpus in reading order: paths as given, folders replaced by their .txt and
/// .jsonl files sorted by path. Errors: nothing given, a path that does not exist, no file found.
Result<std::vector<std::string>> ListCorpus(const DataConfig& config);

/// Calls visit for each document in order; an error of visit ends the read and is returned.
/// Unless config.skip_bad, the first bad line is the error.
Result<CorpusStats> ReadCorpus(const DataConfig& config,
                               const std::function<Status(const Document&)>& visit);

/// The checks of one jsonl line: an object with a string under `text`. What is wrong becomes the
/// error's message. Other keys are allowed and ignored.
Result<std::string> ParseJsonlText(std::string_view line);

}  // namespace loom::data
