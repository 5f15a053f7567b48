#include "data/corpus_pass.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <future>
#include <numeric>
#include <optional>
#include <utility>

#include "base/file.h"
#include "base/utf8.h"
#include "crypto/hash.h"
#include "data/chat.h"

namespace loom::data {
namespace {

constexpr std::size_t kBatchBytes = 1 << 20;  // of text that a thread encodes at a time

Status CheckConfig(const DataConfig& config) {
  if (!(config.val_fraction >= 0.0 && config.val_fraction <= 0.5)) {
    return MakeError(Code::kInvalid, fmt::format("data.val_fraction is {}, must be in [0, 0.5]",
                                                 config.val_fraction));
  }
  if (FindInvalidUtf8(config.separator) != std::string::npos) {
    return MakeError(Code::kInvalid, "data.separator is not valid UTF-8");
  }
  if (!config.weights.empty() && config.weights.size() != config.paths.size()) {
    return MakeError(Code::kInvalid,
                     fmt::format("data.weights has {} numbers for {} paths", config.weights.size(),
                                 config.paths.size()),
                     "give one weight for each of data.paths, or none");
  }
  return {};
}

// The corpus as one row: documents with the separator between those of one source. A separator is
// trained on where what it follows is.
class Row {
 public:
  Row(const DataConfig& config, const std::function<Status(const Document&)>& piece)
      : config_(config), piece_(piece) {}

  Result<CorpusStats> Read(const ReadOptions& options) {
    return ReadCorpus(
        config_, [this](const Document& document) { return Visit(document); }, options);
  }

 private:
  Status Visit(const Document& document) {
    if (open_ && document.begins && source_ == document.source && document.ids.empty()) {
      const Span separator{config_.separator.size(), last_loss_, false};
      LOOM_RETURN_IF_ERROR(piece_({.text = config_.separator,
                                   .file = document.file,
                                   .line = document.line,
                                   .begins = false,
                                   .source = document.source,
                                   .spans = {&separator, 1}}));
    }
    open_ = !document.ends_itself && !config_.separator.empty();
    source_ = document.source;
    last_loss_ = document.spans.empty() || document.spans.back().loss;
    return piece_(document);
  }

  const DataConfig& config_;
  const std::function<Status(const Document&)>& piece_;
  bool open_ = false;  ///< a separator belongs between the last document and another one
  std::size_t source_ = 0;
  bool last_loss_ = true;
};

std::uint64_t Measure(const Document& piece) {
  return piece.ids.empty() ? CountCodePoints(piece.text) : piece.ids.size();
}

// Every value with its length before it, so that no two corpora give the same bytes.
class Fingerprint {
 public:
  void Add(ByteView bytes) {
    Add(bytes.size());
    stream_.Update(bytes);
  }
  void Add(std::uint64_t number) { stream_.Update(std::as_bytes(std::span(&number, 1))); }
  void Add(const Document& piece) {
    Add(AsBytes(piece.text));
    Add(std::as_bytes(piece.ids));
    for (const Span& span : piece.spans) Add(2 * span.size + (span.loss ? 1 : 0));
    Add(2 * piece.source + (piece.begins ? 1 : 0));
  }
  void Add(const DataConfig& config) {
    Add(config.shard_tokens);
    Add(static_cast<std::uint64_t>(std::llround(config.val_fraction * 1e15)));
    for (const double weight : config.weights)
      Add(static_cast<std::uint64_t>(std::llround(weight * 1e6)));
  }
  Hash Finish() { return stream_.Finish(); }

