// Marks and mixtures: what only some tokens of a data set have, from the corpus to the samples; and
// builds that were cut off.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "base/file.h"
#include "data/dataset.h"
#include "data/dataset_writer.h"
#include "data/sampler.h"

namespace loom::data {
namespace {

namespace fs = std::filesystem;

TEST(Mix, SharesFollowWeights) {
  using Shares = std::vector<std::uint32_t>;
  EXPECT_EQ(*SharesOf(std::vector<double>{1}), Shares{4096});
  EXPECT_EQ(*SharesOf(std::vector<double>{3, 1}), (Shares{3072, 1024}));
  EXPECT_EQ(*SharesOf(std::vector<double>{1, 1, 1}), (Shares{1366, 1365, 1365}));
  for (const double bad : {0.0, -1.0, std::nan(""), 1e-9}) {
    EXPECT_FALSE(SharesOf(std::vector<double>{1, bad}).ok()) << bad;
  }
}

TEST(Mix, EveryBlockHasItsSharesAndEveryPassEachWindowOnce) {
  const std::vector<MixPart> mix{{0, 5001, 3000}, {5001, 70000, 1000}, {75001, 900, 96}};
  const auto sampler = Sampler::Make(mix, 10, 7);
  ASSERT_TRUE(sampler.ok()) << sampler.error().ToString();
  std::map<std::size_t, std::map<std::uint64_t, std::set<std::uint64_t>>> seen;
  for (std::uint64_t block = 0; block < 20; ++block) {
    std::vector<std::uint32_t> drawn(mix.size());
    for (std::uint64_t i = 0; i < kMixBlock; ++i) {
      const Window window = sampler->At(block * kMixBlock + i);
      const MixPart& part = mix[window.part];
      ++drawn[window.part];
      EXPECT_GE(window.start, part.first);
      EXPECT_LE(window.start + 11, part.first + part.tokens);
      EXPECT_TRUE(seen[window.part][window.pass].insert(window.index).second) << "drawn twice";
    }
    for (std::size_t p = 0; p < mix.size(); ++p) EXPECT_EQ(drawn[p], mix[p].share);
  }
  for (std::size_t p = 0; p < mix.size(); ++p) {
    for (const auto& [pass, windows] : seen[p]) {
      if (pass == seen[p].rbegin()->first) continue;  // not over yet
      EXPECT_EQ(windows.size(), sampler->windows_per_pass(p)) << p << " " << pass;
    }
  }
  EXPECT_GT(seen[0].size(), 100U);
  const auto again = Sampler::Make(mix, 10, 7), other = Sampler::Make(mix, 10, 8);
  int same = 0;
  for (std::uint64_t n = 0; n < 1000; ++n) {
    EXPECT_EQ(sampler->At(n).start, again->At(n).start);
    same += sampler->At(n).start == other->At(n).start ? 1 : 0;
  }
  EXPECT_LT(same, 50);
  const std::vector<MixPart> small{{0, 100, 4000}, {100, 10, 96}};
  EXPECT_NE(Sampler::Make(small, 10, 1).error().message.find("path 1 of the mixture has 10 tokens"),
            std::string::npos);
}

TEST(Mix, GoldenOrder) {
  // Part of the agreed training, as Sampler.GoldenOrder.
  const std::vector<MixPart> mix{{0, 1000, 3072}, {1000, 500, 1024}};
  const auto sampler = Sampler::Make(mix, 10, 42);
  ASSERT_TRUE(sampler.ok());
  std::vector<std::uint64_t> starts;
  for (const std::uint64_t n : {0, 1, 2, 3, 4, 5, 5000}) starts.push_back(sampler->At(n).start);
  EXPECT_EQ(starts, (std::vector<std::uint64_t>{1374, 1458, 423, 1014, 358, 452, 690}));
}

TEST(Marks, TargetsWithoutALossAreMarkedInSamplesAndCounted) {
  std::vector<std::int32_t> ids(100);
  std::vector<bool> loss(100);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<std::int32_t>(i);
    loss[i] = i % 3 != 0;
  }
  const TokenStream stream(
      {Shard::FromTokens({ids.begin(), ids.begin() + 37}),
       Shard::FromTokens({ids.begin() + 37, ids.end()}, {loss.begin() + 37, loss.end()})});
  EXPECT_EQ(stream.num_targets(), 37U + stream.CountTargets(37, 63));
  std::vector<std::int32_t> targets(100);
  stream.ReadTargets(0, targets);
  std::uint64_t counted = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    EXPECT_EQ(targets[i], i < 37 || loss[i] ? ids[i] : kNoLoss);
    counted += targets[i] != kNoLoss ? 1 : 0;
    EXPECT_EQ(stream.CountTargets(0, i + 1), counted);
  }
  const auto sampler = Sampler::Make(100, 7, 3);
  const std::vector<std::uint64_t> samples{0, 5, 3};
  const SampleRows rows = ReadSamples(stream, *sampler, samples);
  std::uint64_t in_rows = 0;
  for (std::size_t i = 0; i < rows.targets.size(); ++i) {
    const std::uint64_t start = sampler->At(samples[i / 7]).start;
    EXPECT_EQ(rows.inputs[i], ids[start + i % 7]);
    EXPECT_EQ(rows.targets[i], targets[start + i % 7 + 1]);
    in_rows += rows.targets[i] != kNoLoss ? 1 : 0;
  }
  EXPECT_EQ(CountTargets(stream, *sampler, samples), in_rows);
}

