// Counter-based random numbers: number k of stream s of seed x is a pure function, so first
// weights, masks and permutations have one answer on every peer and no generator has state (rule
// R28).
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace loom::agreed {

/// Philox4x32 with 10 rounds (Salmon et al., SC 2011), the bare function.
std::array<std::uint32_t, 4> Philox4x32(std::array<std::uint32_t, 4> counter,
                                        std::array<std::uint32_t, 2> key);

/// Key = seed; counter words = {counter low, high, stream low, high}. Immutable, thread-safe.
class Philox {
 public:
  Philox(std::uint64_t seed, std::uint64_t stream) : seed_(seed), stream_(stream) {}
  std::array<std::uint32_t, 4> At(std::uint64_t counter) const;
  /// The first two words of At(counter) as one number: word 0 is the low half.
  std::uint64_t U64(std::uint64_t counter) const;
  /// In [0, bound), without bias by multiply-high of 64 bits (bias below bound / 2^64). bound > 0.
  std::uint64_t Below(std::uint64_t counter, std::uint64_t bound) const;
  /// In [0, 1): the high 53 bits of U64(counter) / 2^53.
  double Uniform(std::uint64_t counter) const;

 private:
  std::uint64_t seed_;
  std::uint64_t stream_;
};

/// Normal numbers of mean 0 and the given standard deviation, by Box-Muller on agreed Log, CosPi,
/// SinPi in double, rounded once. Elements 4k..4k+3 come from counter k, so any prefix is the same.
void FillNormal(std::span<float> out, std::uint64_t seed, std::uint64_t stream, float std);

}  // namespace loom::agreed
