// Which texts were seen before, told by 64 bits of each: enough to count duplicates, of which one
// in many millions may be none.
#pragma once

#include <cstdint>
#include <vector>

namespace loom::data {

class SeenTexts {
 public:
  explicit SeenTexts(std::size_t most) : most_(most) {}

  /// Whether this hash was there; if not it is, unless `most` others are.
  bool Insert(std::uint64_t hash) {
    if (hash == 0) hash = 1;  // 0 marks a free slot
    if (2 * (count_ + 1) > slots_.size() && count_ < most_) Grow();
    std::size_t at = Find(hash);
    if (slots_[at] == hash) return true;
    if (count_ < most_) {
      slots_[at] = hash;
      ++count_;
    }
    return false;
  }

 private:
  std::size_t Find(std::uint64_t hash) const {
    std::size_t at = hash & (slots_.size() - 1);
    while (slots_[at] != 0 && slots_[at] != hash) at = (at + 1) & (slots_.size() - 1);
    return at;
  }
  void Grow() {
    const std::vector<std::uint64_t> old = std::move(slots_);
    slots_.assign(old.empty() ? 1024 : 2 * old.size(), 0);
    for (const std::uint64_t hash : old) {
      if (hash != 0) slots_[Find(hash)] = hash;
    }
  }

  std::size_t most_, count_ = 0;
  std::vector<std::uint64_t> slots_;  ///< a power of two, at most half full
};

}  // namespace loom::data