 private:
  crypto::Sha256Stream stream_;
};

Status CollectCharacters(const Document& piece, std::vector<bool>& seen) {
  if (!piece.ids.empty()) {
    return MakeError(Code::kInvalid, fmt::format("'{}' holds tokens, not characters", piece.file),
                     "set data.tokenizer to the tokenizer.json that made them");
  }
  for (std::size_t i = 0; i < piece.text.size();) {
    const Utf8Step step = DecodeUtf8(piece.text, i);
    seen[step.code_point] = true;
    i += step.size;
  }
  return {};
}

Status CheckIds(const Document& piece, std::uint64_t before, std::uint32_t vocab) {
  for (std::size_t i = 0; i < piece.ids.size(); ++i) {
    if (static_cast<std::uint32_t>(piece.ids[i]) < vocab) continue;
    return MakeError(Code::kInvalid,
                     fmt::format("'{}': id {} at index {} is not below the vocabulary {}",
                                 piece.file, piece.ids[i], before + i, vocab),
                     "data.tokenizer must be the one that made the tokens");
  }
  return {};
}

/// Where the first n characters of valid UTF-8 end.
std::size_t OffsetOfCharacter(std::string_view text, std::uint64_t n) {
  std::size_t at = 0;
  for (; at < text.size(); ++at) {
    const bool starts = (static_cast<unsigned char>(text[at]) & 0xC0) != 0x80;
    if (starts && n-- == 0) break;
  }
  return at;
}

/// Text, or the ids themselves, that become one part.
struct Raw {
  EncodedPart part;
  std::string text;
  std::string file;  ///< for errors
  std::uint64_t line = 0;
};

/// Cuts pieces where the split or the fate changes, and numbers what comes out.
class Cutter {
 public:
  explicit Cutter(const FirstPass& first) : at_(first.characters.size()) {
    cuts_.reserve(first.characters.size());
    for (const std::uint64_t characters : first.characters) {
      cuts_.push_back(static_cast<std::uint64_t>(static_cast<double>(characters) *
                                                 (1.0 - first.config.val_fraction)));
    }
  }

  template <class Take>
  Status Cut(const Document& piece, const Take& take) {
    if (piece.source >= cuts_.size()) return Changed();
    std::uint64_t& at = at_[piece.source];
    const std::uint64_t cut = cuts_[piece.source];
    const std::uint64_t characters = Measure(piece);
    const std::uint64_t in_train = at >= cut ? 0 : std::min(characters, cut - at);
    at += characters;
    const auto give = [&](std::size_t first, std::size_t size, bool val, bool loss) -> Status {
      if (size == 0) return {};
      Raw raw{.part = {number_++, piece.source, val, loss, 0, {}},
              .text = {},
              .file = std::string(piece.file),
              .line = piece.line};
      if (piece.ids.empty()) {
        raw.text = piece.text.substr(first, size);
      } else {
        const auto ids = piece.ids.subspan(first, size);
        raw.part.ids.assign(ids.begin(), ids.end());
      }
      return take(std::move(raw));
    };
    const std::size_t size = piece.ids.empty() ? piece.text.size() : piece.ids.size();
    const std::size_t split = piece.ids.empty() ? OffsetOfCharacter(piece.text, in_train)
                                                : static_cast<std::size_t>(in_train);
    return ForFates(piece.spans, size, [&](std::size_t first, std::size_t n, bool loss) -> Status {
      const std::size_t middle = std::clamp(split, first, first + n);
      LOOM_RETURN_IF_ERROR(give(first, middle - first, false, loss));
      return give(middle, first + n - middle, true, loss);
    });
  }

  /// Whether what was cut is what the first pass saw.
  Status Check(const FirstPass& first) const {
    return at_ == first.characters ? Status() : Changed();
  }

 private:
  static Error Changed() {
    return MakeError(Code::kConflict, "the corpus changed while it was read", "run it again");
  }

  std::vector<std::uint64_t> cuts_, at_;
  std::uint64_t number_ = 0;
};

using Batch = std::vector<Raw>;

Result<std::vector<EncodedPart>> EncodeBatch(const Tokenizer& tokenizer, Batch batch) {
  std::vector<EncodedPart> out;
  out.reserve(batch.size());
  for (Raw& raw : batch) {
    if (!raw.text.empty()) {
      auto ids = tokenizer.Encode(raw.text);
      if (!ids) {
        return std::move(ids).error().Context(fmt::format("'{}' line {}", raw.file, raw.line));
      }
      raw.part.ids = *std::move(ids);
    }
    out.push_back(std::move(raw.part));
  }
  return out;
}

/// Batches on their way through some threads, and out of them in order.
class Pipeline {
 public:
  Pipeline(const Tokenizer& tokenizer, std::uint32_t threads,
           const std::function<Status(EncodedPart)>& sink)
      : tokenizer_(tokenizer), threads_(threads), sink_(sink) {}

  Status Add(Raw raw) {
    bytes_ += raw.text.size() + raw.part.ids.size() * sizeof(std::int32_t);
    batch_.push_back(std::move(raw));
    return bytes_ < kBatchBytes ? Status() : Start();
  }
  Status Finish() {
    LOOM_RETURN_IF_ERROR(Start());
    while (!running_.empty()) LOOM_RETURN_IF_ERROR(TakeFirst());
    return {};
  }

