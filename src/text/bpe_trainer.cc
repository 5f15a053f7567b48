#include "text/bpe_trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <numeric>
#include <thread>

#include "base/json.h"
#include "base/utf8.h"
#include "text/bpe_model.h"
#include "text/byte_symbols.h"
#include "text/pair_learner.h"
#include "text/pre_tokenizer.h"

namespace loom::text {
namespace {

json::Value ByteLevelJson(bool use_regex) {
  return json::Object{{"type", "ByteLevel"},
                      {"add_prefix_space", false},
                      {"trim_offsets", true},
                      {"use_regex", use_regex}};
}

json::Value PreTokenizerJson(const std::string& pattern) {
  if (pattern.empty()) return ByteLevelJson(true);
  json::Array steps;
  steps.reserve(2);
  steps.emplace_back(json::Object{{"type", "Split"},
                                  {"pattern", json::Object{{"Regex", pattern}}},
                                  {"behavior", "Isolated"},
                                  {"invert", false}});
  steps.push_back(ByteLevelJson(false));
  return json::Object{{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
}

/// Counts the pieces of texts on several threads; the counts do not depend on who took which text.
class WordCounter {
 public:
  WordCounter(const PreTokenizer& pre, std::uint32_t threads) : pre_(pre) {
    others_.reserve(threads);
    for (std::uint32_t i = 1; i < threads; ++i) others_.emplace_back([this] { Work(); });
  }
  ~WordCounter() { Join(); }
  WordCounter(const WordCounter&) = delete;
  WordCounter& operator=(const WordCounter&) = delete;

  void Take(std::string text) {
    std::unique_lock lock(mutex_);
    if (others_.empty()) {
      lock.unlock();
      Count(text, total_);
      return;
    }
    changed_.wait(lock, [&] { return waiting_.size() < 4 * others_.size(); });
    waiting_.push_back(std::move(text));
    changed_.notify_all();
  }

  Result<WordCounts> Finish() {
    Join();
    LOOM_RETURN_IF_ERROR(status_);
    return std::move(total_);
  }

 private:
  void Join() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
      changed_.notify_all();
    }
    for (std::thread& other : others_) other.join();
    others_.clear();
  }

  void Work() {
    WordCounts own;
    for (;;) {
      std::string text;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return ended_ || !waiting_.empty(); });
        if (waiting_.empty()) break;
        text = std::move(waiting_.front());
        waiting_.pop_front();
        changed_.notify_all();
      }
      Count(text, own);
    }
    const std::lock_guard lock(mutex_);
    total_.Add(own);
  }

  void Count(std::string_view text, WordCounts& counts) {
    Status status;
    if (const std::size_t bad = FindInvalidUtf8(text); bad != std::string_view::npos) {
      status = MakeError(Code::kInvalid, fmt::format("invalid UTF-8 at byte {} of a text", bad));
    }
    std::deque<std::string> made;
    std::vector<std::string_view> pieces;
    while (status.ok() && !text.empty()) {
      const std::string_view line = text.substr(0, text.find('\n') + 1);
      const std::string_view whole = line.empty() ? text : line;  // the last one has no end
      status = pre_.Split(whole, made, pieces);
      for (const std::string_view piece : pieces) counts.Add(piece);
      text.remove_prefix(whole.size());
    }
    if (status.ok()) return;
    const std::lock_guard lock(mutex_);
    status_ = std::move(status);
  }

  const PreTokenizer& pre_;
  std::mutex mutex_;  ///< of all that follows
  std::condition_variable changed_;
  std::deque<std::string> waiting_;
  bool ended_ = false;
  Status status_;
  WordCounts total_;
  std::vector<std::thread> others_;
};

/// Special tokens, then the bytes in the order of their symbols.
struct Alphabet {
  Vocab vocab;
  std::int32_t symbol_of[256] = {};
};

