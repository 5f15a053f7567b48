#include "data/corpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>

#include "base/human.h"
#include "base/utf8.h"
#include "data/byte_input.h"
#include "data/jsonl_line.h"
#include "data/seen_texts.h"
#include "data/text_input.h"
#include "data/token_file.h"
#include "text/vocab.h"

namespace loom::data {

namespace fs = std::filesystem;

namespace {

constexpr std::uint64_t kProgressBytes = 1 << 20;

enum class FileKind : std::uint8_t { kText, kJsonl, kNanoGpt, kLlmC };

Result<FileKind> KindOf(const std::string& path, const std::string& format) {
  const std::string_view name = UnpackedName(path);
  if (format == "jsonl") return FileKind::kJsonl;
  if (format == "txt") return FileKind::kText;
  if (format == "nanogpt") return FileKind::kNanoGpt;
  if (format == "llmc") return FileKind::kLlmC;
  if (format != "auto") {
    return MakeError(Code::kInvalid, fmt::format("data.format is '{}'", format),
                     "use \"auto\", \"txt\", \"jsonl\", \"nanogpt\" or \"llmc\"");
  }
  if (name.ends_with(".bin")) {
    return MakeError(Code::kInvalid, fmt::format("'{}' may be tokens of several kinds", path),
                     "set data.format to \"nanogpt\" or \"llmc\"");
  }
  return name.ends_with(".jsonl") ? FileKind::kJsonl : FileKind::kText;
}

Result<LineRules> RulesOf(const DataConfig& config) {
  LineRules rules;
  if (config.chat != "auto") {
    LOOM_ASSIGN(rules.chat, ParseChatTemplate(config.chat));
  }
  if (config.loss != "answers" && config.loss != "all") {
    return MakeError(Code::kInvalid, fmt::format("data.loss is '{}'", config.loss),
                     "use \"answers\" or \"all\"");
  }
  rules.loss_on_all = config.loss == "all";
  return rules;
}

/// A text file as it passes by, checked piece by piece.
class TextFile {
 public:
  explicit TextFile(std::unique_ptr<ByteInput> input)
      : input_(std::move(input)), pieces_(*input_, kPieceBytes) {}

  const ByteInput& input() const { return *input_; }
  bool done() const { return pieces_.done(); }
  std::uint64_t line() const { return line_; }  ///< of the next piece, or of what is wrong

  /// None at the end. What makes it no text becomes an error of kInvalid.
  Result<std::optional<std::string_view>> Next(Fault& fault) {
    LOOM_ASSIGN(const auto piece, pieces_.Next());
    if (!piece) return piece;
    const std::size_t zero = piece->find('\0');
    const std::size_t invalid = FindInvalidUtf8(*piece);
    const std::size_t bad = std::min(zero, invalid);
    line_ += static_cast<std::uint64_t>(std::ranges::count(piece->substr(0, bad), '\n'));
    if (bad == std::string_view::npos) {
      offset_ += piece->size();
      return piece;
    }
    const bool binary = zero != std::string_view::npos;
    fault = binary ? Fault::kMalformed : Fault::kNotUtf8;
    return MakeError(Code::kInvalid,
                     binary ? fmt::format("a zero byte at byte {}: a binary file?", offset_ + zero)
                            : fmt::format("invalid UTF-8 at byte {}", offset_ + invalid));
  }

 private:
  std::unique_ptr<ByteInput> input_;
  PieceReader pieces_;
  std::uint64_t offset_ = 0, line_ = 1;
};

// One read of a corpus: counts what it saw and decides about bad lines.
class CorpusReader {
 public:
  CorpusReader(const DataConfig& config, const std::function<Status(const Document&)>& visit,
               const ReadOptions& options, const LineRules& rules)
      : config_(config), visit_(visit), options_(options), rules_(rules) {}

  void CountBytes(const std::vector<CorpusFile>& files) {
    for (const CorpusFile& file : files) {
      std::error_code error;
      const std::uint64_t size = fs::file_size(file.path, error);
      if (!error) total_ += size;
    }
  }

  Status ReadFile(const CorpusFile& file) {
    source_ = config_.weights.empty() ? 0 : file.source;
    LOOM_ASSIGN(const FileKind kind, KindOf(file.path, config_.format));
    LOOM_ASSIGN(auto input, OpenInput(file.path));
    stats.files.push_back(file.path);
    if (kind == FileKind::kText) return ReadText(file.path, std::move(input));
    LOOM_RETURN_IF_ERROR(kind == FileKind::kJsonl ? ReadJsonl(file.path, *input)
                                                  : ReadTokens(file.path, *input, kind));
    before_ += input->taken();
    return {};
  }

