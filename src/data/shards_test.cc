#include "data/shards.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "crypto/hash.h"

namespace loom::data {
namespace {

class Shards : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "loom_shards_" +
              ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::vector<ShardFile> Write(std::uint32_t vocab, std::uint64_t per_shard, std::size_t n,
                               std::size_t chunk) {
    std::vector<std::int32_t> ids(n);
    for (std::size_t i = 0; i < n; ++i) ids[i] = static_cast<std::int32_t>(i * 7919 % vocab);
    ShardWriter writer(folder_, "train", vocab, per_shard);
    for (std::size_t at = 0; at < n; at += chunk) {
      EXPECT_TRUE(writer.Append(std::span(ids).subspan(at, std::min(chunk, n - at))).ok());
    }
    auto files = writer.Finish();
    EXPECT_TRUE(files.ok());
    return std::move(files).value();
  }
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  Bytes Load(const std::string& name) const {
    return ToBytes(AsBytes(*ReadFile(Path(name), 1 << 20)));
  }

  std::string folder_;
};

TEST_F(Shards, StreamReadsAcrossShards) {
  for (const std::uint32_t vocab : {256U, 65536U, 70000U}) {
    const auto files = Write(vocab, 100, 1234, 77);
    ASSERT_EQ(files.size(), 13U);
    std::vector<std::shared_ptr<const Shard>> shards;
    for (const ShardFile& file : files) {
      EXPECT_EQ(file.bytes, kShardHeaderBytes + file.tokens * (vocab <= 65536 ? 2 : 4));
      EXPECT_EQ(crypto::Sha256(Load(file.name)), file.hash);
      auto shard = Shard::Open(Path(file.name), vocab);
      ASSERT_TRUE(shard.ok()) << shard.error().ToString();
      shards.push_back(*shard);
    }
    const TokenStream stream(shards);
    ASSERT_EQ(stream.size(), 1234U);
    for (const std::uint64_t first : {0U, 99U, 100U, 555U, 1233U}) {
      std::vector<std::int32_t> out(std::min<std::size_t>(345, 1234 - first));
      stream.Read(first, out);
      for (std::size_t i = 0; i < out.size(); ++i) {
        ASSERT_EQ(static_cast<std::uint64_t>(out[i]), (first + i) * 7919 % vocab);
      }
    }
    EXPECT_EQ(stream.At(1000), static_cast<std::int32_t>(1000 * 7919 % vocab));
  }
}

TEST_F(Shards, SameIdsGiveSameFilesHoweverTheyCome) {
  const auto one = Write(300, 500, 1000, 1000);
  const auto two = Write(300, 500, 1000, 3);
  ASSERT_EQ(one.size(), 2U);
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_EQ(one[i].hash, two[i].hash);
}

TEST_F(Shards, EveryFlippedByteIsNoticed) {
  const auto files = Write(256, 100, 40, 40);
  const Bytes good = Load(files[0].name);
  ASSERT_TRUE(ParseShard(good, 256).ok());
  for (std::size_t i = 0; i < good.size(); ++i) {
    Bytes bad = good;
    bad[i] ^= std::byte{0x20};
    EXPECT_FALSE(ParseShard(bad, 256).ok()) << "byte " << i;
    EXPECT_FALSE(ParseShard(ByteView(good).first(i), 256).ok()) << "cut at " << i;
  }
  Bytes longer = good;
  longer.push_back({});
  EXPECT_FALSE(ParseShard(longer, 256).ok());
  EXPECT_NE(ParseShard(good, 255).error().message.find("vocabulary of 256"), std::string::npos);
}

TEST_F(Shards, AnIdOutsideTheVocabularyIsNamedWithItsIndex) {
  const auto files = Write(256, 100, 40, 40);
  Bytes file = Load(files[0].name);
  file[kShardHeaderBytes + 2 * 7 + 1] = std::byte{1};  // id 7 becomes >= 256
  const Hash hash = crypto::Sha256(ByteView(file).subspan(kShardHeaderBytes));
  std::copy(hash.bytes.begin(), hash.bytes.end(), file.begin() + 32);
  const auto header = ParseShard(file, 256);
  ASSERT_FALSE(header.ok());
  EXPECT_NE(header.error().message.find("at index 7"), std::string::npos) << header.error().message;
}

TEST_F(Shards, LossBitsStandBehindTheIdsAndOnlyWhereATokenHasNone) {
  const std::vector<std::int32_t> ids{1, 2, 3, 4, 5, 6, 7, 8, 9};
  const auto write = [&](const std::string& prefix, bool loss) {
    ShardWriter writer(folder_, prefix, 256, 100);
    EXPECT_TRUE(writer.Append(std::span(ids).first(3), loss).ok());
    EXPECT_TRUE(writer.Append(std::span(ids).subspan(3)).ok());
    return Load(writer.Finish()->front().name);
  };
  const Bytes plain = write("plain", true);
  EXPECT_EQ(plain.size(), kShardHeaderBytes + 18);
  EXPECT_EQ(plain[8], std::byte{1}) << "a loss on every token is no mark";
  const Bytes file = write("marked", false);
  ASSERT_EQ(file.size(), kShardHeaderBytes + 20);
  const auto shard = Shard::Open(Path("marked-00000.tokens"), 256);
  ASSERT_TRUE(shard.ok()) << shard.error().ToString();
  EXPECT_EQ((*shard)->num_targets(), 6U);
  std::vector<std::int32_t> targets(9);
  (*shard)->ReadTargets(0, targets);
  EXPECT_EQ(targets, (std::vector<std::int32_t>{kNoLoss, kNoLoss, kNoLoss, 4, 5, 6, 7, 8, 9}));
  for (std::size_t i = 0; i < file.size(); ++i) {
    Bytes bad = file;
    bad[i] ^= std::byte{0x20};
    EXPECT_FALSE(ParseShard(bad, 256).ok()) << "byte " << i;
    EXPECT_FALSE(ParseShard(ByteView(file).first(i), 256).ok()) << "cut at " << i;
  }
  // A bit behind the last token, with the hash that belongs to it.
  Bytes beyond = file;
  beyond.back() |= std::byte{0x80};
  const Hash hash = crypto::Sha256(ByteView(beyond).subspan(kShardHeaderBytes));
  std::copy(hash.bytes.begin(), hash.bytes.end(), beyond.begin() + 32);
  EXPECT_NE(ParseShard(beyond, 256).error().message.find("behind the last token"),
            std::string::npos);
}

TEST_F(Shards, OpenNamesTheFile) {
  const auto shard = Shard::Open(Path("no.tokens"), 256);
  ASSERT_FALSE(shard.ok());
  EXPECT_EQ(shard.error().code, Code::kNotFound);
  std::ofstream(Path("plain.tokens"))
      << "this is not a shard at all, it is only a text of 64+ bytes...";
  EXPECT_NE(Shard::Open(Path("plain.tokens"), 256).error().message.find("plain.tokens"),
            std::string::npos);
}

TEST(UnigramEntropy, OfKnownDistributions) {
  EXPECT_EQ(UnigramEntropy(TokenStream::FromTokens({5, 5, 5})), 0.0);
  EXPECT_NEAR(UnigramEntropy(TokenStream::FromTokens({0, 1, 2, 3})), std::log(4.0), 1e-12);
  std::vector<std::int32_t> many(100000);
  for (std::size_t i = 0; i < many.size(); ++i) many[i] = static_cast<std::int32_t>(i % 10 == 0);
  EXPECT_NEAR(UnigramEntropy(TokenStream::FromTokens(many)),
              -(0.1 * std::log(0.1) + 0.9 * std::log(0.9)), 1e-12);
  EXPECT_EQ(UnigramEntropy(TokenStream()), 0.0);
}

}  // namespace
}  // namespace loom::data
