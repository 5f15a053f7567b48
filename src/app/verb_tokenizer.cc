// loom tokenizer: text to ids and back with a model's tokenizer, and a byte-level BPE learnt from a
// corpus.
#include <fmt/core.h>

#include <filesystem>
#include <iostream>
#include <iterator>
#include <memory>
#include <thread>

#include "app/output.h"
#include "app/print.h"
#include "app/verbs.h"
#include "base/file.h"
#include "base/json.h"
#include "base/utf8.h"
#include "data/corpus.h"
#include "data/jsonl_line.h"
#include "data/tokenizer.h"
#include "text/bpe_trainer.h"
#include "text/pre_tokenizer.h"

namespace loom::app {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxInput = std::size_t{1} << 30;

struct CodeOptions {
  std::string model;
  bool lines = false;
  bool plain = false;
};

struct TrainOptions {
  std::vector<std::string> paths;
  std::string out = "tokenizer.json";
  std::uint64_t vocab = 1024;
  std::uint64_t min_frequency = 2;
  std::uint64_t threads = 0;
  std::string pattern = "gpt2";
  std::vector<std::string> special;
  bool json = false;
};

/// A tokenizer.json, or the folder of a model or of a peer.
Result<std::unique_ptr<data::Tokenizer>> OpenTokenizer(const std::string& model) {
  std::string path = model;
  std::error_code error;
  if (fs::is_directory(model, error)) {
    path = model + "/tokenizer.json";
    if (!fs::exists(path, error)) path = model + "/data/tokenizer.json";
  }
  LOOM_ASSIGN(const std::string text, ReadFile(path, data::Tokenizer::kMaxJsonBytes));
  auto tokenizer = data::Tokenizer::FromJson(AsBytes(text));
  if (!tokenizer) return std::move(tokenizer).error().Context(path);
  return tokenizer;
}

Result<std::string> ReadStdin() {
  std::string text(std::istreambuf_iterator<char>(std::cin), {});
  if (text.size() <= kMaxInput) return text;
  return MakeError(Code::kLimit,
                   fmt::format("{} bytes on stdin, at most {} are read", text.size(), kMaxInput));
}

/// Calls `each` with every line without its end.
Status ForEachLine(std::string_view text,
                   const std::function<Status(std::string_view, std::size_t)>& each) {
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    if (end > 0) LOOM_RETURN_IF_ERROR(each(text.substr(0, end), number));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return {};
}

std::string IdsJson(const std::vector<std::int32_t>& ids) {
  std::string out = "[";
  for (std::size_t i = 0; i < ids.size(); ++i)
    out += fmt::format("{}{}", i == 0 ? "" : ", ", ids[i]);
  return out + "]";
}

Status EncodeStdin(const CodeOptions& options) {
  LOOM_ASSIGN(const auto tokenizer, OpenTokenizer(options.model));
  LOOM_ASSIGN(const std::string input, ReadStdin());
  const auto print = [&](std::string_view text) -> Status {
    LOOM_ASSIGN(const auto ids,
                options.plain ? tokenizer->Encode(text) : tokenizer->EncodeWhole(text));
    Print(stdout, "{}\n", IdsJson(ids));
    return {};
  };
  const auto print_as_trained = [&](const data::MarkedText& marked) -> Status {
    const std::string_view text = marked.text;
    std::vector<std::int32_t> all;
    LOOM_RETURN_IF_ERROR(data::ForFates(
        marked.spans, text.size(), [&](std::size_t at, std::size_t size, bool) -> Status {
          LOOM_ASSIGN(const auto ids, tokenizer->Encode(text.substr(at, size)));
          all.insert(all.end(), ids.begin(), ids.end());
          return {};
        }));
    Print(stdout, "{}\n", IdsJson(all));
    return {};
  };
  if (!options.lines) return print(input);
  return ForEachLine(input, [&](std::string_view line, std::size_t number) -> Status {
    data::Fault fault{};
    const data::LineRules rules{.chat = data::RecogniseChat(*tokenizer), .loss_on_all = false};
    const auto parsed = data::ParseJsonlLine(line, rules, fault);
    Status done = !parsed                               ? Status(parsed.error())
                  : parsed->shape == data::Shape::kText ? print(parsed->marked.text)
                                                        : print_as_trained(parsed->marked);
    if (!done) return std::move(done).error().Context(fmt::format("line {}", number));
    return {};
  });
}

Status DecodeStdin(const CodeOptions& options) {
  LOOM_ASSIGN(const auto tokenizer, OpenTokenizer(options.model));
  LOOM_ASSIGN(const std::string input, ReadStdin());
  return ForEachLine(input, [&](std::string_view line, std::size_t number) -> Status {
    auto value =
        json::Parse(line, {.max_bytes = kMaxInput, .max_depth = 2, .max_values = kMaxInput / 2});
    if (!value) return std::move(value).error().Context(fmt::format("line {}", number));
    const json::Array* list = value->AsArray();
    std::vector<std::int32_t> ids;
    ids.reserve(list == nullptr ? 0 : list->size());
    for (std::size_t i = 0; list != nullptr && i < list->size(); ++i) {
      const std::uint64_t* id = (*list)[i].AsUnsigned();
      if (id == nullptr || *id >= tokenizer->vocab_size()) {
        return MakeError(Code::kInvalid, fmt::format("line {}, number {}: no id below {}", number,
                                                     i, tokenizer->vocab_size()));
      }
      ids.push_back(static_cast<std::int32_t>(*id));
    }
    if (list == nullptr) {
      return MakeError(Code::kInvalid, fmt::format("line {} is no list of ids", number),
                       "one JSON list a line, as loom tokenizer encode prints");
    }
    const std::string text = tokenizer->Decode(ids);
    if (options.lines) {
      Print(stdout, "{}\n", json::Dump(json::Object{{"text", text}}));
    } else {
      std::fwrite(text.data(), 1, text.size(), stdout);
    }
    return {};
  });
}

Result<std::string> PatternOf(const std::string& name) {
  if (name == "gpt2") return std::string();
  if (name == "llama3") return std::string(text::kLlama3Pattern);
  if (name == "qwen2") return std::string(text::kQwen2Pattern);
  return MakeError(Code::kInvalid, fmt::format("--pattern {} is not known", name),
                   "one of gpt2, llama3, qwen2");
}

Status Train(const TrainOptions& options) {
  LOOM_RETURN_IF_ERROR(CheckRange("--vocab", options.vocab, 256, 1 << 21));
  LOOM_RETURN_IF_ERROR(CheckRange("--threads", options.threads, 0, 256));
  std::error_code error;
  if (fs::exists(options.out, error)) {
    return MakeError(Code::kConflict, fmt::format("{} exists", options.out),
                     "choose another --out; nothing is written over");
  }
  text::BpeTrainOptions train;
  train.vocab_size = static_cast<std::uint32_t>(options.vocab);
  train.min_frequency = options.min_frequency;
  train.special_tokens = options.special;
  train.threads = options.threads != 0 ? static_cast<std::uint32_t>(options.threads)
                                       : std::max(1U, std::thread::hardware_concurrency());
  LOOM_ASSIGN(train.pattern, PatternOf(options.pattern));
  data::DataConfig corpus;
  corpus.paths = options.paths;
  corpus.chat = "chatml";  // what a template writes is not learnt from
  data::CorpusStats stats;
  const auto read = [&](const text::TakeText& take) -> Status {
    LOOM_ASSIGN(stats, data::ReadCorpus(corpus, [&](const data::Document& document) -> Status {
                  std::size_t at = 0;
                  for (const data::Span& span : document.spans) {
                    if (!span.markup) take(std::string(document.text.substr(at, span.size)));
                    at += span.size;
                  }
                  if (document.spans.empty()) take(std::string(document.text));
                  return {};
                }));
    return {};
  };
  LOOM_ASSIGN(const std::string made, text::TrainBpe(read, train));
  LOOM_ASSIGN(const auto tokenizer, data::Tokenizer::FromJson(AsBytes(made)));
  LOOM_RETURN_IF_ERROR(WriteFileAtomic(options.out, AsBytes(made)));
  Output out(options.json);
  out.Event({{"tokenizer", json::Value(options.out)},
             {"vocab", json::Value(tokenizer->vocab_size())},
             {"bytes", json::Value(stats.bytes)}});
  out.Say("wrote {}: {} tokens from {}{}", options.out, HumanCount(tokenizer->vocab_size()),
          HumanBytes(static_cast<double>(stats.bytes)),
          tokenizer->vocab_size() < options.vocab ? " (no more pairs are frequent enough)" : "");
  return {};
}

}  // namespace

