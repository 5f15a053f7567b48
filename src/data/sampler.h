// Which tokens are sample number n: a pure function of (number of tokens, context, seed, n), so
// that every peer has one answer and the data cursor is an integer.
//
// A pass cuts the stream into N windows of T+1 tokens; window k of pass e starts at
// k*T + shift(e), and neighbours share one token, so that every token is a target once. Sample n is
// window Permute(n mod N) of pass e = n / N. The permutation is a Feistel network on the next power
// of four, keyed by Philox(seed, pass); an image outside [0, N) is walked on until it falls inside.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "data/shards.h"

namespace loom::data {

/// A keyed bijection of [0, size). O(1), stateless, immutable.
class Permutation {
 public:
  /// Requires 1 <= size <= 2^62.
  Permutation(std::uint64_t size, std::uint64_t seed, std::uint64_t stream);
  std::uint64_t operator()(std::uint64_t index) const;

 private:
  std::uint64_t Once(std::uint64_t x) const;
  std::uint64_t size_, seed_, stream_;
  unsigned half_bits_;
};

struct Window {
  std::uint64_t pass = 0;
  std::uint64_t index = 0;  ///< window of the pass, in the order of the text
  std::uint64_t start = 0;  ///< first token; the window has T+1 tokens
};

/// Immutable, thread-safe.
class Sampler {
 public:
  /// Error: the stream is shorter than one window of context + 1 tokens.
  static Result<Sampler> Make(std::uint64_t num_tokens, std::uint32_t context, std::uint64_t seed);

  /// N, the same in every pass.
  std::uint64_t windows_per_pass() const { return windows_; }
  std::uint32_t context() const { return context_; }
  Window At(std::uint64_t sample) const;
  /// shift(pass), in [0, T).
  std::uint64_t Shift(std::uint64_t pass) const;

 private:
  Sampler(std::uint64_t num_tokens, std::uint32_t context, std::uint64_t seed);
  std::uint64_t num_tokens_, windows_, seed_;
  std::uint32_t context_;
};

/// The T+1 tokens of samples [first, first + count), row by row.
std::vector<std::int32_t> ReadSamples(const TokenStream& stream, const Sampler& sampler,
                                      std::uint64_t first, std::uint64_t count);

/// Windows over a whole split for a loss: they do not overlap in targets, the last target of a
/// window is the next window's first input, N-1 targets in all, the last window may be short.
class EvalWindows {
 public:
  struct Range {
    std::uint64_t start = 0;    ///< first input; tokens [start, start + targets] are needed
    std::uint32_t targets = 0;  ///< 1 .. context
  };
  EvalWindows(std::uint64_t num_tokens, std::uint32_t context);
  std::uint64_t size() const;
  Range operator[](std::uint64_t index) const;

 private:
  std::uint64_t num_targets_;
  std::uint32_t context_;
};

}  // namespace loom::data
