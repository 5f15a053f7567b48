#include "data/dataset.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "base/json.h"

namespace loom::data {
namespace {

class DatasetTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "loom_dataset_" +
              ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_ + "/text");
    config_.paths = {folder_ + "/text"};
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void Put(const std::string& name, std::string_view text) {
    std::ofstream(folder_ + "/text/" + name, std::ios::binary) << text;
  }
  static std::string All(const Dataset& d, const TokenStream& stream) {
    std::vector<std::int32_t> ids(stream.size());
    stream.Read(0, ids);
    return d.tokenizer->Decode(ids);
  }

  std::string folder_;
  DataConfig config_;
};

TEST_F(DatasetTest, SplitsOneFileAsNanoGptDoes) {
  // nanoGPT: data[:int(n * 0.9)] and the rest, over characters.
  std::string text;
  for (int i = 0; i < 1237; ++i) text += i % 5 == 0 ? "é" : "ab";
  Put("a.txt", text);
  for (const auto* tokenizer : {"chars", "bytes"}) {
    config_.tokenizer = tokenizer;
    const auto data = LoadDataset(config_);
    ASSERT_TRUE(data.ok()) << data.error().ToString();
    const std::string train = All(*data, data->train), val = All(*data, data->val);
    EXPECT_EQ(train + val, text);
    std::uint64_t characters = 0, in_train = 0;
    for (const char c : text) characters += (c & 0xC0) != 0x80;
    for (const char c : train) in_train += (c & 0xC0) != 0x80;
    EXPECT_EQ(in_train, static_cast<std::uint64_t>(static_cast<double>(characters) * 0.9));
  }
}

TEST_F(DatasetTest, SeparatorStandsBetweenDocumentsOnly) {
  Put("a.txt", "AAAA");
  Put("b.jsonl", "{\"text\": \"B\"}\n{\"text\": \"C\"}\n");
  config_.val_fraction = 0;
  config_.separator = "|";
  for (const auto* tokenizer : {"chars", "bytes"}) {
    config_.tokenizer = tokenizer;
    const auto data = LoadDataset(config_);
    ASSERT_TRUE(data.ok());
    EXPECT_EQ(All(*data, data->train), "AAAA|B|C");
    EXPECT_EQ(data->val.size(), 0U);
  }
}

TEST_F(DatasetTest, BuiltFolderEqualsWhatIsLoadedAndIsReproducible) {
  std::string text;
  for (int i = 0; i < 3000; ++i) text += static_cast<char>('a' + i * i % 26);
  Put("a.txt", text);
  config_.tokenizer = "chars";
  config_.shard_tokens = 500;
  const auto one = BuildDataset(config_, folder_ + "/one");
  ASSERT_TRUE(one.ok()) << one.error().ToString();
  EXPECT_EQ(one->train_files.size(), 6U);
  EXPECT_EQ(one->val_files.size(), 1U);
  const auto loaded = LoadDataset(config_);
  const auto opened = OpenDataset(folder_ + "/one");
  ASSERT_TRUE(loaded.ok());
  ASSERT_TRUE(opened.ok()) << opened.error().ToString();
  EXPECT_EQ(All(*opened, opened->train), All(*loaded, loaded->train));
  EXPECT_EQ(All(*opened, opened->val), All(*loaded, loaded->val));
  EXPECT_NEAR(one->unigram_entropy,
              UnigramEntropy(TokenStream::FromTokens(*loaded->tokenizer->Encode(text))), 1e-9);

  const auto two = BuildDataset(config_, folder_ + "/two");
  ASSERT_TRUE(two.ok());
  for (std::size_t i = 0; i < one->train_files.size(); ++i) {
    EXPECT_EQ(one->train_files[i].hash, two->train_files[i].hash);
  }
  EXPECT_EQ(*ReadFile(folder_ + "/one/dataset.json", 1 << 20),
            *ReadFile(folder_ + "/two/dataset.json", 1 << 20));

  // A smaller corpus built into the same folder leaves nothing of the larger one.
  Put("a.txt", text.substr(0, 600));
  ASSERT_TRUE(BuildDataset(config_, folder_ + "/one").ok());
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/one/train-00002.tokens"));
  EXPECT_EQ(OpenDataset(folder_ + "/one")->train.size(), 540U);
}

