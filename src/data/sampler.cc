#include "data/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "agreed/random.h"

namespace loom::data {

namespace {

constexpr int kRounds = 8;
// Streams of the seed: the high word tells the uses apart, the low word is the pass.
constexpr std::uint64_t kOrderStream = 0x4F52'4452ULL << 32;
constexpr std::uint64_t kShiftStream = 0x5348'4654ULL << 32;
constexpr std::uint64_t kMixStream = 0x4D49'5842ULL << 32;
/// Between the seeds of a mixture's parts; the first part has the seed itself.
constexpr std::uint64_t kPartSeeds = 0x9E37'79B9'7F4A'7C15ULL;

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

Result<std::vector<std::uint32_t>> SharesOf(std::span<const double> weights) {
  double sum = 0;
  for (const double weight : weights) {
    if (!(weight > 0) || !std::isfinite(weight)) {
      return MakeError(Code::kInvalid,
                       fmt::format("a weight of the mixture is {}, it must be above 0", weight),
                       "leave the path out if nothing is to be drawn from it");
    }
    sum += weight;
  }
  std::vector<std::uint32_t> shares;
  std::vector<std::pair<double, std::size_t>> rest;  // negative remainder, index
  std::uint32_t given = 0;
  shares.reserve(weights.size());
  rest.reserve(weights.size());
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double exact = weights[i] / sum * kMixBlock;
    shares.push_back(static_cast<std::uint32_t>(exact));
    rest.emplace_back(static_cast<double>(shares[i]) - exact, i);
    given += shares[i];
  }
  std::sort(rest.begin(), rest.end());
  for (std::size_t i = 0; given < kMixBlock; ++i, ++given) ++shares[rest[i].second];
  for (std::size_t i = 0; i < shares.size(); ++i) {
    if (shares[i] > 0) continue;
    return MakeError(Code::kInvalid,
                     fmt::format("weight {} of the mixture is less than 1/{} of their sum {}",
                                 weights[i], kMixBlock, sum),
                     "give it a larger weight, or leave the path out");
  }
  return shares;
}

Status Sampler::Add(const MixPart& part, std::string_view name) {
  if (context_ == 0) return MakeError(Code::kInvalid, "a context of 0 tokens");
  const std::uint64_t context = context_;
  if (part.tokens < context + 1) {
    return MakeError(
        Code::kInvalid,
        fmt::format("{} has {} tokens, one sequence needs {}", name, part.tokens, context + 1),
        "use a longer corpus or a shorter model.context");
  }
  if (part.tokens > (1ULL << 62)) return MakeError(Code::kLimit, "more than 2^62 tokens");
  const std::uint32_t before =
      parts_.empty() ? 0 : parts_.back().shares_before + parts_.back().share;
  // One window less than fit, so that every shift in [0, T) leaves N whole windows.
  parts_.push_back({.first = part.first,
                    .tokens = part.tokens,
                    .windows = std::max<std::uint64_t>(1, (part.tokens - context) / context),
                    .seed = seed_ + parts_.size() * kPartSeeds,
                    .share = part.share,
                    .shares_before = before});
  return {};
}

Result<Sampler> Sampler::Make(std::uint64_t num_tokens, std::uint32_t context, std::uint64_t seed) {
  Sampler sampler(context, seed);
  LOOM_RETURN_IF_ERROR(sampler.Add({0, num_tokens, kMixBlock}, "the training split"));
  return sampler;
}

Result<Sampler> Sampler::Make(std::span<const MixPart> mix, std::uint32_t context,
                              std::uint64_t seed) {
  Sampler sampler(context, seed);
  std::uint64_t shares = 0;
  for (std::size_t i = 0; i < mix.size(); ++i) {
    LOOM_RETURN_IF_ERROR(sampler.Add(mix[i], fmt::format("path {} of the mixture", i)));
    shares += mix[i].share;
  }
  LOOM_CHECK(shares == kMixBlock, "shares of {} in all", shares);
  return sampler;
}

std::uint64_t Sampler::Shift(std::uint64_t pass, std::size_t index) const {
  const Part& part = parts_[index];
  const std::uint64_t room =
      std::min<std::uint64_t>(context_, part.tokens - part.windows * context_);
  return agreed::Philox(part.seed, kShiftStream ^ pass).Below(0, room);
}

Window Sampler::InPart(std::size_t index, std::uint64_t sample) const {
  const Part& part = parts_[index];
  Window window;
  window.part = index;
  window.pass = sample / part.windows;
  window.index =
      Permutation(part.windows, part.seed, kOrderStream ^ window.pass)(sample % part.windows);
  window.start = part.first + window.index * context_ + Shift(window.pass, index);
  return window;
}

Window Sampler::At(std::uint64_t sample) const {
  if (parts_.size() == 1) return InPart(0, sample);
  const std::uint64_t block = sample / kMixBlock;
  const std::uint64_t place = Permutation(kMixBlock, seed_, kMixStream ^ block)(sample % kMixBlock);
  std::size_t part = parts_.size() - 1;
  while (place < parts_[part].shares_before) --part;
  return InPart(part, block * parts_[part].share + place - parts_[part].shares_before);
}

SampleRows ReadSamples(const TokenStream& stream, const Sampler& sampler,
                       std::span<const std::uint64_t> samples) {
  const std::size_t length = sampler.context();
  SampleRows rows;
  rows.inputs.resize(samples.size() * length);
  rows.targets.resize(samples.size() * length);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const std::uint64_t start = sampler.At(samples[i]).start;
    stream.Read(start, std::span(rows.inputs).subspan(i * length, length));
    stream.ReadTargets(start + 1, std::span(rows.targets).subspan(i * length, length));
  }
  return rows;
}

std::uint64_t CountTargets(const TokenStream& stream, const Sampler& sampler,
                           std::span<const std::uint64_t> samples) {
  const std::uint64_t length = sampler.context();
  if (stream.num_targets() == stream.size()) return samples.size() * length;
  std::uint64_t sum = 0;
  for (const std::uint64_t sample : samples)
    sum += stream.CountTargets(sampler.At(sample).start + 1, length);
  return sum;
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