Result<Alphabet> MakeAlphabet(const BpeTrainOptions& options) {
  Alphabet made;
  std::int32_t next = 0;
  for (const std::string& token : options.special_tokens) {
    if (!made.vocab.Add(token, next++)) {
      return MakeError(Code::kInvalid,
                       fmt::format("the special token '{}' is empty or given twice", token));
    }
  }
  std::vector<std::size_t> bytes(256);
  std::iota(bytes.begin(), bytes.end(), std::size_t{0});
  std::sort(bytes.begin(), bytes.end(),
            [](std::size_t a, std::size_t b) { return ByteSymbols()[a] < ByteSymbols()[b]; });
  for (const std::size_t b : bytes) {
    const char byte = static_cast<char>(b);
    if (!made.vocab.Add({&byte, 1}, next)) {
      return MakeError(Code::kInvalid, fmt::format("a special token is the single byte {}", b));
    }
    made.symbol_of[b] = next++;
  }
  return made;
}

}  // namespace

Result<std::string> TrainBpe(const ReadTexts& read, const BpeTrainOptions& options) {
  const std::size_t least = 256 + options.special_tokens.size();
  if (options.vocab_size < least || options.vocab_size > BpeModel::kMaxVocab) {
    return MakeError(Code::kInvalid, fmt::format("a vocabulary of {}, allowed are {} to {}",
                                                 options.vocab_size, least, BpeModel::kMaxVocab));
  }
  const json::Value pre_json = PreTokenizerJson(options.pattern);
  LOOM_ASSIGN(const PreTokenizer pre, PreTokenizer::FromJson(pre_json));
  LOOM_ASSIGN(Alphabet alphabet, MakeAlphabet(options));
  WordCounter counter(pre, options.threads);
  LOOM_RETURN_IF_ERROR(read([&](std::string text) { counter.Take(std::move(text)); }));
  LOOM_ASSIGN(const WordCounts counts, counter.Finish());
  if (counts.size() == 0) return MakeError(Code::kInvalid, "no text to learn a tokenizer from");

  Vocab& vocab = alphabet.vocab;
  const std::vector<SymbolPair> merges =
      LearnMerges(counts, alphabet.symbol_of,
                  {.min_frequency = options.min_frequency,
                   .wants_more = [&] { return vocab.count() < options.vocab_size; },
                   .id_of =
                       [&](SymbolPair pair) {
                         std::string bytes(vocab.BytesOf(pair.first));
                         bytes += vocab.BytesOf(pair.second);
                         const std::int32_t known = vocab.Find(bytes);
                         if (known != Vocab::kNone) return known;
                         const auto id = static_cast<std::int32_t>(vocab.size());
                         vocab.Add(bytes, id);
                         return id;
                       }});

  json::Array added;
  json::Object tokens;
  added.reserve(options.special_tokens.size());
  tokens.reserve(vocab.size());
  for (std::uint32_t id = 0; id < vocab.size(); ++id) {
    const std::string_view bytes = vocab.BytesOf(static_cast<std::int32_t>(id));
    if (id >= options.special_tokens.size()) {
      tokens.emplace_back(ToByteSymbols(bytes), id);
      continue;
    }
    tokens.emplace_back(std::string(bytes), id);
    added.emplace_back(json::Object{{"id", id},
                                    {"content", bytes},
                                    {"single_word", false},
                                    {"lstrip", false},
                                    {"rstrip", false},
                                    {"normalized", false},
                                    {"special", true}});
  }
  json::Array pairs;
  pairs.reserve(merges.size());
  for (const auto& [left, right] : merges) {
    json::Array both;
    both.reserve(2);
    both.push_back(json::Value(ToByteSymbols(vocab.BytesOf(left))));
    both.push_back(json::Value(ToByteSymbols(vocab.BytesOf(right))));
    pairs.push_back(json::Value(std::move(both)));
  }
  return json::Dump(json::Object{{"version", "1.0"},
                                 {"truncation", nullptr},
                                 {"padding", nullptr},
                                 {"added_tokens", std::move(added)},
                                 {"normalizer", nullptr},
                                 {"pre_tokenizer", pre_json},
                                 {"post_processor", nullptr},
                                 {"decoder", ByteLevelJson(true)},
                                 {"model", json::Object{{"type", "BPE"},
                                                        {"dropout", nullptr},
                                                        {"unk_token", nullptr},
                                                        {"continuing_subword_prefix", nullptr},
                                                        {"end_of_word_suffix", nullptr},
                                                        {"fuse_unk", false},
                                                        {"byte_fallback", false},
                                                        {"ignore_merges", false},
                                                        {"vocab", std::move(tokens)},
                                                        {"merges", std::move(pairs)}}}},
                    2) +
         "\n";
}

}  // namespace loom::text