  /// Of the last document.
  void Finish() {
    if (!hash_) return;
    if (seen_.Insert(*hash_) && ++stats.duplicates == 1) stats.first_duplicate = place_;
    hash_.reset();
  }

  CorpusStats stats;

 private:
  // A text that is not wholly good is left out as a whole, so one that does not fit into a piece is
  // looked through before any of it is given away.
  Status ReadText(const std::string& path, std::unique_ptr<ByteInput> input) {
    TextFile file(std::move(input));
    Fault fault{};
    auto piece = file.Next(fault);
    if (!piece) return BadFile(path, file.line(), fault, piece.error());
    if (!*piece) return Bad(path, 0, Fault::kEmpty, "the file is empty");
    if (!file.done()) {
      LOOM_ASSIGN(const bool good, LookThrough(path));
      if (!good) return {};
    }
    for (bool begins = true; *piece; begins = false) {
      LOOM_RETURN_IF_ERROR(Visit({.text = **piece, .file = path, .begins = begins}));
      LOOM_RETURN_IF_ERROR(Tell(file.input().taken()));
      piece = file.Next(fault);
      if (!piece) return std::move(piece).error().Context(fmt::format("'{}'", path));
    }
    before_ += file.input().taken();
    return {};
  }

  /// False: it is bad, and was counted.
  Result<bool> LookThrough(const std::string& path) {
    LOOM_ASSIGN(auto input, OpenInput(path));
    TextFile file(std::move(input));
    for (;;) {
      Fault fault{};
      const auto piece = file.Next(fault);
      if (!piece) {
        LOOM_RETURN_IF_ERROR(BadFile(path, file.line(), fault, piece.error()));
        return false;
      }
      if (!*piece) return true;
    }
  }

  Status ReadJsonl(const std::string& path, ByteInput& input) {
    LineReader lines(input, config_.max_line_bytes);
    shape_.reset();
    for (std::uint64_t number = 1;; ++number) {
      const auto line = lines.Next();
      if (!line) return BadFile(path, number, Fault::kMalformed, line.error());
      if (!*line) return number > 1 ? Status() : Bad(path, 0, Fault::kEmpty, "the file is empty");
      LOOM_RETURN_IF_ERROR(ReadLine(path, number, **line));
      LOOM_RETURN_IF_ERROR(Tell(input.taken()));
    }
  }

  Status ReadLine(const std::string& path, std::uint64_t number, const LineReader::Line& line) {
    if (line.too_long) {
      return Bad(
          path, number, Fault::kTooLong,
          fmt::format("the line has {} bytes, the limit is {}", line.size, config_.max_line_bytes));
    }
    Fault fault = Fault::kMalformed;
    const auto parsed = ParseJsonlLine(line.text, rules_, fault);
    if (!parsed) return Bad(path, number, fault, parsed.error().message);
    if (shape_.value_or(parsed->shape) != parsed->shape) {
      return Bad(path, number, Fault::kMalformed,
                 fmt::format("a line of {} in a file of {}", ShapeName(parsed->shape),
                             ShapeName(*shape_)));
    }
    shape_ = parsed->shape;
    return Visit({.text = parsed->marked.text,
                  .file = path,
                  .line = number,
                  .ends_itself = parsed->shape == Shape::kMessages,
                  .spans = parsed->marked.spans});
  }

  Status ReadTokens(const std::string& path, ByteInput& input, FileKind kind) {
    bool begins = true;
    const Status done = ReadTokenFile(
        input, kind == FileKind::kLlmC ? TokenFileKind::kLlmC : TokenFileKind::kNanoGpt,
        [&](std::span<const std::int32_t> ids) -> Status {
          LOOM_RETURN_IF_ERROR(
              Visit({.file = path, .begins = begins, .ends_itself = true, .ids = ids}));
          begins = false;
          return Tell(input.taken());
        });
    if (!done) return Error(done.error()).Context(fmt::format("'{}'", path));
    return begins ? Bad(path, 0, Fault::kEmpty, "the file is empty") : Status();
  }

  Status Visit(Document document) {
    document.source = source_;
    if (document.begins) {
      Finish();
      ++stats.documents;
    }
    stats.bytes += document.text.size();
    if (options_.find_duplicates && document.ids.empty()) {
      hash_ = text::MixHash(document.text) + 31 * (document.begins ? 0 : *hash_);
      if (stats.duplicates == 0) place_ = Where(document.file, document.line);
    }
    return visit_(document);
  }

  static std::string Where(std::string_view path, std::uint64_t line) {
    return line == 0 ? std::string(path) : fmt::format("{}:{}", path, line);
  }

