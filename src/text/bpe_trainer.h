// Learning a byte-level BPE from texts: of all pairs of neighbours the most frequent becomes a
// token, again and again (Sennrich et al. 2016, arXiv 1508.07909, section 3.2). Of pairs with equal
// counts the one of the smaller left id, then of the smaller right id, comes first; that is what
// Hugging Face's trainer does, so the merges are the same ones.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace loom::text {

struct BpeTrainOptions {
  std::uint32_t vocab_size = 1024;
  std::uint64_t min_frequency = 2;          ///< of a pair
  std::vector<std::string> special_tokens;  ///< the first ids, in this order
  std::string pattern;                      ///< to split by; empty = GPT-2's
  std::uint32_t threads = 1;  ///< for splitting and counting; the result does not depend on it
};

/// Gives every training text to `take`, and what kept it from reading on.
using TakeText = std::function<void(std::string)>;
using ReadTexts = std::function<Status(const TakeText& take)>;

/// A tokenizer.json, the same bytes for the same texts and options. A text is split by lines first,
/// each with its end. Errors: those of `read`, a vocabulary smaller than 256 bytes and the special
/// tokens, no text, invalid UTF-8.
Result<std::string> TrainBpe(const ReadTexts& read, const BpeTrainOptions& options);

}  // namespace loom::text
