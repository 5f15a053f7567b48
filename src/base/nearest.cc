// Optimal string alignment distance on two short words; a table of (n+1)(m+1) small numbers.
#include "base/nearest.h"

#include <algorithm>
#include <vector>

namespace loom {
namespace {

constexpr std::size_t kMaxWord = 128;

std::size_t Distance(std::string_view a, std::string_view b) {
  const std::size_t width = b.size() + 1;
  std::vector<std::size_t> d((a.size() + 1) * width);
  for (std::size_t i = 0; i <= a.size(); ++i) d[i * width] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) d[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replace = d[(i - 1) * width + j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      std::size_t best = std::min({d[(i - 1) * width + j] + 1, d[i * width + j - 1] + 1, replace});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        best = std::min(best, d[(i - 2) * width + j - 2] + 1);
      }
      d[i * width + j] = best;
    }
  }
  return d.back();
}

}  // namespace

std::string_view Nearest(std::string_view word, std::span<const std::string_view> known) {
  word = word.substr(0, kMaxWord);
  std::string_view best;
  std::size_t best_distance = kMaxWord + 1;
  for (const std::string_view candidate : known) {
    const std::size_t distance = Distance(word, candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return 2 * best_distance <= std::max(word.size(), best.size()) ? best : std::string_view{};
}

}  // namespace loom
