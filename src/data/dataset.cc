#include "data/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <set>

#include "base/file.h"
#include "base/json.h"
#include "base/utf8.h"
#include "crypto/hash.h"

namespace loom::data {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kMaxManifestBytes = 64 << 20;
constexpr std::uint64_t kManifestSchema = 1;
constexpr std::string_view kManifestName = "dataset.json";
constexpr std::string_view kTokenizerName = "tokenizer.json";

std::string InFolder(const std::string& folder, std::string_view name) {
  return (fs::path(folder) / name).string();
}

std::string ShardName(std::string_view split, std::size_t index) {
  return fmt::format("{}-{:05}.tokens", split, index);
}

Status CheckConfig(const DataConfig& config) {
  if (!(config.val_fraction >= 0.0 && config.val_fraction <= 0.5)) {
    return MakeError(Code::kInvalid, fmt::format("data.val_fraction is {}, must be in [0, 0.5]",
                                                 config.val_fraction));
  }
  if (FindInvalidUtf8(config.separator) != std::string::npos) {
    return MakeError(Code::kInvalid, "data.separator is not valid UTF-8");
  }
  return {};
}

// The corpus as one text: documents with the separator between them.
Result<CorpusStats> ReadJoined(const DataConfig& config,
                               const std::function<Status(const Document&)>& piece,
                               const ReadOptions& options = {}) {
  bool first = true;
  return ReadCorpus(
      config,
      [&](const Document& document) -> Status {
        if (!first && document.begins && !config.separator.empty()) {
          LOOM_RETURN_IF_ERROR(piece({config.separator, document.file, document.line}));
        }
        first = false;
        return piece(document);
      },
      options);
}

// What the first pass over a corpus learns.
struct FirstPass {
  CorpusStats stats;
  std::uint64_t characters = 0;
  std::unique_ptr<Tokenizer> tokenizer;
};

void CollectCharacters(std::string_view text, std::vector<bool>& seen) {
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Step step = DecodeUtf8(text, i);
    seen[step.code_point] = true;
    i += step.size;
  }
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

Result<FirstPass> RunFirstPass(const DataConfig& config) {
  LOOM_RETURN_IF_ERROR(CheckConfig(config));
  FirstPass pass;
  const bool chars = config.tokenizer == "chars";
  if (!chars) {
    LOOM_ASSIGN(pass.tokenizer, NamedTokenizer(config.tokenizer));
  }
  std::vector<bool> seen(Tokenizer::kMaxVocab);
  LOOM_ASSIGN(pass.stats, ReadJoined(config,
                                     [&](const Document& piece) -> Status {
                                       pass.characters += CountCodePoints(piece.text);
                                       if (chars) CollectCharacters(piece.text, seen);
                                       return {};
                                     },
                                     {.find_duplicates = true}));
  if (chars) {
    std::vector<char32_t> characters;
    for (std::size_t c = 0; c < seen.size(); ++c) {
      if (seen[c]) characters.push_back(static_cast<char32_t>(c));
    }
    LOOM_ASSIGN(pass.tokenizer, Tokenizer::FromCharacters(characters));
  }
  return pass;
}

using TokenSink = std::function<Status(bool val, std::span<const std::int32_t>)>;

/// Where the first n characters of valid UTF-8 end.
std::size_t OffsetOfCharacter(std::string_view text, std::uint64_t n) {
  std::size_t at = 0;
  for (; at < text.size(); ++at) {
    const bool starts = (static_cast<unsigned char>(text[at]) & 0xC0) != 0x80;
    if (starts && n-- == 0) break;
  }
  return at;
}

Status EncodeInto(const Tokenizer& tokenizer, std::string_view text, const Document& piece,
                  bool val, const TokenSink& sink) {
  if (text.empty()) return {};
  auto ids = tokenizer.Encode(text);
  if (!ids) {
    return std::move(ids).error().Context(fmt::format("'{}' line {}", piece.file, piece.line));
  }
  return sink(val, *ids);
}

/// The second pass: encodes the corpus piece by piece into its two splits.
Status EncodeCorpus(const DataConfig& config, const FirstPass& first, const TokenSink& sink) {
  const auto cut = static_cast<std::uint64_t>(static_cast<double>(first.characters) *
                                              (1.0 - config.val_fraction));
  std::uint64_t at = 0;
  auto done = ReadJoined(config, [&](const Document& piece) -> Status {
    const std::uint64_t characters = CountCodePoints(piece.text);
    const std::uint64_t in_train = at >= cut ? 0 : std::min(characters, cut - at);
    const std::size_t split = OffsetOfCharacter(piece.text, in_train);
    at += characters;
    LOOM_RETURN_IF_ERROR(
        EncodeInto(*first.tokenizer, piece.text.substr(0, split), piece, false, sink));
    return EncodeInto(*first.tokenizer, piece.text.substr(split), piece, true, sink);
  });
  if (!done) return std::move(done).error();
  if (at != first.characters) {
    return MakeError(Code::kConflict, "the corpus changed while it was read", "run it again");
  }
  return {};
}

// Counts what a sink sees.
class Counter {
 public:
  explicit Counter(const Tokenizer& tokenizer)
      : begin_(tokenizer.BeginId().value_or(-1)), counts_(tokenizer.vocab_size()) {}
  void Add(bool val, std::span<const std::int32_t> ids) {
    (val ? val_tokens : train_tokens) += ids.size();
    for (const std::int32_t id : ids) {
      ++counts_[static_cast<std::size_t>(id)];
      doubled_begins += id == begin_ && last_ == begin_ ? 1 : 0;
      last_ = id;
    }
  }
  double Entropy() const {
    const double total = static_cast<double>(train_tokens + val_tokens);
    double sum = 0;
    for (const std::uint64_t count : counts_) {
      if (count == 0) continue;
      const double p = static_cast<double>(count) / total;
      sum -= p * std::log(p);
    }
    return sum;
  }
  std::uint64_t train_tokens = 0;
  std::uint64_t val_tokens = 0;
  std::uint64_t doubled_begins = 0;

