// The passes over a corpus that building a data set takes: what it is (first), and its tokens in
// two splits (second). The corpus is one row of pieces, documents with separators between them; how
// a piece is cut and where the splits meet follows from text alone, so a build can begin anywhere.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/id.h"
#include "base/result.h"
#include "data/config.h"
#include "data/corpus.h"
#include "data/shards.h"
#include "data/tokenizer.h"

namespace loom::data {

/// How long it takes, told now and then; an error ends the work and is returned.
using Progress =
    std::function<Status(std::string_view doing, std::uint64_t done, std::uint64_t total)>;

struct FirstPass {
  CorpusStats stats;
  std::unique_ptr<Tokenizer> tokenizer;
  DataConfig config;  ///< with the chat template that was recognised
  /// Characters, of token files tokens, by source; separators are counted.
  std::vector<std::uint64_t> characters;
  /// SHA-256 of everything that the tokens follow from.
  Hash content;

  std::uint64_t total_characters() const;
};

/// The tokenizer that config.tokenizer names, if it is not "chars".
Result<std::unique_ptr<Tokenizer>> NamedTokenizer(const std::string& name);

/// Reads the whole corpus. Errors: those of ReadCorpus, settings out of range, an id of a token
/// file outside the vocabulary.
Result<FirstPass> RunFirstPass(const DataConfig& config, const Progress& progress = {});

/// Tokens of one part of the row that has one split and one fate.
struct EncodedPart {
  std::uint64_t number = 0;  ///< in the row, from 0
  std::size_t source = 0;
  bool val = false;
  bool loss = true;
  std::uint64_t before = 0;  ///< tokens of the part that stand before ids and were left out
  std::vector<std::int32_t> ids;
};

struct EncodeOptions {
  std::uint64_t first_part = 0;  ///< those before it are passed over
  std::uint32_t threads = 1;     ///< the result does not depend on it
  Progress progress = {};
};

/// Calls sink with every part in order. Errors: text that the tokenizer cannot spell, with its
/// place; kConflict when the corpus is no longer that of the first pass.
Status EncodeCorpus(const FirstPass& first, const EncodeOptions& options,
                    const std::function<Status(EncodedPart)>& sink);

}  // namespace loom::data
