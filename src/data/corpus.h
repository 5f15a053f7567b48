// A corpus: text documents from files and folders, in one order that every peer gets. What cannot
// be read as text (empty, binary, invalid UTF-8, over-long or malformed lines) is a bad line with
// file, number and reason: the read stops there, or counts it and goes on when told to skip. Files
// pass by in pieces, unpacked on the way; none has to fit in memory.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "data/config.h"
#include "data/marked_text.h"

namespace loom::data {

enum class Fault : std::uint8_t { kEmpty, kTooLong, kNotUtf8, kMalformed };
inline constexpr std::size_t kNumFaults = 4;
/// "empty", "over-long", "not UTF-8", "malformed".
std::string_view FaultName(Fault fault);

struct BadLine {
  std::string file;
  std::uint64_t line = 0;  ///< from 1; 0 means the whole file
  std::string reason;
};

/// A document, or a part of one whose file is large. Views live for the call only.
struct Document {
  std::string_view text = {};  ///< valid UTF-8, not empty unless there are ids
  std::string_view file = {};
  std::uint64_t line = 0;                  ///< of a jsonl file, from 1; 0 for another
  bool begins = true;                      ///< false: it goes on where the one before it ended
  bool ends_itself = false;                ///< no separator belongs behind it
  std::size_t source = 0;                  ///< which of config.weights; 0 without weights
  std::span<const Span> spans = {};        ///< of the text; empty: a loss on all of it
  std::span<const std::int32_t> ids = {};  ///< of a token file, instead of text
};
inline constexpr std::size_t kPieceBytes = 16 << 20;

struct CorpusStats {
  std::vector<std::string> files;  ///< in the order they were read
  std::uint64_t documents = 0;
  std::uint64_t bytes = 0;  ///< of the documents' text, without separators
  std::uint64_t bad_count = 0;
  std::uint64_t faults[kNumFaults] = {};  ///< bad lines by Fault
  std::vector<BadLine> bad_lines;         ///< the first kMaxBadLines
  /// Documents whose whole text stood in an earlier one, and where the first of them is (read with
  /// find_duplicates). After kMaxTracked different texts no new ones are remembered.
  std::uint64_t duplicates = 0;
  std::string first_duplicate;

  /// "  FILE:LINE: REASON", a line each, and how many more there are.
  std::string BadLinesText() const;
  /// "12 bad lines (3 empty, 9 over-long)", "4 duplicates (first: FILE:LINE)", joined; empty when
  /// there is nothing to tell.
  std::string Complaints() const;
};
inline constexpr std::size_t kMaxBadLines = 100;
inline constexpr std::size_t kMaxTracked = 1 << 24;

struct ReadOptions {
  bool find_duplicates = false;  ///< costs up to 256 MiB
  /// Told now and then how many of all files' bytes, packed as they are, have been read. An error
  /// ends the read and is returned.
  std::function<Status(std::uint64_t done, std::uint64_t total)> progress = {};
};

struct CorpusFile {
  std::string path;
  std::size_t source = 0;  ///< which of config.paths it comes from
};

/// The files of the corpus in reading order: paths as given; folders and patterns (*, ?, [a-z] in
/// any part of a path) replaced by what they hold or match, sorted by path. Of folders, sub-folders
/// included, the .txt and .jsonl files count, also packed (.gz, .zst), or, when the format is one
/// of token files, the .bin files. Errors: nothing given, a path that does not exist or a pattern
/// without a match, no file found, too many.
Result<std::vector<CorpusFile>> ListCorpus(const DataConfig& config);

/// Calls visit for each document in order; an error of visit ends the read and is returned.
/// Unless config.skip_bad, the first bad line is the error. Lines of one jsonl file have one shape,
/// that of the first good one. A token file that breaks its format is an error in any case.
Result<CorpusStats> ReadCorpus(const DataConfig& config,
                               const std::function<Status(const Document&)>& visit,
                               const ReadOptions& options = {});

}  // namespace loom::data