 private:
  Status Start() {
    while (running_.size() >= threads_) LOOM_RETURN_IF_ERROR(TakeFirst());
    running_.push_back(std::async(threads_ > 1 ? std::launch::async : std::launch::deferred,
                                  [this, batch = std::exchange(batch_, {})]() mutable {
                                    return EncodeBatch(tokenizer_, std::move(batch));
                                  }));
    bytes_ = 0;
    return {};
  }
  Status TakeFirst() {
    auto parts = running_.front().get();
    running_.pop_front();
    if (!parts) return std::move(parts).error();
    for (EncodedPart& part : *parts) LOOM_RETURN_IF_ERROR(sink_(std::move(part)));
    return {};
  }

  const Tokenizer& tokenizer_;
  std::size_t threads_;
  const std::function<Status(EncodedPart)>& sink_;
  Batch batch_;
  std::size_t bytes_ = 0;
  std::deque<std::future<Result<std::vector<EncodedPart>>>> running_;
};

ReadOptions Telling(const Progress& progress, std::string_view doing) {
  ReadOptions options;
  if (progress) {
    options.progress = [&progress, doing](std::uint64_t done, std::uint64_t total) {
      return progress(doing, done, total);
    };
  }
  return options;
}

}  // namespace

std::uint64_t FirstPass::total_characters() const {
  return std::accumulate(characters.begin(), characters.end(), std::uint64_t{0});
}

Result<std::unique_ptr<Tokenizer>> NamedTokenizer(const std::string& name) {
  if (name == "bytes") return Tokenizer::Bytes();
  if (!name.ends_with(".json")) {
    return MakeError(Code::kInvalid, fmt::format("data.tokenizer is '{}'", name),
                     "use \"bytes\", \"chars\" or the path of a tokenizer.json");
  }
  LOOM_ASSIGN(const std::string text, ReadFile(name, Tokenizer::kMaxJsonBytes));
  return Tokenizer::FromJson(AsBytes(text));
}

Result<FirstPass> RunFirstPass(const DataConfig& config, const Progress& progress) {
  LOOM_RETURN_IF_ERROR(CheckConfig(config));
  FirstPass pass;
  pass.config = config;
  const bool chars = config.tokenizer == "chars";
  if (!chars) {
    LOOM_ASSIGN(pass.tokenizer, NamedTokenizer(config.tokenizer));
    const auto chat = RecogniseChat(*pass.tokenizer);
    if (config.chat == "auto" && chat) pass.config.chat = ChatTemplateName(*chat);
  }
  pass.characters.resize(std::max<std::size_t>(1, config.weights.size()));
  Fingerprint content;
  std::vector<bool> seen(Tokenizer::kMaxVocab);
  std::uint64_t ids_before = 0;  // of a token file
  const auto look = [&](const Document& piece) -> Status {
    pass.characters[piece.source] += Measure(piece);
    content.Add(piece);
    if (chars) return CollectCharacters(piece, seen);
    if (piece.begins) ids_before = 0;
    LOOM_RETURN_IF_ERROR(CheckIds(piece, ids_before, pass.tokenizer->vocab_size()));
    ids_before += piece.ids.size();
    return {};
  };
  const std::function<Status(const Document&)> visit = look;
  ReadOptions options = Telling(progress, "reading");
  options.find_duplicates = true;
  LOOM_ASSIGN(pass.stats, Row(pass.config, visit).Read(options));
  if (chars) {
    std::vector<char32_t> characters;
    for (std::size_t c = 0; c < seen.size(); ++c) {
      if (seen[c]) characters.push_back(static_cast<char32_t>(c));
    }
    LOOM_ASSIGN(pass.tokenizer, Tokenizer::FromCharacters(characters));
  }
  content.Add(pass.config);
  content.Add(AsBytes(pass.tokenizer->ToJson()));
  pass.content = content.Finish();
  return pass;
}

Status EncodeCorpus(const FirstPass& first, const EncodeOptions& options,
                    const std::function<Status(EncodedPart)>& sink) {
  Cutter cutter(first);
  Pipeline pipeline(*first.tokenizer, std::max(1U, options.threads), sink);
  const std::function<Status(const Document&)> visit = [&](const Document& piece) {
    return cutter.Cut(piece, [&](Raw raw) -> Status {
      return raw.part.number < options.first_part ? Status() : pipeline.Add(std::move(raw));
    });
  };
  const auto done = Row(first.config, visit).Read(Telling(options.progress, "encoding"));
  if (!done) return Error(done.error());
  LOOM_RETURN_IF_ERROR(pipeline.Finish());
  return cutter.Check(first);
}

}  // namespace loom::data
