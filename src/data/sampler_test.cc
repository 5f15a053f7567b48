#include "data/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <set>

namespace loom::data {
namespace {

TEST(Permutation, IsABijectionOfEverySize) {
  for (std::uint64_t size = 1; size <= 300; ++size) {
    const Permutation permute(size, /*seed=*/7, /*stream=*/size);
    std::vector<bool> seen(size);
    for (std::uint64_t i = 0; i < size; ++i) {
      const std::uint64_t image = permute(i);
      ASSERT_LT(image, size);
      ASSERT_FALSE(seen[image]) << "size " << size;
      seen[image] = true;
    }
  }
  const std::uint64_t size = 100'003;
  const Permutation permute(size, 1, 2);
  std::vector<bool> seen(size);
  for (std::uint64_t i = 0; i < size; ++i) seen[permute(i)] = true;
  EXPECT_EQ(std::count(seen.begin(), seen.end(), true), static_cast<std::ptrdiff_t>(size));
}

TEST(Permutation, ReachesTheLargestSizesAtOnce) {
  const Permutation permute((1ULL << 62) - 5, 3, 4);
  std::set<std::uint64_t> images;
  for (std::uint64_t i = 0; i < 1000; ++i) images.insert(permute(i));
  EXPECT_EQ(images.size(), 1000U);
  EXPECT_LT(*images.rbegin(), (1ULL << 62) - 5);
}

TEST(Permutation, DependsOnSeedAndStreamAndOnNothingElse) {
  const Permutation a(1000, 1, 1), again(1000, 1, 1), seed(1000, 2, 1), stream(1000, 1, 2);
  int same_seed = 0, same_stream = 0;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(a(i), again(i));
    same_seed += a(i) == seed(i) ? 1 : 0;
    same_stream += a(i) == stream(i) ? 1 : 0;
  }
  EXPECT_LT(same_seed, 10);
  EXPECT_LT(same_stream, 10);
}

TEST(Permutation, LooksShuffled) {
  // Neighbours of the order are far apart in the text: the mean distance of a random order is N/3.
  const std::uint64_t size = 10'000;
  const Permutation permute(size, 11, 0);
  double distance = 0;
  for (std::uint64_t i = 1; i < size; ++i) {
    distance += std::abs(static_cast<double>(permute(i)) - static_cast<double>(permute(i - 1)));
  }
  EXPECT_NEAR(distance / static_cast<double>(size - 1), static_cast<double>(size) / 3,
              static_cast<double>(size) / 50);
}

TEST(Sampler, GoldenOrder) {
  // The order is part of the agreed training: a change of these numbers is a change of format.
  const auto sampler = Sampler::Make(1000, 10, 42);
  ASSERT_TRUE(sampler.ok());
  std::vector<std::uint64_t> indices, starts;
  for (const std::uint64_t n : {0, 1, 2, 97, 98, 99, 98 * 5}) {
    indices.push_back(sampler->At(n).index);
    starts.push_back(sampler->At(n).start);
  }
  EXPECT_EQ(sampler->windows_per_pass(), 99U);
  EXPECT_EQ(indices, (std::vector<std::uint64_t>{24, 92, 93, 1, 23, 29, 5}));
  EXPECT_EQ(starts, (std::vector<std::uint64_t>{247, 927, 937, 17, 237, 292, 58}));
}

TEST(Sampler, EveryPassVisitsEachWindowOnceAndStaysInside) {
  for (const std::uint64_t tokens : {11ULL, 12ULL, 20ULL, 21ULL, 30ULL, 101ULL, 1009ULL}) {
    const auto sampler = Sampler::Make(tokens, 10, 5);
    ASSERT_TRUE(sampler.ok());
    const std::uint64_t n = sampler->windows_per_pass();
    std::set<std::uint64_t> shifts;
    for (std::uint64_t pass = 0; pass < 40; ++pass) {
      std::set<std::uint64_t> indices;
      for (std::uint64_t k = 0; k < n; ++k) {
        const Window w = sampler->At(pass * n + k);
        EXPECT_EQ(w.pass, pass);
        EXPECT_EQ(w.start, w.index * 10 + sampler->Shift(pass));
        EXPECT_LE(w.start + 11, tokens);
        indices.insert(w.index);
      }
      EXPECT_EQ(indices.size(), n);
      EXPECT_LT(sampler->Shift(pass), 10U);
      shifts.insert(sampler->Shift(pass));
    }
    EXPECT_GT(shifts.size(), tokens >= 20 ? 5U : 0U) << tokens;
  }
}

TEST(Sampler, ASequenceLongerThanTheCorpusIsRefused) {
  const auto sampler = Sampler::Make(10, 10, 1);
  ASSERT_FALSE(sampler.ok());
  EXPECT_NE(sampler.error().message.find("has 10 tokens, one sequence needs 11"),
            std::string::npos);
  EXPECT_FALSE(Sampler::Make(10, 0, 1).ok());
}

TEST(Sampler, ReadSamplesIsRowByRow) {
  std::vector<std::int32_t> ids(500);
  std::iota(ids.begin(), ids.end(), 0);
  const TokenStream stream = TokenStream::FromTokens(ids);
  const auto sampler = Sampler::Make(500, 7, 9);
  ASSERT_TRUE(sampler.ok());
  std::vector<std::uint64_t> samples(20);
  std::iota(samples.begin(), samples.end(), 60U);
  const SampleRows rows = ReadSamples(stream, *sampler, samples);
  ASSERT_EQ(rows.inputs.size(), 20U * 7);
  ASSERT_EQ(rows.targets.size(), 20U * 7);
  for (std::size_t i = 0; i < 20; ++i) {
    for (std::size_t t = 0; t < 7; ++t) {
      const auto start = static_cast<std::int32_t>(sampler->At(60 + i).start);
      EXPECT_EQ(rows.inputs[i * 7 + t], start + static_cast<std::int32_t>(t));
      EXPECT_EQ(rows.targets[i * 7 + t], start + static_cast<std::int32_t>(t) + 1);
    }
  }
}

TEST(EvalWindows, EveryTokenButTheFirstIsATargetOnce) {
  for (std::uint64_t n = 0; n < 40; ++n) {
    for (const std::uint32_t context : {1U, 4U, 7U, 64U}) {
      const EvalWindows windows(n, context);
      std::uint64_t next_target = 1;
      for (std::uint64_t i = 0; i < windows.size(); ++i) {
        EXPECT_EQ(windows[i].start + 1, next_target);
        EXPECT_GE(windows[i].targets, 1U);
        EXPECT_LE(windows[i].targets, context);
        EXPECT_TRUE(windows[i].targets == context || i + 1 == windows.size());
        next_target += windows[i].targets;
      }
      EXPECT_EQ(next_target, std::max<std::uint64_t>(n, 1));
    }
  }
}

}  // namespace
}  // namespace loom::data