 private:
  std::int32_t begin_;
  std::int32_t last_ = -2;  // no id, and not the begin_ of a tokenizer without one
  std::vector<std::uint64_t> counts_;
};

DataReport MakeReport(FirstPass& first, const Counter& counter) {
  DataReport report;
  report.corpus = std::move(first.stats);
  report.tokenizer = first.tokenizer->kind();
  report.vocab_size = first.tokenizer->vocab_size();
  report.characters = first.characters;
  report.train_tokens = counter.train_tokens;
  report.val_tokens = counter.val_tokens;
  report.doubled_begins = counter.doubled_begins;
  report.unigram_entropy = counter.Entropy();
  return report;
}

json::Array FilesJson(const std::vector<ShardFile>& files) {
  json::Array out;
  for (const ShardFile& file : files) {
    out.emplace_back(json::Object{{"name", file.name},
                                  {"tokens", file.tokens},
                                  {"bytes", file.bytes},
                                  {"sha256", file.hash.Hex()}});
  }
  return out;
}

Status PrepareFolder(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    return MakeError(Code::kIo, fmt::format("cannot create '{}': {}", folder, error.message()));
  }
  // Without a manifest the folder is no data set; then the shards of an older one may go.
  fs::remove(InFolder(folder, kManifestName), error);
  for (const std::string_view split : {"train", "val"}) {
    for (std::size_t i = 0; fs::remove(InFolder(folder, ShardName(split, i)), error); ++i) {
    }
  }
  return SyncFolder(folder);
}