class Build : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "loom_build_" +
              ::testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    config_.tokenizer = "bytes";
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string Put(const std::string& name, std::string_view text) {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << text;
    return folder_ + "/" + name;
  }
  std::map<std::string, std::string> Files(const std::string& name) {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::directory_iterator(folder_ + "/" + name))
      files[entry.path().filename().string()] = *ReadFile(entry.path().string(), 1 << 24);
    return files;
  }
  /// Ids as text, those without a loss in lower case.
  static std::string Shown(const TokenStream& stream) {
    std::vector<std::int32_t> ids(stream.size()), targets(stream.size());
    stream.Read(0, ids);
    stream.ReadTargets(0, targets);
    std::string out;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const char c = static_cast<char>(ids[i]);
      out += static_cast<char>(targets[i] == kNoLoss ? std::tolower(c) : std::toupper(c));
    }
    return out;
  }

  std::string folder_;
  DataConfig config_;
};

TEST_F(Build, CompletionsAreMarkedThroughShardsAndCutAnywhere) {
  config_.paths = {Put("a.jsonl",
                       "{\"prompt\": \"ask \", \"completion\": \"tell\"}\n"
                       "{\"prompt\": \"why \", \"completion\": \"so\"}\n")};
  config_.separator = "|";
  config_.shard_tokens = 1024;
  for (const double fraction : {0.0, 0.1, 0.25, 0.5}) {
    config_.val_fraction = fraction;
    const auto report = BuildDataset(config_, folder_ + "/out");
    ASSERT_TRUE(report.ok()) << report.error().ToString();
    const auto data = OpenDataset(folder_ + "/out");
    ASSERT_TRUE(data.ok()) << data.error().ToString();
    EXPECT_EQ(Shown(data->train) + Shown(data->val), "ask TELL|why SO");
    EXPECT_EQ(report->no_loss, 8U);
    const auto loaded = LoadDataset(config_);
    EXPECT_EQ(Shown(loaded->train), Shown(data->train));
    EXPECT_EQ(Shown(loaded->val), Shown(data->val));
  }
  config_.val_fraction = 0;
  const auto report = CheckData(config_, 100);
  EXPECT_EQ(report->samples[0], "⟦ask ⟧tell|⟦why ⟧so");
  config_.loss = "all";
  EXPECT_EQ(Shown(LoadDataset(config_)->train), "ASK TELL|WHY SO");
}

TEST_F(Build, MessagesNeedATemplateAndEndThemselves) {
  config_.paths = {
      Put("a.jsonl",
          "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": "
          "\"assistant\", \"content\": \"a\"}]}\n"
          "{\"messages\": [{\"role\": \"assistant\", \"content\": \"b\"}]}\n"),
      Put("b.jsonl", "{\"text\": \"c\"}\n{\"prompt\": \"x\", \"completion\": \"y\"}\n")};
  EXPECT_NE(LoadDataset(config_).error().message.find("set data.chat"), std::string::npos);
  config_.chat = "chatml";
  config_.val_fraction = 0;
  const auto mixed = LoadDataset(config_);
  EXPECT_NE(mixed.error().message.find("b.jsonl' line 2: a line of prompt and completion in a file "
                                       "of text"),
            std::string::npos)
      << mixed.error().message;
  config_.skip_bad = true;
  const auto data = LoadDataset(config_);
  ASSERT_TRUE(data.ok());
  EXPECT_EQ(Shown(data->train),
            "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\nA<|IM_END|>\n"
            "<|im_start|>assistant\nB<|IM_END|>\nC");
}