TEST_F(DatasetTest, AChangedFileIsNamed) {
  Put("a.txt", "some text that is long enough");
  ASSERT_TRUE(BuildDataset(config_, folder_ + "/out").ok());
  for (const auto* name : {"train-00000.tokens", "val-00000.tokens", "tokenizer.json"}) {
    const std::string path = folder_ + "/out/" + name;
    const std::string good = *ReadFile(path, 1 << 20);
    std::string bad = good;
    bad[bad.size() - 3] ^= 1;
    std::ofstream(path, std::ios::binary) << bad;
    const auto opened = OpenDataset(folder_ + "/out");
    ASSERT_FALSE(opened.ok()) << name;
    EXPECT_NE(opened.error().message.find(name), std::string::npos) << opened.error().message;
    std::ofstream(path, std::ios::binary) << good;
  }
  EXPECT_TRUE(OpenDataset(folder_ + "/out").ok());
  std::filesystem::remove(folder_ + "/out/dataset.json");
  EXPECT_EQ(OpenDataset(folder_ + "/out").error().code, Code::kNotFound);
}

TEST_F(DatasetTest, ATokenizerFileOfAnotherCorpusNamesPlaceAndCharacter) {
  const std::vector<std::string_view> other{"abc"};
  std::ofstream(folder_ + "/t.json") << (*Tokenizer::TrainChars(other))->ToJson();
  Put("a.txt", "abcabd");
  config_.tokenizer = folder_ + "/t.json";
  const auto data = LoadDataset(config_);
  ASSERT_FALSE(data.ok());
  EXPECT_NE(data.error().message.find("'d' (U+0064)"), std::string::npos) << data.error().message;
  EXPECT_NE(data.error().message.find("a.txt"), std::string::npos);
}

TEST_F(DatasetTest, CheckReportsSamplesCountsAndBadLines) {
  Put("a.jsonl", "{\"text\": \"hello world\"}\noops\n{\"text\": \"bye\"}\n");
  config_.separator = "\n";
  config_.val_fraction = 0.2;
  const auto report = CheckData(config_, 4, 2);
  ASSERT_TRUE(report.ok()) << report.error().ToString();
  EXPECT_EQ(report->samples, (std::vector<std::string>{"hello", "o wor"}));
  EXPECT_EQ(report->characters, 15U);
  EXPECT_EQ(report->train_tokens, 12U);
  EXPECT_EQ(report->val_tokens, 3U);
  EXPECT_EQ(report->corpus.bad_count, 1U);
  EXPECT_NE(report->ToText().find("a.jsonl:2: invalid JSON"), std::string::npos)
      << report->ToText();
  const auto parsed = json::Parse(report->ToJson());
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(*parsed->Find("train_tokens")->AsUnsigned(), 12U);
  EXPECT_EQ(*(*parsed->Find("bad_lines")->AsArray())[0].Find("line")->AsUnsigned(), 2U);
}

TEST_F(DatasetTest, SettingsOutOfRangeAreRefused) {
  Put("a.txt", "x");
  for (const double fraction : {-0.1, 0.6, std::nan("")}) {
    config_.val_fraction = fraction;
    EXPECT_FALSE(LoadDataset(config_).ok());
  }
  config_.val_fraction = 0.1;
  config_.tokenizer = "char";
  EXPECT_NE(LoadDataset(config_).error().message.find("'char'"), std::string::npos);
}

TEST_F(DatasetTest, TinyShakespeareSplitsLikeNanoGpt) {
  const std::string path = LOOM_SHARED_DATA "/tinyshakespeare.txt";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there";
  config_.paths = {path};
  config_.tokenizer = "chars";
  const auto report = CheckData(config_, 64);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->vocab_size, 65U);
  EXPECT_EQ(report->train_tokens, 1'003'854U);  // as nanoGPT's prepare.py prints
  EXPECT_EQ(report->val_tokens, 111'540U);
}

}  // namespace
}  // namespace loom::data
