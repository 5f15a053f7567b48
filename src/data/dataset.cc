#include "data/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>
#include <optional>
#include <thread>

#include "base/file.h"
#include "base/json.h"
#include "crypto/hash.h"
#include "data/dataset_writer.h"

namespace loom::data {
namespace {

constexpr std::size_t kMaxManifestBytes = 64 << 20;
constexpr std::uint64_t kManifestSchema = 1;
constexpr std::string_view kManifestName = "dataset.json";
constexpr std::string_view kTokenizerName = "tokenizer.json";

std::uint32_t Threads(const BuildOptions& options) {
  return options.threads != 0 ? options.threads : std::max(1U, std::thread::hardware_concurrency());
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
  void Add(const EncodedPart& part) {
    Add(part.val, part.ids);
    if (!part.loss) no_loss += part.ids.size();
  }
  void Add(bool val, const Shard& shard) {
    std::array<std::int32_t, 4096> ids{};
    for (std::uint64_t at = 0; at < shard.size(); at += ids.size()) {
      const std::span part(ids.data(), std::min<std::uint64_t>(ids.size(), shard.size() - at));
      shard.Read(at, part);
      Add(val, part);
    }
    no_loss += shard.size() - shard.num_targets();
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
  std::uint64_t no_loss = 0;
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
  report.chat = first.config.chat;
  report.characters = first.total_characters();
  report.train_tokens = counter.train_tokens;
  report.val_tokens = counter.val_tokens;
  report.no_loss = counter.no_loss;
  report.doubled_begins = counter.doubled_begins;
  report.unigram_entropy = counter.Entropy();
  return report;
}

/// [{"shards", "share"}], one for each of data.paths.
json::Array MixJson(const std::vector<std::uint64_t>& shards,
                    const std::vector<std::uint32_t>& shares) {
  json::Array out;
  out.reserve(shares.size());
  for (std::size_t i = 0; i < shares.size(); ++i)
    out.emplace_back(json::Object{{"shards", shards[i]}, {"share", shares[i]}});
  return out;
}

Error BadManifest(const std::string& folder, std::string_view what) {
  return MakeError(Code::kCorrupt, fmt::format("'{}' {}", InFolder(folder, kManifestName), what),
                   "build the shards again from the corpus");
}

using Shards = std::vector<std::shared_ptr<const Shard>>;

Result<Shards> OpenSplit(const std::string& folder, std::string_view split,
                         const json::Value& manifest, std::uint32_t vocab) {
  const json::Value* files = manifest.Find(split);
  if (files == nullptr || files->AsArray() == nullptr) {
    return MakeError(Code::kCorrupt,
                     fmt::format("'{}' in '{}' has no list '{}'", kManifestName, folder, split));
  }
  Shards shards;
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
  return shards;
}

Result<std::vector<MixPart>> ReadMix(const std::string& folder, const json::Value& manifest,
                                     const Shards& train) {
  const json::Value* mix = manifest.Find("mix");
  if (mix == nullptr) return std::vector<MixPart>();
  if (mix->AsArray() == nullptr) return BadManifest(folder, "has a 'mix' that is no list");
  std::vector<MixPart> parts;
  parts.reserve(mix->AsArray()->size());
  std::uint64_t at = 0;  // shard
  std::uint64_t first = 0, shares = 0;
  for (const json::Value& entry : *mix->AsArray()) {
    const json::Value* shards = entry.Find("shards");
    const json::Value* share = entry.Find("share");
    if (shards == nullptr || shards->AsUnsigned() == nullptr || share == nullptr ||
        share->AsUnsigned() == nullptr || *shards->AsUnsigned() > train.size() - at ||
        *share->AsUnsigned() > kMixBlock) {
      return BadManifest(folder, "has a 'mix' that does not fit its shards");
    }
    MixPart part{first, 0, static_cast<std::uint32_t>(*share->AsUnsigned())};
    for (std::uint64_t i = 0; i < *shards->AsUnsigned(); ++i) part.tokens += train[at++]->size();
    first += part.tokens;
    shares += part.share;
    parts.push_back(part);
  }
  if (at != train.size() || shares != kMixBlock) {
    return BadManifest(folder, "has a 'mix' that does not fit its shards");
  }
  return parts;
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> MakeTokenizer(const DataConfig& config) {
  if (config.tokenizer != "chars") return NamedTokenizer(config.tokenizer);
  LOOM_ASSIGN(auto first, RunFirstPass(config));
  return std::move(first.tokenizer);
}

Result<DataReport> BuildDataset(const DataConfig& config, const std::string& folder,
                                const BuildOptions& options) {
  std::vector<std::uint32_t> shares;
  if (!config.weights.empty()) {
    LOOM_ASSIGN(shares, SharesOf(config.weights));
  }
  LOOM_ASSIGN(auto first, RunFirstPass(config, options.progress));
  Counter counter(*first.tokenizer);
  LOOM_ASSIGN(auto writer, DatasetWriter::Begin(folder, first, [&](bool val, const Shard& shard) {
                counter.Add(val, shard);
              }));
  const auto append = [&](EncodedPart part) -> Status {
    LOOM_RETURN_IF_ERROR(writer.DropKept(part));
    counter.Add(part);
    return writer.Append(part);
  };
  LOOM_RETURN_IF_ERROR(EncodeCorpus(first,
                                    {.first_part = writer.first_part(),
                                     .threads = Threads(options),
                                     .progress = options.progress},
                                    append));
  const std::string tokenizer_json = first.tokenizer->ToJson();
  LOOM_ASSIGN(DatasetWriter::Files files, writer.Finish());
  DataReport report = MakeReport(first, counter);
  if (report.no_loss == report.train_tokens + report.val_tokens) {
    return MakeError(Code::kInvalid, "no token of the corpus has a loss", "check data.loss");
  }
  LOOM_RETURN_IF_ERROR(WriteFileAtomic(InFolder(folder, kTokenizerName), AsBytes(tokenizer_json)));
  json::Object manifest{{"schema", kManifestSchema},
                        {"vocab", report.vocab_size},
                        {"tokenizer_sha256", crypto::Sha256(AsBytes(tokenizer_json)).Hex()}};
  if (!shares.empty()) manifest.emplace_back("mix", MixJson(files.shards_of_source, shares));
  manifest.emplace_back("train", FilesJson(files.train));
  manifest.emplace_back("val", FilesJson(files.val));
  const std::string text = json::Dump(std::move(manifest), 2) + "\n";
  LOOM_RETURN_IF_ERROR(WriteFileAtomic(InFolder(folder, kManifestName), AsBytes(text)));
  LOOM_RETURN_IF_ERROR(DatasetWriter::End(folder));
  report.train_files = std::move(files.train);
  report.val_files = std::move(files.val);
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
  LOOM_ASSIGN(Shards train, OpenSplit(folder, "train", *manifest, vocab));
  LOOM_ASSIGN(Shards val, OpenSplit(folder, "val", *manifest, vocab));
  LOOM_ASSIGN(dataset.mix, ReadMix(folder, *manifest, train));
  dataset.train = TokenStream(std::move(train));
  dataset.val = TokenStream(std::move(val));
  return dataset;
}

Result<Dataset> LoadDataset(const DataConfig& config, std::uint64_t max_tokens) {
  Dataset dataset;
  std::vector<std::uint32_t> shares;
  if (!config.weights.empty()) {
    LOOM_ASSIGN(shares, SharesOf(config.weights));
  }
  dataset.mix.reserve(shares.size());
  for (const std::uint32_t share : shares) dataset.mix.push_back({0, 0, share});
  LOOM_ASSIGN(auto first, RunFirstPass(config));
  std::vector<std::int32_t> train, val;
  std::vector<bool> train_loss, val_loss;
  LOOM_RETURN_IF_ERROR(EncodeCorpus(first, {}, [&](const EncodedPart& part) -> Status {
    if (train.size() + val.size() + part.ids.size() > max_tokens) {
      return MakeError(Code::kLimit, fmt::format("the corpus has more than {} tokens", max_tokens));
    }
    auto& split = part.val ? val : train;
    split.insert(split.end(), part.ids.begin(), part.ids.end());
    (part.val ? val_loss : train_loss).resize(split.size(), part.loss);
    if (!part.val && !dataset.mix.empty()) dataset.mix[part.source].tokens += part.ids.size();
    return {};
  }));
  std::uint64_t first_token = 0;
  for (MixPart& part : dataset.mix) {
    part.first = first_token;
    first_token += part.tokens;
  }
  dataset.tokenizer = std::move(first.tokenizer);
  dataset.train = TokenStream::FromTokens(std::move(train), train_loss);
  dataset.val = TokenStream::FromTokens(std::move(val), val_loss);
  return dataset;
}

namespace {

/// A window of tokens as text; those without a loss between ⟦ and ⟧.
std::string Marked(const Tokenizer& tokenizer, std::span<const std::int32_t> ids,
                   const std::vector<bool>& loss, std::size_t first) {
  std::string out;
  for (std::size_t at = 0; at < ids.size();) {
    std::size_t end = at + 1;
    while (end < ids.size() && loss[first + end] == loss[first + at]) ++end;
    const std::string text = tokenizer.Decode(ids.subspan(at, end - at));
    out += loss[first + at] ? text : "⟦" + text + "⟧";
    at = end;
  }
  return out;
}

}  // namespace

Result<DataReport> CheckData(const DataConfig& config, std::uint32_t context,
                             std::uint32_t num_samples, const BuildOptions& options) {
  DataConfig lenient = config;
  lenient.skip_bad = true;
  LOOM_ASSIGN(auto first, RunFirstPass(lenient, options.progress));
  Counter counter(*first.tokenizer);
  const std::size_t wanted = static_cast<std::size_t>(context) * num_samples + 1;
  std::vector<std::int32_t> head;
  std::vector<bool> loss;
  LOOM_RETURN_IF_ERROR(EncodeCorpus(
      first, {.threads = Threads(options), .progress = options.progress},
      [&](const EncodedPart& part) -> Status {
        counter.Add(part);
        if (!part.val && head.size() < wanted) {
          const auto ids =
              std::span(part.ids).first(std::min(part.ids.size(), wanted - head.size()));
          head.insert(head.end(), ids.begin(), ids.end());
          loss.resize(head.size(), part.loss);
        }
        return {};
      }));
  std::vector<std::string> samples;
  for (std::size_t at = 0; at + 1 < head.size(); at += context) {
    const std::size_t size = std::min<std::size_t>(context + std::size_t{1}, head.size() - at);
    samples.push_back(Marked(*first.tokenizer, std::span(head).subspan(at, size), loss, at));
  }
  DataReport report = MakeReport(first, counter);
  report.samples = std::move(samples);
  return report;
}

}  // namespace loom::data
