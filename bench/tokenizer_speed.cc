// The byte-level BPE on one thread, for bench/tokenizer_speed.py, which asks in turn with PyPI's
// `tokenizers`. Requests on stdin, seconds of each on stdout:
//   encode TOKENIZER.json TEXTS    TEXTS: a file of texts with a zero byte between them
//   train VOCAB TEXTS
#include <fmt/core.h>

#include <cstdlib>
#include <exception>
#include <iostream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/time.h"
#include "text/bpe_tokenizer.h"
#include "text/bpe_trainer.h"

using namespace loom;

namespace {

constexpr std::size_t kMaxFile = 256 << 20;

std::vector<std::string> TextsOf(const std::string& path) {
  const std::string all = ReadFile(path, kMaxFile).value();
  std::vector<std::string> texts;
  for (std::size_t at = 0; at <= all.size();) {
    const std::size_t end = std::min(all.find('\0', at), all.size());
    texts.push_back(all.substr(at, end - at));
    at = end + 1;
  }
  return texts;
}

double EncodeSeconds(const std::string& tokenizer_json, const std::vector<std::string>& texts) {
  const auto root = json::Parse(ReadFile(tokenizer_json, kMaxFile).value(),
                                {.max_bytes = kMaxFile, .max_values = 1 << 24})
                        .value();
  const auto tokenizer = text::BpeTokenizer::FromJson(root).value();
  std::size_t ids = 0;
  const Time begin = SystemClock().Now();
  for (const std::string& text : texts) ids += tokenizer->Encode(text).value().size();
  const double seconds = Seconds(SystemClock().Now() - begin);
  fmt::print(stderr, "{} ids\n", ids);
  return seconds;
}

double TrainSeconds(std::uint32_t vocab, const std::vector<std::string>& texts) {
  const auto read = [&](const text::TakeText& take) -> Status {
    for (const std::string& text : texts) take(text);
    return {};
  };
  const Time begin = SystemClock().Now();
  (void)text::TrainBpe(read, {.vocab_size = vocab, .special_tokens = {}, .pattern = {}}).value();
  return Seconds(SystemClock().Now() - begin);
}

}  // namespace

int main() try {
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string verb, with, path;
    words >> verb >> with >> path;
    const std::vector<std::string> texts = TextsOf(path);
    const double seconds =
        verb == "train"
            ? TrainSeconds(static_cast<std::uint32_t>(std::strtoul(with.c_str(), nullptr, 10)),
                           texts)
            : EncodeSeconds(with, texts);
    fmt::print("{:.6f}\n", seconds);
    std::fflush(stdout);
  }
  return 0;
} catch (const std::exception& e) {
  std::fputs(e.what(), stderr);
  return 1;
}