TEST_F(Build, AMixtureSplitsEachPathAndIsInTheManifest) {
  config_.paths = {Put("a.txt", std::string(100, 'a')), Put("b.txt", std::string(60, 'b'))};
  config_.weights = {1, 3};
  config_.shard_tokens = 64;
  const auto report = BuildDataset(config_, folder_ + "/out");
  ASSERT_TRUE(report.ok()) << report.error().ToString();
  const auto data = OpenDataset(folder_ + "/out");
  ASSERT_TRUE(data.ok()) << data.error().ToString();
  EXPECT_EQ(Shown(data->train), std::string(90, 'A') + std::string(54, 'B'));
  EXPECT_EQ(Shown(data->val), std::string(10, 'A') + std::string(6, 'B'));
  ASSERT_EQ(data->mix.size(), 2U);
  EXPECT_EQ(data->mix[1].first, 90U);
  EXPECT_EQ(data->mix[1].tokens, 54U);
  EXPECT_EQ(data->mix[1].share, 3072U);
  EXPECT_EQ(LoadDataset(config_)->mix[1].first, 90U);
  std::string manifest = *ReadFile(folder_ + "/out/dataset.json", 1 << 20);
  manifest.replace(manifest.find("3072"), 4, "3071");
  std::ofstream(folder_ + "/out/dataset.json") << manifest;
  EXPECT_NE(OpenDataset(folder_ + "/out").error().message.find("'mix'"), std::string::npos);
  config_.weights = {1};
  EXPECT_NE(LoadDataset(config_).error().message.find("1 numbers for 2 paths"), std::string::npos);
}

TEST_F(Build, GoesOnAfterAKillWithTheSameFilesWhateverTheThreads) {
  std::string lines;
  for (int i = 0; i < 400; ++i) {
    lines += fmt::format("{{\"prompt\": \"number {}\", \"completion\": \" is {}\"}}\n", i, i * i);
  }
  config_.paths = {Put("a.jsonl", lines), Put("b.txt", std::string(5000, 'x') + "\n")};
  config_.shard_tokens = 1024;
  for (const bool mix : {false, true}) {
    if (mix) config_.weights = {2, 1};
    ASSERT_TRUE(BuildDataset(config_, folder_ + "/whole", {.threads = 1}).ok());
    const auto whole = Files("whole");
    ASSERT_TRUE(BuildDataset(config_, folder_ + "/threads", {.threads = 3}).ok());
    EXPECT_EQ(Files("threads"), whole);
    // A build that was killed has some shards and the journal of the last of them: every such state
    // arises while a full disk lets only so many files be written.
    int went_on = 0;
    for (std::size_t keep = 1; keep + 3 < whole.size(); keep += 4) {
      const std::string out = folder_ + "/cut";
      fs::remove_all(out);
      const auto first = RunFirstPass(config_);
      ASSERT_TRUE(first.ok());
      {
        auto writer = DatasetWriter::Begin(out, *first, [](bool, const Shard&) {});
        ASSERT_TRUE(writer.ok());
        const Status cut = EncodeCorpus(*first, {}, [&](EncodedPart part) -> Status {
          LOOM_RETURN_IF_ERROR(writer->Append(part));
          const std::size_t files = static_cast<std::size_t>(
              std::distance(fs::directory_iterator(out), fs::directory_iterator()));
          return files > keep ? MakeError(Code::kIo, "killed") : Status();
        });
        ASSERT_FALSE(cut.ok());
      }
      std::uint64_t told = 0;
      const auto again = DatasetWriter::Begin(
          out, *first, [&](bool, const Shard& shard) { told += shard.size(); });
      ASSERT_TRUE(again.ok());
      went_on += told > 0 ? 1 : 0;
      const auto report = BuildDataset(config_, out, {.threads = 2});
      ASSERT_TRUE(report.ok()) << report.error().ToString();
      EXPECT_EQ(Files("cut"), whole) << keep;
      EXPECT_EQ(report->train_tokens, OpenDataset(out)->train.size());
    }
    EXPECT_GT(went_on, 2);
  }
}

