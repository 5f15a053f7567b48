// The merges of BPE from counted words: the loop of the trainer, on symbols alone.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "text/word_counts.h"

namespace loom::text {

using SymbolPair = std::pair<std::int32_t, std::int32_t>;

struct LearnOptions {
  std::uint64_t min_frequency = 0;
  /// Whether one more token is wanted.
  std::function<bool()> wants_more;
  /// The id of the token that a pair makes: a new one, or one that is spelled so already.
  std::function<std::int32_t(SymbolPair)> id_of;
};

/// `symbol_of[b]` is the first symbol of byte b. Merges in the order in which they were learnt.
std::vector<SymbolPair> LearnMerges(const WordCounts& words, const std::int32_t (&symbol_of)[256],
                                    const LearnOptions& options);

}  // namespace loom::text
