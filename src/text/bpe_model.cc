#include "text/bpe_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <queue>
#include <tuple>

#include "text/byte_symbols.h"
#include "text/json_parts.h"

namespace loom::text {
namespace {

/// Up to here looking at all pairs for each merge is faster than a heap.
constexpr std::size_t kShort = 32;

std::uint64_t PairOf(std::int32_t left, std::int32_t right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

std::size_t HashOf(std::uint64_t pair) {
  pair *= 0x9E3779B97F4A7C15ULL;
  return static_cast<std::size_t>(pair ^ (pair >> 32));
}

/// The two tokens of a merge: ["a", "b"] or "a b".
Result<std::pair<std::string_view, std::string_view>> SidesOf(const json::Value& merge,
                                                              std::size_t rank) {
  if (const json::Array* both = merge.AsArray()) {
    if (both->size() == 2 && (*both)[0].AsString() != nullptr && (*both)[1].AsString() != nullptr) {
      return std::pair<std::string_view, std::string_view>(*(*both)[0].AsString(),
                                                           *(*both)[1].AsString());
    }
  } else if (const std::string* text = merge.AsString()) {
    const std::size_t space = text->find(' ');
    if (space != std::string::npos && text->find(' ', space + 1) == std::string::npos) {
      const std::string_view view = *text;
      return std::pair(view.substr(0, space), view.substr(space + 1));
    }
  }
  return Refuse(fmt::format("merge {} is not a pair of tokens", rank));
}

/// Tokens that are no spelled bytes (special ones, mostly) stand for themselves.
std::string BytesOfToken(std::string_view token) {
  auto bytes = FromByteSymbols(token);
  return bytes ? std::move(*bytes) : std::string(token);
}

}  // namespace

Result<BpeModel> BpeModel::Make(Vocab vocab,
                                std::vector<std::pair<std::int32_t, std::int32_t>> merges,
                                Options options) {
  BpeModel model;
  model.vocab_ = std::move(vocab);
  model.merges_ = std::move(merges);
  model.options_ = options;
  for (std::size_t b = 0; b < 256; ++b) {
    const char byte = static_cast<char>(b);
    model.bytes_[b] = model.vocab_.Find({&byte, 1});
  }
  std::size_t size = 64;
  while (size < 2 * model.merges_.size()) size *= 2;
  model.table_.resize(size);
  std::string together;
  for (std::size_t rank = 0; rank < model.merges_.size(); ++rank) {
    const auto [left, right] = model.merges_[rank];
    together.assign(model.vocab_.BytesOf(left));
    together += model.vocab_.BytesOf(right);
    const std::int32_t id = model.vocab_.Find(together);
    if (!model.vocab_.Has(left) || !model.vocab_.Has(right) || id == Vocab::kNone) {
      return Refuse(fmt::format("merge {} of tokens {} and {} makes no token of the vocab", rank,
                                left, right));
    }
    std::size_t at = HashOf(PairOf(left, right)) & (size - 1);
    while (model.table_[at].pair != kEmpty && model.table_[at].pair != PairOf(left, right))
      at = (at + 1) & (size - 1);
    // Of a merge that is listed twice the last rank holds, as in Hugging Face's library.
    model.table_[at] = {PairOf(left, right), static_cast<std::uint32_t>(rank), id};
  }
  model.whole_.resize(model.vocab_.size());
  std::vector<std::int32_t> ids;
  for (std::uint32_t id = 0; id < model.vocab_.size(); ++id) {
    const auto token = static_cast<std::int32_t>(id);
    if (!model.vocab_.Has(token)) continue;
    if (!options.ignore_merges) {
      Lost lost;
      ids.clear();
      model.Merge(model.vocab_.BytesOf(token), ids, lost);
      if (lost.bytes != 0 || ids.size() != 1 || ids[0] != token) continue;
    }
    model.whole_[id] = true;
  }
  return model;
}

Result<BpeModel> BpeModel::FromJson(const json::Value& value) {
  LOOM_RETURN_IF_ERROR(
      CheckKeys(value, "model",
                {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                 "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"}));
  if (!IsNullOrMissing(value.Find("dropout"))) return Refuse("model: dropout must be null");
  for (const std::string_view key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!StringOf(value, key).empty()) return Refuse(fmt::format("model: '{}' must be empty", key));
  }
  LOOM_ASSIGN(const bool fallback, BoolOf(value, "byte_fallback", false));
  if (fallback) return Refuse("model: byte_fallback is of sentencepiece models");
  Options options;
  LOOM_ASSIGN(options.ignore_merges, BoolOf(value, "ignore_merges", false));
  LOOM_ASSIGN(options.fuse_unk, BoolOf(value, "fuse_unk", false));

  const json::Value* tokens = value.Find("vocab");
  if (tokens == nullptr || tokens->AsObject() == nullptr || tokens->AsObject()->empty()) {
    return Refuse("the model has no vocab");
  }
  Vocab vocab;
  for (const auto& [token, id] : *tokens->AsObject()) {
    const std::uint64_t* number = id.AsUnsigned();
    if (number == nullptr || *number >= kMaxVocab) {
      return Refuse(fmt::format("the id of token '{}' is no number below {}", token.substr(0, 40),
                                kMaxVocab));
    }
    const std::string bytes = BytesOfToken(token);
    if (!vocab.Add(bytes, static_cast<std::int32_t>(*number))) {
      return Refuse(fmt::format("token '{}' or its id {} is in the vocab twice, or it is empty",
                                token.substr(0, 40), *number));
    }
  }
  const std::string unk = StringOf(value, "unk_token");
  if (!unk.empty()) options.unk = vocab.Find(BytesOfToken(unk));

