#include "data/corpus.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace loom::data {
namespace {

class Corpus : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "loom_corpus_" +
              ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    config_.paths = {folder_};
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Put(const std::string& name, std::string_view text) {
    const std::filesystem::path path = std::filesystem::path(folder_) / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
    return path.string();
  }
  Result<CorpusStats> Read() {
    texts_.clear();
    return ReadCorpus(config_, [&](const Document& d) -> Status {
      texts_.emplace_back(d.text);
      return {};
    });
  }
  std::string FirstError() {
    const auto stats = Read();
    EXPECT_FALSE(stats.ok());
    return stats.ok() ? "" : stats.error().message;
  }

  std::string folder_;
  DataConfig config_;
  std::vector<std::string> texts_;
};

TEST_F(Corpus, FoldersAreReadSortedAndDeep) {
  Put("b.txt", "B");
  Put("a/z.txt", "Z");
  Put("a/b/c.jsonl", "{\"text\": \"one\"}\n{\"text\": \"two\", \"source\": {\"id\": 1}}\r\n");
  Put("notes.md", "not read");
  const auto stats = Read();
  ASSERT_TRUE(stats.ok()) << stats.error().ToString();
  EXPECT_EQ(texts_, (std::vector<std::string>{"one", "two", "Z", "B"}));
  EXPECT_EQ(stats->files.size(), 3U);
  EXPECT_EQ(stats->documents, 4U);
  EXPECT_EQ(stats->bytes, 8U);
}

TEST_F(Corpus, AByteOrderMarkIsNoText) {
  Put("a.txt", "\xEF\xBB\xBFhi");
  ASSERT_TRUE(Read().ok());
  EXPECT_EQ(texts_[0], "hi");
}

TEST_F(Corpus, WhatIsNoTextStopsAndIsNamed) {
  Put("a.txt", "");
  EXPECT_NE(FirstError().find("a.txt': the file is empty"), std::string::npos);
  Put("a.txt", std::string_view("line\nELF\0\1", 10));
  EXPECT_NE(FirstError().find("a.txt' line 2: a zero byte"), std::string::npos);
  Put("a.txt", "one\ntwo\nthr\xC3\n");
  EXPECT_NE(FirstError().find("a.txt' line 3: invalid UTF-8 at byte 11"), std::string::npos);
}

TEST_F(Corpus, BadLinesAreCountedByNumberWhenSkipped) {
  config_.max_line_bytes = 60;
  Put("a.jsonl",
      "{\"text\": \"good\"}\n"
      "\n"
      "{\"text\": 5}\n"
      "{\"messages\": []}\n"
      "[1]\n"
      "{\"text\": \"a\", \"text\": \"b\"}\n"
      "{\"text\": \"\xFF\"}\n"
      "{\"text\": \"\"}\n"
      "{\"text\": \"" +
          std::string(100, 'x') +
          "\"}\n"
          "{\"text\": \"cut\n"
          "{\"text\": \"last\"}");
  EXPECT_NE(FirstError().find("a.jsonl' line 2: an empty line"), std::string::npos);
  config_.skip_bad = true;
  const auto stats = Read();
  ASSERT_TRUE(stats.ok());
  EXPECT_EQ(texts_, (std::vector<std::string>{"good", "last"}));
  ASSERT_EQ(stats->bad_count, 9U);
  const std::vector<std::string> reasons{"empty line", "no string",     "'messages'",
                                         "no object",  "duplicate key", "invalid UTF-8",
                                         "is empty",   "limit is 60",   "invalid JSON"};
  for (std::size_t i = 0; i < reasons.size(); ++i) {
    EXPECT_EQ(stats->bad_lines[i].line, i + 2);
    EXPECT_NE(stats->bad_lines[i].reason.find(reasons[i]), std::string::npos)
        << stats->bad_lines[i].reason;
  }
}

