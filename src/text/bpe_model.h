// Byte-pair encoding of one piece: its bytes become symbols, and of all neighbours that the merges
// name the pair of lowest rank, leftmost first, becomes one symbol, until none is left (Sennrich et
// al. 2016, arXiv 1508.07909; on bytes as in GPT-2).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "text/vocab.h"

namespace loom::text {

/// Bytes that the vocabulary has no symbol for and that were left out.
struct Lost {
  std::uint64_t bytes = 0;
  unsigned char first = 0;  ///< the first of them
};

/// Immutable and safe to share between threads.
class BpeModel {
 public:
  static constexpr std::size_t kMaxVocab = 1 << 21;
  static constexpr std::size_t kMaxMerges = 1 << 22;

  struct Options {
    bool ignore_merges = false;  ///< a piece that is a token is that token, whatever the merges say
    std::int32_t unk = Vocab::kNone;  ///< instead of a byte without a symbol
    bool fuse_unk = false;            ///< one for a run of them
  };

  /// merges[r] has rank r. Error, naming the rank: a merge of ids that are no tokens, or whose
  /// bytes together are none.
  static Result<BpeModel> Make(Vocab vocab,
                               std::vector<std::pair<std::int32_t, std::int32_t>> merges,
                               Options options);
  /// From the value of `model` with type BPE.
  static Result<BpeModel> FromJson(const json::Value& model);

  /// Appends the ids of a piece.
  void Encode(std::string_view piece, std::vector<std::int32_t>& ids, Lost& lost) const;

  const Vocab& vocab() const { return vocab_; }
  const Options& options() const { return options_; }
  std::span<const std::pair<std::int32_t, std::int32_t>> merges() const { return merges_; }

 private:
  struct Slot {
    std::uint64_t pair = kEmpty;
    std::uint32_t rank = 0;
    std::int32_t id = Vocab::kNone;
  };
  static constexpr std::uint64_t kEmpty = ~0ULL;
  static constexpr std::uint32_t kNoRank = ~0U;

  const Slot* FindMerge(std::int32_t left, std::int32_t right) const;
  void Merge(std::string_view piece, std::vector<std::int32_t>& ids, Lost& lost) const;
  void MergeShort(std::vector<std::int32_t>& symbols) const;
  void MergeLong(std::vector<std::int32_t>& symbols) const;

  Vocab vocab_;
  std::vector<std::pair<std::int32_t, std::int32_t>> merges_;
  Options options_;
  std::vector<Slot> table_;
  std::int32_t bytes_[256];  ///< the symbol of each byte
  std::vector<bool> whole_;  ///< tokens that a piece of their bytes is encoded as
};

}  // namespace loom::text
