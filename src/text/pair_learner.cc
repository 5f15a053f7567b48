// Pairs wait in a heap with the words that they were seen in. A pair's count changes as others
// merge; an entry that is popped with an old count goes back with the new one.
#include "text/pair_learner.h"

#include <algorithm>
#include <span>

namespace loom::text {
namespace {

std::uint64_t KeyOf(std::int32_t left, std::int32_t right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}
SymbolPair PairOf(std::uint64_t key) {
  return {static_cast<std::int32_t>(key >> 32), static_cast<std::int32_t>(key & 0xFFFFFFFF)};
}

/// From a pair to a value, open-addressed.
template <class T>
class PairMap {
 public:
  T& operator[](std::uint64_t key) {
    if (2 * (size_ + 1) > slots_.size()) Grow();
    Slot& slot = At(key);
    if (slot.key == kEmpty) {
      slot.key = key;
      ++size_;
    }
    return slot.value;
  }
  /// In no particular order.
  template <class F>
  void ForEach(F&& call) {
    for (Slot& slot : slots_) {
      if (slot.key != kEmpty) call(slot.key, slot.value);
    }
  }
  void Clear() {
    slots_.clear();
    size_ = 0;
  }

 private:
  static constexpr std::uint64_t kEmpty = ~0ULL;
  struct Slot {
    std::uint64_t key = kEmpty;
    T value{};
  };
  Slot& At(std::uint64_t key) {
    std::uint64_t hash = key * 0x9E3779B97F4A7C15ULL;
    hash ^= hash >> 32;
    std::size_t at = hash & (slots_.size() - 1);
    while (slots_[at].key != kEmpty && slots_[at].key != key) at = (at + 1) & (slots_.size() - 1);
    return slots_[at];
  }
  void Grow() {
    std::vector<Slot> old = std::move(slots_);
    slots_ = std::vector<Slot>(old.empty() ? 64 : 2 * old.size());
    for (Slot& slot : old) {
      if (slot.key == kEmpty) continue;
      Slot& moved = At(slot.key);
      moved.key = slot.key;
      moved.value = std::move(slot.value);
    }
  }
  std::vector<Slot> slots_;
  std::size_t size_ = 0;
};

/// The words' symbols in one array; a word that merges grows shorter in its place.
class Words {
 public:
  Words(const WordCounts& counts, const std::int32_t (&symbol_of)[256]) {
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < counts.size(); ++i) bytes += counts.Word(i).size();
    symbols_.reserve(bytes);
    words_.reserve(counts.size());
    for (std::size_t i = 0; i < counts.size(); ++i) {
      words_.push_back({symbols_.size(), static_cast<std::uint32_t>(counts.Word(i).size()),
                        static_cast<std::int64_t>(counts.Count(i))});
      for (const char c : counts.Word(i))
        symbols_.push_back(symbol_of[static_cast<unsigned char>(c)]);
    }
  }
  std::size_t size() const { return words_.size(); }
  std::int64_t count(std::size_t i) const { return words_[i].count; }
  std::span<const std::int32_t> symbols(std::size_t i) const {
    return std::span(symbols_).subspan(words_[i].offset, words_[i].size);
  }

  /// Replaces every `pair` of word i, left to right, and tells each neighbouring pair that went
  /// (-1) or came (+1).
  template <class F>
  void Merge(std::size_t i, SymbolPair pair, std::int32_t made, F&& changed) {
    Word& word = words_[i];
    std::int32_t* const s = symbols_.data() + word.offset;
    std::uint32_t kept = 0;
    for (std::uint32_t at = 0; at < word.size; ++at) {
      if (s[at] != pair.first || at + 1 >= word.size || s[at + 1] != pair.second) {
        s[kept++] = s[at];
        continue;
      }
      if (kept > 0) {
        changed(KeyOf(s[kept - 1], pair.first), -1);
        changed(KeyOf(s[kept - 1], made), +1);
      }
      if (at + 2 < word.size) {
        changed(KeyOf(pair.second, s[at + 2]), -1);
        changed(KeyOf(made, s[at + 2]), +1);
      }
      s[kept++] = made;
      ++at;
    }
    word.size = kept;
  }

 private:
  struct Word {
    std::size_t offset;
    std::uint32_t size;
    std::int64_t count;
  };
  std::vector<std::int32_t> symbols_;
  std::vector<Word> words_;
};

struct Entry {
  std::int64_t count;
  std::uint64_t key;
  std::vector<std::uint32_t> words;  ///< ascending
  bool operator<(const Entry& other) const {
    return count != other.count ? count < other.count : key > other.key;
  }
};

}  // namespace

std::vector<SymbolPair> LearnMerges(const WordCounts& counts, const std::int32_t (&symbol_of)[256],
                                    const LearnOptions& options) {
  Words words(counts, symbol_of);
  PairMap<std::int64_t> pair_counts;
  PairMap<std::vector<std::uint32_t>> seen_in;
  const auto see = [&](std::uint64_t key, std::uint32_t word) {
    std::vector<std::uint32_t>& list = seen_in[key];
    if (list.empty() || list.back() != word) list.push_back(word);
  };
  for (std::uint32_t i = 0; i < words.size(); ++i) {
    const auto symbols = words.symbols(i);
    for (std::size_t at = 0; at + 1 < symbols.size(); ++at) {
      const std::uint64_t key = KeyOf(symbols[at], symbols[at + 1]);
      pair_counts[key] += words.count(i);
      see(key, i);
    }
  }
  std::vector<Entry> heap;
  const auto push_seen = [&] {
    seen_in.ForEach([&](std::uint64_t key, std::vector<std::uint32_t>& list) {
      const std::int64_t count = pair_counts[key];
      if (count <= 0) return;
      heap.push_back({count, key, std::move(list)});
      std::push_heap(heap.begin(), heap.end());
    });
    seen_in.Clear();
  };
  push_seen();

  std::vector<SymbolPair> merges;
  while (options.wants_more() && !heap.empty()) {
    std::pop_heap(heap.begin(), heap.end());
    Entry top = std::move(heap.back());
    heap.pop_back();
    const std::int64_t now = pair_counts[top.key];
    if (top.count != now) {
      top.count = now;
      heap.push_back(std::move(top));
      std::push_heap(heap.begin(), heap.end());
      continue;
    }
    if (top.count < 1 || static_cast<std::uint64_t>(top.count) < options.min_frequency) break;
    const SymbolPair pair = PairOf(top.key);
    const std::int32_t made = options.id_of(pair);
    merges.push_back(pair);
    for (const std::uint32_t i : top.words) {
      const std::int64_t times = words.count(i);
      words.Merge(i, pair, made, [&](std::uint64_t key, std::int64_t change) {
        pair_counts[key] += change * times;
        if (change > 0) see(key, i);
      });
    }
    push_seen();
  }
  return merges;
}

}  // namespace loom::text