TEST_F(Build, ACutBuildOfAnotherCorpusBeginsAnew) {
  const std::string path = Put("a.txt", std::string(5000, 'x'));
  config_.paths = {path};
  config_.shard_tokens = 1024;
  const auto first = RunFirstPass(config_);
  {
    auto writer = DatasetWriter::Begin(folder_ + "/out", *first, [](bool, const Shard&) {});
    ASSERT_TRUE(
        EncodeCorpus(*first, {}, [&](EncodedPart part) { return writer->Append(part); }).ok());
  }
  ASSERT_TRUE(fs::exists(folder_ + "/out/building.json"));
  Put("a.txt", std::string(2000, 'y'));
  ASSERT_TRUE(BuildDataset(config_, folder_ + "/out").ok());
  EXPECT_EQ(Files("out").size(), 5U) << "no shard and no journal of the other is left";
  EXPECT_EQ(Shown(OpenDataset(folder_ + "/out")->train), std::string(1800, 'Y'));
}

/// Little-endian ints as a file has them.
template <class T>
std::string Raw(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}
std::string LlmC(std::int32_t magic, std::int32_t version, std::int32_t count) {
  std::vector<std::int32_t> header(256);
  header[0] = magic;
  header[1] = version;
  header[2] = count;
  return Raw(header);
}

TEST_F(Build, TokenFilesOfNanoGptAndLlmC) {
  const std::vector<std::uint16_t> ids{72, 105, 32, 116, 104, 101, 114, 101, 33, 10};
  const std::vector<std::uint32_t> wide(ids.begin(), ids.end());
  const std::string nano = Put("nano.bin", Raw(ids));
  const std::string gpt2 = Put("gpt2.bin", LlmC(20240520, 1, 10) + Raw(ids));
  const std::string llama = Put("llama.bin", LlmC(20240801, 7, 10) + Raw(wide));
  config_.val_fraction = 0.2;
  for (const auto& [path, format] :
       {std::pair(nano, "nanogpt"), std::pair(gpt2, "llmc"), std::pair(llama, "llmc")}) {
    config_.paths = {path, path};
    config_.format = format;
    const auto data = LoadDataset(config_);
    ASSERT_TRUE(data.ok()) << data.error().ToString();
    EXPECT_EQ(Shown(data->train), "HI THERE!\nHI THE") << "16 of 20 tokens";
    EXPECT_EQ(Shown(data->val), "RE!\n");
  }
}

TEST_F(Build, TokenFilesAreReadStrictly) {
  const std::vector<std::uint16_t> ids{1, 2, 300};
  const auto error = [&](const std::string& bytes, const std::string& format) {
    config_.paths = {Put("x.bin", bytes)};
    config_.format = format;
    const auto data = LoadDataset(config_);
    return data.ok() ? "" : data.error().message;
  };
  const auto expect = [](const std::string& message, const std::string& part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect(error(Raw(ids), "auto"), "may be tokens of several kinds");
  expect(error(Raw(ids), "nanogpt"), "id 300 at index 2 is not below the vocabulary 256");
  expect(error(Raw(ids) + "x", "nanogpt"), "1 bytes behind the last of 3 ids");
  expect(error(Raw(ids), "llmc"), "6 bytes, llm.c's header has 1024");
  expect(error(LlmC(7, 1, 3) + Raw(ids), "llmc"), "magic 7, llm.c writes 20240520 or 20240801");
  expect(error(LlmC(20240520, 7, 3) + Raw(ids), "llmc"), "version 7, with magic 20240520 it is 1");
  expect(error(LlmC(20240520, 1, -3) + Raw(ids), "llmc"), "-3 ids");
  expect(error(LlmC(20240520, 1, 4) + Raw(ids), "llmc"), "3 ids, 4 were promised");
  expect(error(LlmC(20240520, 1, 2) + Raw(ids), "llmc"), "3 ids, 2 were promised");
  config_.tokenizer = "chars";
  expect(error(Raw(ids), "nanogpt"), "holds tokens, not characters");
}

}  // namespace
}  // namespace loom::data