  /// A file whose bytes are no text, or not what they were packed from; others are not to blame.
  Status BadFile(const std::string& path, std::uint64_t line, Fault fault, const Error& error) {
    if (error.code != Code::kInvalid && error.code != Code::kCorrupt) {
      return Error(error).Context(fmt::format("'{}'", path));
    }
    return Bad(path, line, fault,
               error.code == Code::kCorrupt ? error.message + "; what follows is not read"
                                            : error.message);
  }

  Status Bad(const std::string& path, std::uint64_t line, Fault fault, std::string reason) {
    ++stats.bad_count;
    ++stats.faults[static_cast<std::size_t>(fault)];
    if (!config_.skip_bad) {
      const std::string where =
          line == 0 ? fmt::format("'{}'", path) : fmt::format("'{}' line {}", path, line);
      return MakeError(Code::kInvalid, fmt::format("{}: {}", where, reason),
                       "`loom data check` lists all bad lines; data.skip_bad = true (loom init "
                       "--skip-bad) leaves them "
                       "out");
    }
    if (stats.bad_lines.size() < kMaxBadLines) {
      stats.bad_lines.push_back({path, line, std::move(reason)});
    }
    return {};
  }

  Status Tell(std::uint64_t taken) {
    if (!options_.progress || before_ + taken < told_ + kProgressBytes) return {};
    told_ = before_ + taken;
    return options_.progress(told_, total_);
  }

  const DataConfig& config_;
  const std::function<Status(const Document&)>& visit_;
  const ReadOptions& options_;
  const LineRules& rules_;
  std::size_t source_ = 0;      ///< of the file that is read
  std::optional<Shape> shape_;  ///< of the jsonl file that is read
  std::uint64_t before_ = 0;    ///< bytes of the files that are done
  std::uint64_t told_ = 0, total_ = 0;
  SeenTexts seen_{kMaxTracked};
  std::optional<std::uint64_t> hash_;  ///< of the document so far
  std::string place_;                  ///< where it is, while no duplicate was found
};

}  // namespace

std::string_view FaultName(Fault fault) {
  switch (fault) {
    case Fault::kEmpty:
      return "empty";
    case Fault::kTooLong:
      return "over-long";
    case Fault::kNotUtf8:
      return "not UTF-8";
    case Fault::kMalformed:
      return "malformed";
  }
  return "";
}

std::string CorpusStats::BadLinesText() const {
  constexpr std::size_t kAlike = 3;  // lines with one reason
  std::string out;
  std::map<std::string_view, std::size_t> alike;
  std::size_t shown = 0;
  for (const BadLine& bad : bad_lines) {
    if (++alike[bad.reason] > kAlike) continue;
    ++shown;
    out += bad.line == 0 ? fmt::format("  {}: {}\n", bad.file, bad.reason)
                         : fmt::format("  {}:{}: {}\n", bad.file, bad.line, bad.reason);
  }
  if (bad_count > shown) out += fmt::format("  and {} more\n", bad_count - shown);
  return out;
}

std::string CorpusStats::Complaints() const {
  std::string out;
  if (bad_count > 0) {
    std::string kinds;
    for (std::size_t i = 0; i < kNumFaults; ++i) {
      if (faults[i] == 0) continue;
      kinds += fmt::format("{}{} {}", kinds.empty() ? "" : ", ", faults[i],
                           FaultName(static_cast<Fault>(i)));
    }
    out = fmt::format("{} bad line{} left out ({})", bad_count, bad_count == 1 ? "" : "s", kinds);
  }
  if (duplicates > 0) {
    out += fmt::format("{}{} duplicate document{} (the first: {})", out.empty() ? "" : ", ",
                       duplicates, duplicates == 1 ? "" : "s", first_duplicate);
  }
  return out;
}

Result<CorpusStats> ReadCorpus(const DataConfig& config,
                               const std::function<Status(const Document&)>& visit,
                               const ReadOptions& options) {
  LOOM_ASSIGN(const LineRules rules, RulesOf(config));
  LOOM_ASSIGN(const std::vector<CorpusFile> files, ListCorpus(config));
  CorpusReader reader(config, visit, options, rules);
  if (options.progress) reader.CountBytes(files);
  for (const CorpusFile& file : files) LOOM_RETURN_IF_ERROR(reader.ReadFile(file));
  reader.Finish();
  if (reader.stats.documents == 0) {
    std::string listed = "\n" + reader.stats.BadLinesText();
    listed.pop_back();  // the last line's end, or the only one
    return MakeError(Code::kInvalid,
                     fmt::format("the corpus has no document ({}, {}){}",
                                 Counted(reader.stats.files.size(), "file"),
                                 Counted(reader.stats.bad_count, "bad line"), listed));
  }
  return std::move(reader.stats);
}

}  // namespace loom::data
