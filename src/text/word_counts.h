// How often each piece of the training texts occurs.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "text/vocab.h"

namespace loom::text {

class WordCounts {
 public:
  void Add(std::string_view word, std::uint64_t times = 1) {
    std::int32_t id = words_.Find(word);
    if (id == Vocab::kNone) {
      id = static_cast<std::int32_t>(counts_.size());
      words_.Add(word, id);
      counts_.push_back(0);
    }
    counts_[static_cast<std::size_t>(id)] += times;
  }
  void Add(const WordCounts& other) {
    for (std::size_t i = 0; i < other.size(); ++i) Add(other.Word(i), other.Count(i));
  }
  std::size_t size() const { return counts_.size(); }
  std::string_view Word(std::size_t i) const {
    return words_.BytesOf(static_cast<std::int32_t>(i));
  }
  std::uint64_t Count(std::size_t i) const { return counts_[i]; }

 private:
  Vocab words_;
  std::vector<std::uint64_t> counts_;
};

}  // namespace loom::text