Result<TokenStream> OpenSplit(const std::string& folder, std::string_view split,
                              const json::Value& manifest, std::uint32_t vocab) {
  const json::Value* files = manifest.Find(split);
  if (files == nullptr || files->AsArray() == nullptr) {
    return MakeError(Code::kCorrupt,
                     fmt::format("'{}' in '{}' has no list '{}'", kManifestName, folder, split));
  }
  std::vector<std::shared_ptr<const Shard>> shards;
  for (std::size_t i = 0; i < files->AsArray()->size(); ++i) {
    const std::string path = InFolder(folder, ShardName(split, i));
    const json::Value* hex = (*files->AsArray())[i].Find("sha256");
    LOOM_ASSIGN(const auto map, MappedFile::Open(path));
    if (hex == nullptr || hex->AsString() == nullptr ||
        crypto::Sha256(map.bytes()).Hex() != *hex->AsString()) {
      return MakeError(Code::kCorrupt,
                       fmt::format("'{}' does not match the hash in {}", path, kManifestName),
                       "build the shards again from the corpus");
    }
    LOOM_ASSIGN(auto shard, Shard::Open(path, vocab));
    shards.push_back(std::move(shard));
  }
  return TokenStream(std::move(shards));
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> MakeTokenizer(const DataConfig& config) {
  if (config.tokenizer != "chars") return NamedTokenizer(config.tokenizer);
  LOOM_ASSIGN(auto first, RunFirstPass(config));
  return std::move(first.tokenizer);
}

Result<DataReport> BuildDataset(const DataConfig& config, const std::string& folder) {
  LOOM_ASSIGN(auto first, RunFirstPass(config));
  LOOM_RETURN_IF_ERROR(PrepareFolder(folder));
  const std::uint32_t vocab = first.tokenizer->vocab_size();
  ShardWriter train(folder, "train", vocab, config.shard_tokens);
  ShardWriter val(folder, "val", vocab, config.shard_tokens);
  Counter counter(*first.tokenizer);
  LOOM_RETURN_IF_ERROR(
      EncodeCorpus(config, first, [&](bool to_val, std::span<const std::int32_t> ids) {
        counter.Add(to_val, ids);
        return (to_val ? val : train).Append(ids);
      }));
  const std::string tokenizer_json = first.tokenizer->ToJson();
  DataReport report = MakeReport(first, counter);
  LOOM_ASSIGN(report.train_files, train.Finish());
  LOOM_ASSIGN(report.val_files, val.Finish());
  LOOM_RETURN_IF_ERROR(WriteFileAtomic(InFolder(folder, kTokenizerName), AsBytes(tokenizer_json)));
  const std::string manifest =
      json::Dump(json::Object{{"schema", kManifestSchema},
                              {"vocab", vocab},
                              {"tokenizer_sha256", crypto::Sha256(AsBytes(tokenizer_json)).Hex()},
                              {"train", FilesJson(report.train_files)},
                              {"val", FilesJson(report.val_files)}},
                 2) +
      "\n";
  LOOM_RETURN_IF_ERROR(WriteFileAtomic(InFolder(folder, kManifestName), AsBytes(manifest)));
  return report;
}

Result<Dataset> OpenDataset(const std::string& folder) {
  LOOM_ASSIGN(const std::string text, ReadFile(InFolder(folder, kManifestName), kMaxManifestBytes));
  auto manifest = json::Parse(text);
  if (!manifest) return std::move(manifest).error().Context(InFolder(folder, kManifestName));
  const json::Value* schema = manifest->Find("schema");
  if (schema == nullptr || schema->AsUnsigned() == nullptr ||
      *schema->AsUnsigned() != kManifestSchema) {
    return MakeError(Code::kCorrupt, fmt::format("'{}' is not of schema {}",
                                                 InFolder(folder, kManifestName), kManifestSchema));
  }
  LOOM_ASSIGN(const std::string tokenizer_json,
              ReadFile(InFolder(folder, kTokenizerName), Tokenizer::kMaxJsonBytes));
  const json::Value* hex = manifest->Find("tokenizer_sha256");
  if (hex == nullptr || hex->AsString() == nullptr ||
      crypto::Sha256(AsBytes(tokenizer_json)).Hex() != *hex->AsString()) {
    return MakeError(Code::kCorrupt, fmt::format("'{}' does not match the hash in {}",
                                                 InFolder(folder, kTokenizerName), kManifestName));
  }
  Dataset dataset;
  LOOM_ASSIGN(dataset.tokenizer, Tokenizer::FromJson(AsBytes(tokenizer_json)));
  const std::uint32_t vocab = dataset.tokenizer->vocab_size();
  LOOM_ASSIGN(dataset.train, OpenSplit(folder, "train", *manifest, vocab));
  LOOM_ASSIGN(dataset.val, OpenSplit(folder, "val", *manifest, vocab));
  return dataset;
}

Result<Dataset> LoadDataset(const DataConfig& config, std::uint64_t max_tokens) {
  LOOM_ASSIGN(auto first, RunFirstPass(config));
  std::vector<std::int32_t> train, val;
  LOOM_RETURN_IF_ERROR(
      EncodeCorpus(config, first, [&](bool to_val, std::span<const std::int32_t> ids) -> Status {
        if (train.size() + val.size() + ids.size() > max_tokens) {
          return MakeError(Code::kLimit,
                           fmt::format("the corpus has more than {} tokens", max_tokens));
        }
        auto& split = to_val ? val : train;
        split.insert(split.end(), ids.begin(), ids.end());
        return {};
      }));
  Dataset dataset;
  dataset.tokenizer = std::move(first.tokenizer);
  dataset.train = TokenStream::FromTokens(std::move(train));
  dataset.val = TokenStream::FromTokens(std::move(val));
  return dataset;
}

Result<DataReport> CheckData(const DataConfig& config, std::uint32_t context,
                             std::uint32_t num_samples) {
  DataConfig lenient = config;
  lenient.skip_bad = true;
  LOOM_ASSIGN(auto first, RunFirstPass(lenient));
  Counter counter(*first.tokenizer);
  const std::size_t wanted = static_cast<std::size_t>(context) * num_samples + 1;
  std::vector<std::int32_t> head;
  LOOM_RETURN_IF_ERROR(
      EncodeCorpus(lenient, first, [&](bool to_val, std::span<const std::int32_t> ids) -> Status {
        counter.Add(to_val, ids);
        if (!to_val && head.size() < wanted) {
          const auto part = ids.first(std::min(ids.size(), wanted - head.size()));
          head.insert(head.end(), part.begin(), part.end());
        }
        return {};
      }));
  std::vector<std::string> samples;
  for (std::size_t at = 0; at + 1 < head.size(); at += context) {
    const std::size_t size = std::min<std::size_t>(context + std::size_t{1}, head.size() - at);
    samples.push_back(first.tokenizer->Decode(std::span(head).subspan(at, size)));
  }
  DataReport report = MakeReport(first, counter);
  report.samples = std::move(samples);
  return report;
}

std::string DataReport::Complaints() const {
  std::string out = corpus.Complaints();
  if (doubled_begins > 0) {
    out += fmt::format("{}{} begin-of-text tokens right behind another one",
                       out.empty() ? "" : ", ", doubled_begins);
  }
  return out;
}

std::string DataReport::ToText() const {
  std::string out = fmt::format("files      {}\ndocuments  {}\nbytes      {}\ncharacters {}\n",
                                corpus.files.size(), corpus.documents, corpus.bytes, characters);
  out += fmt::format("tokenizer  {}, vocabulary {}\ntokens     {} train, {} validation\n",
                     TokenizerKindName(tokenizer), vocab_size, train_tokens, val_tokens);
  out += fmt::format("unigram entropy {:.4f} nats a token\n", unigram_entropy);
  out += fmt::format(
      "duplicates {}{}\ndoubled begin-of-text {}\nbad lines  {}\n", corpus.duplicates,
      corpus.duplicates == 0 ? "" : fmt::format(" (the first: {})", corpus.first_duplicate),
      doubled_begins, corpus.bad_count);
  for (std::size_t i = 0; i < kNumFaults; ++i) {
    if (corpus.faults[i] == 0) continue;
    out += fmt::format("  {} of them {}\n", corpus.faults[i], FaultName(static_cast<Fault>(i)));
  }
  out += corpus.BadLinesText();
  for (std::size_t i = 0; i < samples.size(); ++i) {
    out += fmt::format("--- sample {} ---\n{}\n", i, ReplaceInvalidUtf8(samples[i]));
  }
  return out;
}

std::string DataReport::ToJson() const {
  json::Array bad, decoded, files;
  for (const BadLine& line : corpus.bad_lines) {
    bad.emplace_back(
        json::Object{{"file", line.file}, {"line", line.line}, {"reason", line.reason}});
  }
  for (const std::string& sample : samples) decoded.emplace_back(sample);
  for (const std::string& file : corpus.files) files.emplace_back(file);
  return json::Dump(json::Object{{"files", std::move(files)},
                                 {"documents", corpus.documents},
                                 {"bytes", corpus.bytes},
                                 {"characters", characters},
                                 {"tokenizer", TokenizerKindName(tokenizer)},
                                 {"vocab", vocab_size},
                                 {"train_tokens", train_tokens},
                                 {"val_tokens", val_tokens},
                                 {"unigram_entropy", unigram_entropy},
                                 {"duplicates", corpus.duplicates},
                                 {"doubled_begins", doubled_begins},
                                 {"bad_count", corpus.bad_count},
                                 {"empty", corpus.faults[0]},
                                 {"over_long", corpus.faults[1]},
                                 {"not_utf8", corpus.faults[2]},
                                 {"malformed", corpus.faults[3]},
                                 {"bad_lines", std::move(bad)},
                                 {"samples", std::move(decoded)}});
}

}  // namespace loom::data
