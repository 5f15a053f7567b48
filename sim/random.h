// The simulator's only source of chance: one seed decides everything that happens in a run.
#pragma once

#include <cstdint>

#include "base/time.h"

namespace loom::sim {

class Random {
 public:
  explicit Random(std::uint64_t seed)
      : state_(seed * 0x9E3779B97F4A7C15ULL + 0x632BE59BD9B4E019ULL) {}
  std::uint64_t Next() {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15ULL);
    z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27U)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31U);
  }
  std::uint64_t Below(std::uint64_t n) { return n == 0 ? 0 : Next() % n; }
  double Unit() { return static_cast<double>(Next() >> 11U) * 0x1p-53; }
  bool Chance(double p) { return Unit() < p; }
  Duration Between(Duration a, Duration b) { return a + FromSeconds(Unit() * Seconds(b - a)); }

 private:
  std::uint64_t state_;
};

}  // namespace loom::sim
