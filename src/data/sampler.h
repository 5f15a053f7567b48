// Which tokens are sample number n: a pure function of (number of tokens, context, seed, n), so
// that every peer has one answer and the data cursor is an integer.
//
// A pass cuts the stream into N windows of T+1 tokens; window k of pass e starts at
// k*T + shift(e), and neighbours share one token, so that every token is a target once. Sample n is
// window Permute(n mod N) of pass e = n / N. The permutation is a Feistel network on the next power
// of four, keyed by Philox(seed, pass); an image outside [0, N) is walked on until it falls inside.
//
// A mixture has several parts of the stream, each with passes of its own. Every block of 4096
// samples has a fixed share of each part, at places that a keyed permutation of the block chooses;
// a part's samples are numbered through the blocks, so each of its windows is drawn once a pass.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
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

inline constexpr std::uint32_t kMixBlock = 4096;

/// Tokens [first, first + tokens) of a stream, drawn from in `share` of kMixBlock samples.
struct MixPart {
  std::uint64_t first = 0;
  std::uint64_t tokens = 0;
  std::uint32_t share = kMixBlock;
};

/// Shares in proportion to weights, kMixBlock in all: rounded down, what is left to the largest
/// remainders. Error: a weight that is not above 0 or too small for a share of 1.
Result<std::vector<std::uint32_t>> SharesOf(std::span<const double> weights);

struct Window {
  std::size_t part = 0;  ///< of the mixture
  std::uint64_t pass = 0;
  std::uint64_t index = 0;  ///< window of the pass, in the order of the text
  std::uint64_t start = 0;  ///< first token; the window has T+1 tokens
};

/// Immutable, thread-safe.
class Sampler {
 public:
  /// Error: the stream is shorter than one window of context + 1 tokens.
  static Result<Sampler> Make(std::uint64_t num_tokens, std::uint32_t context, std::uint64_t seed);
  /// Of a mixture, whose shares are kMixBlock in all. Error: a part shorter than one window.
  static Result<Sampler> Make(std::span<const MixPart> mix, std::uint32_t context,
                              std::uint64_t seed);

  /// N, the same in every pass of the part.
  std::uint64_t windows_per_pass(std::size_t part = 0) const { return parts_[part].windows; }
  std::uint32_t context() const { return context_; }
  Window At(std::uint64_t sample) const;
  /// shift(pass), in [0, T).
  std::uint64_t Shift(std::uint64_t pass, std::size_t part = 0) const;

 private:
  struct Part {
    std::uint64_t first, tokens, windows, seed;
    std::uint32_t share, shares_before;
  };
  Sampler(std::uint32_t context, std::uint64_t seed) : seed_(seed), context_(context) {}
  Status Add(const MixPart& part, std::string_view name);
  Window InPart(std::size_t part, std::uint64_t sample) const;

  std::vector<Part> parts_;
  std::uint64_t seed_;
  std::uint32_t context_;
};

/// Samples as a model takes them, row by row: T inputs, and T targets of which those without a loss
/// are kNoLoss.
struct SampleRows {
  std::vector<std::int32_t> inputs;
  std::vector<std::int32_t> targets;
};
SampleRows ReadSamples(const TokenStream& stream, const Sampler& sampler,
                       std::span<const std::uint64_t> samples);
/// How many of their targets have a loss. O(1) a sample where all tokens have one.
std::uint64_t CountTargets(const TokenStream& stream, const Sampler& sampler,
                           std::span<const std::uint64_t> samples);

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