  const json::Value* merges = value.Find("merges");
  if (merges == nullptr || merges->AsArray() == nullptr) return Refuse("the model has no merges");
  if (merges->AsArray()->size() > kMaxMerges) {
    return Refuse(fmt::format("{} merges, allowed are {}", merges->AsArray()->size(), kMaxMerges));
  }
  std::vector<std::pair<std::int32_t, std::int32_t>> ranks;
  ranks.reserve(merges->AsArray()->size());
  for (const json::Value& merge : *merges->AsArray()) {
    LOOM_ASSIGN(const auto sides, SidesOf(merge, ranks.size()));
    const std::int32_t left = vocab.Find(BytesOfToken(sides.first));
    const std::int32_t right = vocab.Find(BytesOfToken(sides.second));
    if (left == Vocab::kNone || right == Vocab::kNone) {
      return Refuse(fmt::format("merge {}: '{}' is not in the vocab", ranks.size(),
                                (left == Vocab::kNone ? sides.first : sides.second).substr(0, 40)));
    }
    ranks.emplace_back(left, right);
  }
  return Make(std::move(vocab), std::move(ranks), options);
}

const BpeModel::Slot* BpeModel::FindMerge(std::int32_t left, std::int32_t right) const {
  const std::uint64_t pair = PairOf(left, right);
  for (std::size_t at = HashOf(pair) & (table_.size() - 1);; at = (at + 1) & (table_.size() - 1)) {
    if (table_[at].pair == pair) return &table_[at];
    if (table_[at].pair == kEmpty) return nullptr;
  }
}

void BpeModel::Encode(std::string_view piece, std::vector<std::int32_t>& ids, Lost& lost) const {
  const std::int32_t token = vocab_.Find(piece);
  if (token != Vocab::kNone && whole_[static_cast<std::size_t>(token)]) {
    ids.push_back(token);
    return;
  }
  Merge(piece, ids, lost);
}

void BpeModel::Merge(std::string_view piece, std::vector<std::int32_t>& ids, Lost& lost) const {
  thread_local std::vector<std::int32_t> symbols;
  symbols.clear();
  bool last_unknown = false;
  for (const char c : piece) {
    const std::int32_t symbol = bytes_[static_cast<unsigned char>(c)];
    if (symbol != Vocab::kNone) {
      symbols.push_back(symbol);
      last_unknown = false;
      continue;
    }
    if (lost.bytes++ == 0) lost.first = static_cast<unsigned char>(c);
    if (options_.unk == Vocab::kNone || (last_unknown && options_.fuse_unk)) continue;
    symbols.push_back(options_.unk);
    last_unknown = true;
  }
  if (symbols.size() <= kShort) {
    MergeShort(symbols);
  } else {
    MergeLong(symbols);
  }
  ids.insert(ids.end(), symbols.begin(), symbols.end());
}

void BpeModel::MergeShort(std::vector<std::int32_t>& symbols) const {
  std::size_t size = symbols.size();
  if (size < 2) return;
  const Slot* found[kShort];  // found[i]: the merge of symbols i and i + 1
  for (std::size_t i = 0; i + 1 < size; ++i) found[i] = FindMerge(symbols[i], symbols[i + 1]);
  while (size > 1) {
    std::uint32_t best = kNoRank;
    std::size_t where = 0;
    for (std::size_t i = 0; i + 1 < size; ++i) {
      if (found[i] != nullptr && found[i]->rank < best) {
        best = found[i]->rank;
        where = i;
      }
    }
    if (best == kNoRank) break;
    symbols[where] = found[where]->id;
    for (std::size_t i = where + 1; i + 1 < size; ++i) {
      symbols[i] = symbols[i + 1];
      found[i] = i + 2 < size ? found[i + 1] : nullptr;
    }
    --size;
    if (where > 0) found[where - 1] = FindMerge(symbols[where - 1], symbols[where]);
    found[where] = where + 1 < size ? FindMerge(symbols[where], symbols[where + 1]) : nullptr;
  }
  symbols.resize(size);
}

void BpeModel::MergeLong(std::vector<std::int32_t>& symbols) const {
  constexpr std::uint32_t kEnd = ~0U;
  const auto size = static_cast<std::uint32_t>(symbols.size());
  std::vector<std::uint32_t> next(size), previous(size);
  std::vector<bool> gone(size);
  for (std::uint32_t i = 0; i < size; ++i) {
    next[i] = i + 1 < size ? i + 1 : kEnd;
    previous[i] = i > 0 ? i - 1 : kEnd;
  }
  // Rank, place, and the pair that was there; a place whose pair has changed is passed over.
  using Entry = std::tuple<std::uint32_t, std::uint32_t, std::uint64_t>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
  const auto push = [&](std::uint32_t at) {
    if (at == kEnd || next[at] == kEnd) return;
    if (const Slot* merge = FindMerge(symbols[at], symbols[next[at]])) {
      queue.emplace(merge->rank, at, merge->pair);
    }
  };
  for (std::uint32_t i = 0; i < size; ++i) push(i);
  while (!queue.empty()) {
    const auto [rank, at, pair] = queue.top();
    queue.pop();
    const std::uint32_t right = next[at];
    if (gone[at] || right == kEnd || PairOf(symbols[at], symbols[right]) != pair) continue;
    symbols[at] = FindMerge(symbols[at], symbols[right])->id;
    gone[right] = true;
    next[at] = next[right];
    if (next[at] != kEnd) previous[next[at]] = at;
    push(previous[at]);
    push(at);
  }
  std::size_t kept = 0;
  for (std::uint32_t i = 0; i < size; ++i) {
    if (!gone[i]) symbols[kept++] = symbols[i];
  }
  symbols.resize(kept);
}

}  // namespace loom::text
