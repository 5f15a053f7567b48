// From corpus to training data: tokenizer, train and validation shards in one folder
// (tokenizer.json, train-*.tokens, val-*.tokens, and dataset.json, the manifest with their hashes,
// written last), and the report of `loom data check`.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "data/config.h"
#include "data/corpus.h"
#include "data/corpus_pass.h"
#include "data/sampler.h"
#include "data/shards.h"
#include "data/tokenizer.h"

namespace loom::data {

/// What was built, or what would be (CheckData). Counts of characters and tokens include the
/// separators between documents.
struct DataReport {
  CorpusStats corpus;
  TokenizerKind tokenizer = TokenizerKind::kBytes;
  std::uint32_t vocab_size = 0;
  std::string chat;  ///< the template of messages; "auto" when none was named or recognised
  std::uint64_t characters = 0;
  std::uint64_t train_tokens = 0;
  std::uint64_t val_tokens = 0;
  std::uint64_t no_loss = 0;         ///< tokens of both that are no targets
  std::uint64_t doubled_begins = 0;  ///< begin-of-text tokens right behind another one
  double unigram_entropy = 0;        ///< of the whole corpus, nats a token
  /// First training windows, decoded; tokens without a loss stand between ⟦ and ⟧ (CheckData only).
  std::vector<std::string> samples;
  std::vector<ShardFile> train_files, val_files;  ///< BuildDataset only

  /// What is odd about the corpus, a line; empty when nothing is.
  std::string Complaints() const;
  std::string ToText() const;
  std::string ToJson() const;  ///< one object, one line
};

struct Dataset {
  std::unique_ptr<Tokenizer> tokenizer;
  TokenStream train;
  TokenStream val;
  std::vector<MixPart> mix;  ///< of train; empty without weights
};

/// The tokenizer that config.tokenizer names; `chars` reads the corpus for its characters.
Result<std::unique_ptr<Tokenizer>> MakeTokenizer(const DataConfig& config);

struct BuildOptions {
  std::uint32_t threads = 0;  ///< 0 = as many as processors
  Progress progress = {};
};

/// Reads the corpus (twice, a piece at a time), cuts it at the character
/// floor(characters * (1 - val_fraction)), and writes the folder. Same corpus, same files. A build
/// that was killed goes on where its last whole shard ends, if the corpus is the same.
Result<DataReport> BuildDataset(const DataConfig& config, const std::string& folder,
                                const BuildOptions& options = {});

/// Opens a folder that BuildDataset wrote; every file is checked against the manifest.
Result<Dataset> OpenDataset(const std::string& folder);

/// The same data in memory, for small corpora (at most max_tokens) and tests.
Result<Dataset> LoadDataset(const DataConfig& config, std::uint64_t max_tokens = 1ULL << 30);

/// `loom data check`: reads everything, skips and lists bad lines whatever skip_bad says, and
/// decodes the first num_samples windows of context + 1 tokens.
Result<DataReport> CheckData(const DataConfig& config, std::uint32_t context,
                             std::uint32_t num_samples = 3, const BuildOptions& options = {});

}  // namespace loom::data
