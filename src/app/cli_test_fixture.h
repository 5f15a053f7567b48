// A folder of its own for each test and the real program run in it, as a script would.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/file.h"
#include "base/json.h"

namespace loom::app {

namespace fs = std::filesystem;

struct Ran {
  int code = -1;
  std::string out;  ///< stdout
  std::string err;
};

class Cli : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::temp_directory_path() /
           ("loom_cli_" +
            std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()) +
            std::to_string(getpid()));
    fs::create_directories(dir_);
  }
  void TearDown() override {
    if (!HasFailure()) fs::remove_all(dir_);
  }
  std::string Path(const std::string& name) const { return (dir_ / name).string(); }
  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(Path(name), std::ios::binary) << text;
  }
  std::string Read(const std::string& name) const {
    auto text = ReadFile(Path(name), 1 << 26);
    EXPECT_TRUE(text.ok()) << text.error().ToString();
    return text.ok() ? *text : "";
  }
  Ran Run(const std::string& arguments) const {
    const std::string command =
        std::string(LOOM_BINARY) + " " + arguments + " >" + Path("stdout") + " 2>" + Path("stderr");
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, Read("stdout"), Read("stderr")};
  }
  static json::Value Parsed(const std::string& text) {
    auto value = json::Parse(text);
    EXPECT_TRUE(value.ok()) << text;
    return value.ok() ? *value : json::Value();
  }
  /// The last line of an NDJSON output.
  static json::Value LastLine(std::string text) {
    while (!text.empty() && text.back() == '\n') text.pop_back();
    const std::size_t at = text.rfind('\n');
    return Parsed(at == std::string::npos ? text : text.substr(at + 1));
  }
  static double Number(const json::Value& value, const char* key) {
    double number = -1;
    const json::Value* found = value.Find(key);
    EXPECT_NE(found, nullptr) << key;
    if (found != nullptr) {
      EXPECT_TRUE(found->AsNumber(number)) << key;
    }
    return number;
  }
  static std::string Story() {
    std::string text;
    for (int i = 0; i < 600; ++i) {
      text += "the " + std::string(i % 3 == 0 ? "cat" : "dog") + " sat on the " +
              (i % 2 == 0 ? "mat" : "log") + ".\n";
    }
    return text;
  }

  fs::path dir_;
};

}  // namespace loom::app