TEST_F(Corpus, ListedBadLinesAreBounded) {
  Put("a.jsonl", "{\"text\": \"x\"}" + std::string(1000, '\n'));
  config_.skip_bad = true;
  const auto stats = Read();
  ASSERT_TRUE(stats.ok());
  EXPECT_EQ(stats->bad_count, 999U);
  EXPECT_EQ(stats->bad_lines.size(), kMaxBadLines);
}

TEST_F(Corpus, PatternsMatchFilesAndFolders) {
  Put("one/b.txt", "B");
  Put("two/a.txt", "A");
  Put("two/c.text", "C");
  Put("three.txt", "T");
  config_.paths = {folder_ + "/*.txt", folder_ + "/t[wx]o", folder_ + "/*/?.text"};
  ASSERT_TRUE(Read().ok());
  EXPECT_EQ(texts_, (std::vector<std::string>{"T", "A", "C"}));
  config_.paths = {folder_ + "/*.md"};
  EXPECT_NE(FirstError().find("*.md' matches nothing"), std::string::npos);
  config_.paths = {Put("x[1].txt", "a file is a file, whatever its name")};
  ASSERT_TRUE(Read().ok());
}

TEST_F(Corpus, FaultsAndDuplicatesAreCountedByKind) {
  config_.skip_bad = true;
  config_.max_line_bytes = 40;
  Put("a.jsonl",
      "{\"text\": \"x\"}\n{\"text\": \"y\"}\n{\"text\": \"x\"}\n\n{\"text\": \"\"}\n{\"text\": "
      "\"\xFF\"}\n" +
          std::string(50, ' ') + "\n{\"text\": 1}\n{\"text\": \"x\"}\n");
  Put("b.txt", "y");
  Put("c.txt", "\xC3");
  const auto stats =
      ReadCorpus(config_, [](const Document&) -> Status { return {}; }, {.find_duplicates = true});
  ASSERT_TRUE(stats.ok());
  EXPECT_EQ(stats->documents, 5U);
  EXPECT_EQ(stats->duplicates, 3U);
  EXPECT_TRUE(stats->first_duplicate.ends_with("a.jsonl:3")) << stats->first_duplicate;
  EXPECT_EQ(stats->Complaints(),
            "6 bad lines left out (2 empty, 1 over-long, 2 not UTF-8, 1 malformed), 3 duplicate "
            "documents (the first: " +
                stats->first_duplicate + ")");
}

TEST_F(Corpus, ProgressCountsBytesAndCanEndTheRead) {
  std::string text;
  while (text.size() < 3 << 20) text += "{\"text\": \"some words to read\"}\n";
  Put("a.jsonl", text);
  std::uint64_t last = 0;
  const auto read = [&](std::uint64_t stop) {
    return ReadCorpus(config_, [](const Document&) -> Status { return {}; },
                      {.progress = [&, stop](std::uint64_t done, std::uint64_t total) -> Status {
                        EXPECT_EQ(total, text.size());
                        EXPECT_GE(done, last);
                        last = done;
                        return done < stop ? Status() : MakeError(Code::kRefused, "stopped");
                      }});
  };
  EXPECT_TRUE(read(1ULL << 40).ok());
  EXPECT_GT(last, 2U << 20);
  last = 0;
  EXPECT_EQ(read(1).error().code, Code::kRefused);
}

TEST_F(Corpus, MissingAndEmptyPaths) {
  EXPECT_NE(FirstError().find("no .txt or .jsonl file"), std::string::npos);
  config_.paths = {folder_ + "/nothing"};
  EXPECT_NE(FirstError().find("does not exist"), std::string::npos);
  config_.paths = {};
  EXPECT_NE(FirstError().find("data.paths is empty"), std::string::npos);
  config_.paths = {Put("x.txt", "x")};
  config_.format = "parquet";
  EXPECT_NE(FirstError().find("parquet"), std::string::npos);
  config_.format = "auto";
  config_.skip_bad = true;
  Put("x.txt", "");
  EXPECT_NE(FirstError().find("no document"), std::string::npos);
}

}  // namespace
}  // namespace loom::data