Verb TokenizerEncodeVerb() {
  auto options = std::make_shared<CodeOptions>();
  return {.name = "tokenizer encode",
          .summary = "Token ids of the text on stdin, as one JSON list",
          .example = "loom tokenizer encode model < text.txt",
          .declare =
              [options](Args& args) {
                args.Positional("MODEL", options->model,
                                "A tokenizer.json, or the folder of a model or of a peer");
                args.Flag("--jsonl", options->lines,
                          "A document a line: {\"text\": ...}, or messages, or prompt and "
                          "completion as they are trained on; a list each");
                args.Flag("--no-special", options->plain,
                          "Without the tokens that the tokenizer puts around a text");
              },
          .run = [options] { return EncodeStdin(*options); }};
}

Verb TokenizerDecodeVerb() {
  auto options = std::make_shared<CodeOptions>();
  return {.name = "tokenizer decode",
          .summary = "Text of the token ids on stdin, one JSON list a line",
          .example = "loom tokenizer decode model < ids.json",
          .declare =
              [options](Args& args) {
                args.Positional("MODEL", options->model,
                                "A tokenizer.json, or the folder of a model or of a peer");
                args.Flag("--jsonl", options->lines, "Print {\"text\": ...} for each list");
              },
          .run = [options] { return DecodeStdin(*options); }};
}

Verb TokenizerTrainVerb() {
  auto options = std::make_shared<TrainOptions>();
  return {.name = "tokenizer train",
          .summary = "Learn a byte-level BPE from a corpus",
          .example = "loom tokenizer train book.txt --vocab 1024 --out tokenizer.json",
          .declare =
              [options](Args& args) {
                args.Positional("paths", options->paths,
                                "Text or jsonl files, or folders of these");
                args.Option("--out", "FILE", options->out, "Where to write it");
                args.Option("--vocab", "N", options->vocab, "Tokens, 256 bytes among them");
                args.Option("--min-frequency", "N", options->min_frequency,
                            "A pair must occur so often to become a token");
                args.Option("--special", "TOKEN", options->special,
                            "A special token; may be given again");
                args.Option("--pattern", "NAME", options->pattern,
                            "How text is split first: gpt2, llama3 or qwen2");
                args.Option("--threads", "N", options->threads, "0 = all processors");
                args.Flag("--json", options->json, "One object: tokenizer, vocab, bytes");
              },
          .run = [options] { return Train(*options); }};
}

}  // namespace loom::app
