#include "data/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "agreed/random.h"

namespace loom::data {

namespace {

constexpr int kRounds = 8;
// Streams of the seed: the high word tells the uses apart, the low word is the pass.
constexpr std::uint64_t kOrderStream = 0x4F52'4452ULL << 32;
constexpr std::uint64_t kShiftStream = 0x5348'4654ULL << 32;

}  // namespace

Permutation::Permutation(std::uint64_t size, std::uint64_t seed, std::uint64_t stream)
    : size_(size), seed_(seed), stream_(stream) {
  LOOM_CHECK(size >= 1 && size <= (1ULL << 62), "permutation of {}", size);
  const auto bits = static_cast<unsigned>(std::bit_width(size - 1));
  half_bits_ = std::max(1U, (bits + 1) / 2);
}

std::uint64_t Permutation::Once(std::uint64_t x) const {
  const agreed::Philox philox(seed_, stream_);
  const std::uint64_t mask = (1ULL << half_bits_) - 1;
  std::uint64_t left = x >> half_bits_;
  std::uint64_t right = x & mask;
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    const std::uint64_t mixed = left ^ (philox.At((round << 32) | right)[0] & mask);
    left = right;
    right = mixed;
  }
  return (left << half_bits_) | right;
}

std::uint64_t Permutation::operator()(std::uint64_t index) const {
  LOOM_CHECK(index < size_, "index {} of {}", index, size_);
  // The walk returns to [0, size) because it follows a cycle that starts there; the domain is at
  // most four times as large, so that it takes four steps on average.
  std::uint64_t x = Once(index);
  while (x >= size_) x = Once(x);
  return x;
}

Result<Sampler> Sampler::Make(std::uint64_t num_tokens, std::uint32_t context, std::uint64_t seed) {
  if (context == 0) return MakeError(Code::kInvalid, "a context of 0 tokens");
  if (num_tokens < static_cast<std::uint64_t>(context) + 1) {
    return MakeError(Code::kInvalid,
                     fmt::format("the training split has {} tokens, one sequence needs {}",
                                 num_tokens, static_cast<std::uint64_t>(context) + 1),
                     "use a longer corpus or a shorter model.context");
  }
  if (num_tokens > (1ULL << 62)) return MakeError(Code::kLimit, "more than 2^62 tokens");
  return Sampler(num_tokens, context, seed);
}

Sampler::Sampler(std::uint64_t num_tokens, std::uint32_t context, std::uint64_t seed)
    : num_tokens_(num_tokens),
      // One window less than fit, so that every shift in [0, T) leaves N whole windows.
      windows_(std::max<std::uint64_t>(1, (num_tokens - context) / context)),
      seed_(seed),
      context_(context) {}

std::uint64_t Sampler::Shift(std::uint64_t pass) const {
  const std::uint64_t room = std::min<std::uint64_t>(context_, num_tokens_ - windows_ * context_);
  return agreed::Philox(seed_, kShiftStream ^ pass).Below(0, room);
}

Window Sampler::At(std::uint64_t sample) const {
  Window window;
  window.pass = sample / windows_;
  window.index = Permutation(windows_, seed_, kOrderStream ^ window.pass)(sample % windows_);
  window.start = window.index * context_ + Shift(window.pass);
  return window;
}

std::vector<std::int32_t> ReadSamples(const TokenStream& stream, const Sampler& sampler,
                                      std::uint64_t first, std::uint64_t count) {
  const std::size_t row = static_cast<std::size_t>(sampler.context()) + 1;
  std::vector<std::int32_t> out(count * row);
  for (std::uint64_t i = 0; i < count; ++i) {
    stream.Read(sampler.At(first + i).start, std::span(out).subspan(i * row, row));
  }
  return out;
}

EvalWindows::EvalWindows(std::uint64_t num_tokens, std::uint32_t context)
    : num_targets_(num_tokens == 0 ? 0 : num_tokens - 1), context_(context) {
  LOOM_CHECK(context > 0);
}

std::uint64_t EvalWindows::size() const { return (num_targets_ + context_ - 1) / context_; }

EvalWindows::Range EvalWindows::operator[](std::uint64_t index) const {
  LOOM_CHECK(index < size(), "window {} of {}", index, size());
  const std::uint64_t start = index * context_;
  return {start,
          static_cast<std::uint32_t>(std::min<std::uint64_t>(context_, num_targets_ - start))};
}

}  // namespace loom::data
