// loom eval: the loss of a model on a text, how many multiple-choice questions it answers, or its
// raw logits for a list of ids.
#include <fmt/core.h>
#include <unistd.h>

#include <cmath>
#include <memory>
#include <numbers>

#include "app/model_source.h"
#include "app/output.h"
#include "app/peer_folder_source.h"
#include "app/verbs.h"
#include "base/file.h"
#include "data/choices.h"
#include "data/text_input.h"
#include "tensor/safetensors.h"
#include "train/evaluate.h"
#include "train/multiple_choice.h"

namespace loom::app {
namespace {

constexpr std::size_t kMaxTextBytes = std::size_t{1} << 32;
constexpr std::size_t kMaxQuestionBytes = 1 << 20;

struct Options {
  std::string model;
  std::string text;
  std::string split;
  std::string choices;
  std::string ids;
  std::string logits;
  std::string device = "auto";
  std::uint64_t threads = 0;
  bool json = false;
};

Result<std::vector<std::int32_t>> ReadIds(const std::string& path) {
  LOOM_ASSIGN(const std::string text, ReadFile(path, 64 << 20));
  const auto parsed = json::Parse(text);
  if (!parsed) return Error(parsed.error()).Context(path);
  const json::Value& value = *parsed;
  const json::Array* items = value.AsArray();
  if (items == nullptr) {
    return MakeError(Code::kInvalid,
                     fmt::format("{} holds {}, not an array of ids", path, value.KindName()));
  }
  std::vector<std::int32_t> ids;
  for (const json::Value& item : *items) {
    const std::uint64_t* id = item.AsUnsigned();
    if (id == nullptr || *id > 0x7fffffff) {
      return MakeError(Code::kInvalid, fmt::format("{}: item {} is no token id", path, ids.size()));
    }
    ids.push_back(static_cast<std::int32_t>(*id));
  }
  return ids;
}

Status WriteLogits(OpenedModel& model, const Options& options, Output& out) {
  LOOM_ASSIGN(const auto ids, ReadIds(options.ids));
  LOOM_ASSIGN(const std::vector<float> logits_TV, model.network->Logits(ids));
  const tensor::TensorView view{.name = "logits",
                                .dtype = tensor::DType::kF32,
                                .shape = {ids.size(), model.source.config.vocab},
                                .data = std::as_bytes(std::span(logits_TV))};
  LOOM_RETURN_IF_ERROR(tensor::WriteSafetensors(options.logits, std::span(&view, 1)));
  out.Event({{"logits", json::Value(options.logits)},
             {"tokens", json::Value(ids.size())},
             {"vocab", json::Value(model.source.config.vocab)}});
  if (!options.json)
    out.Say("wrote logits [{}, {}] to {}", ids.size(), model.source.config.vocab, options.logits);
  return {};
}

/// A line of progress; in a pipe what is done within two seconds needs none.
class SlowProgress {
 public:
  explicit SlowProgress(Output& out) : out_(out) {}
  void operator()(std::string_view text) {
    if (SystemClock().Now() - begin_ >= 2s || ::isatty(STDERR_FILENO) != 0) out_.Progress(text);
  }

 private:
  Output& out_;
  Time begin_ = SystemClock().Now();
};

Result<data::TokenStream> ReadStream(const OpenedModel& model, const Options& options) {
  if (!options.split.empty()) return ReadFolderSplit(options.model, options.split);
  LOOM_ASSIGN(const data::Tokenizer* tokenizer, model.Tokenizer());
  LOOM_ASSIGN(const std::string text, ReadFile(options.text, kMaxTextBytes));
  auto ids = tokenizer->Encode(text);
  if (!ids) return std::move(ids).error().Context(options.text);
  return data::TokenStream::FromTokens(*std::move(ids));
}

Status AnswerQuestions(OpenedModel& model, const Options& options, SlowProgress& progress,
                       Output& out) {
  LOOM_ASSIGN(const data::Tokenizer* tokenizer, model.Tokenizer());
  LOOM_ASSIGN(const auto input, data::OpenInput(options.choices));
  data::LineReader lines(*input, kMaxQuestionBytes);
  train::ChoiceScore score;
  for (std::uint64_t number = 1;; ++number) {
    LOOM_ASSIGN(const auto line, lines.Next());
    if (!line) break;
    const auto answer = [&]() -> Status {
      if (line->too_long) {
        return MakeError(Code::kLimit,
                         fmt::format("{} bytes, the limit is {}", line->size, kMaxQuestionBytes));
      }
      LOOM_ASSIGN(const data::Question question, data::ParseQuestion(line->text));
      LOOM_ASSIGN(const auto likelihoods,
                  train::ChoiceLikelihoods(*model.network, *tokenizer, question));
      train::Count(question, likelihoods, score);
      return {};
    };
    if (const Status done = answer(); !done) {
      return Error(done.error()).Context(fmt::format("'{}' line {}", options.choices, number));
    }
    progress(Counted(number, "question"));
  }
  if (score.questions == 0) {
    return MakeError(Code::kInvalid, fmt::format("'{}' has no question", options.choices));
  }
  const auto questions = static_cast<double>(score.questions);
  const double acc = static_cast<double>(score.right) / questions;
  const double acc_norm = static_cast<double>(score.right_normalized) / questions;
  out.Event({{"acc", json::Value(acc)},
             {"acc_norm", json::Value(acc_norm)},
             {"questions", json::Value(score.questions)}});
  if (!options.json) {
    out.Say("{}: {:.4f} right by likelihood, {:.4f} by likelihood a character",
            Counted(score.questions, "question"), acc, acc_norm);
  }
  return {};
}

Status Eval(const Options& options) {
  const int wanted = (options.text.empty() ? 0 : 1) + (options.split.empty() ? 0 : 1) +
                     (options.ids.empty() ? 0 : 1) + (options.choices.empty() ? 0 : 1);
  if (wanted != 1 || options.ids.empty() != options.logits.empty()) {
    return MakeError(
        Code::kInvalid,
        "one of --text FILE, --split NAME, --choices FILE, or --ids FILE with --logits "
        "FILE is needed",
        "loom eval --help");
  }
  if (!options.split.empty() && !IsPeerFolder(options.model)) {
    return MakeError(Code::kInvalid,
                     fmt::format("--split {}: {} is no peer's folder, it holds no data",
                                 options.split, options.model),
                     "give a text with --text FILE");
  }
  Output out(options.json);
  SlowProgress progress(out);
  progress("reading the model");
  LOOM_ASSIGN(OpenedModel model, OpenModel(options.model, options.device, options.threads));
  if (!options.ids.empty()) return WriteLogits(model, options, out);
  if (!options.choices.empty()) return AnswerQuestions(model, options, progress, out);
  progress("reading the text");
  LOOM_ASSIGN(const data::TokenStream stream, ReadStream(model, options));
  const auto show = [&](std::uint64_t done, std::uint64_t total) {
    progress(fmt::format("{} % of {} tokens", 100 * done / total, HumanCount(total)));
  };
  LOOM_ASSIGN(const model::LossSum sum,
              train::EvaluateLoss(*model.network, stream, std::atomic<bool>(false), show));
  const double loss = sum.nll / static_cast<double>(sum.tokens);
  LOOM_ASSIGN(const data::Tokenizer* tokenizer, model.Tokenizer());
  const std::uint64_t bytes = train::TargetBytes(*tokenizer, stream);
  const double bits = sum.nll / std::numbers::ln2 / static_cast<double>(bytes);
  out.Event({{"loss", json::Value(loss)},
             {"tokens", json::Value(sum.tokens)},
             {"perplexity", json::Value(std::exp(loss))},
             {"bits_per_byte", json::Value(bits)},
             {"bytes", json::Value(bytes)}});
  if (!options.json) {
    out.Say("loss {:.4f} nats a token (perplexity {:.2f}, {:.4f} bits a byte) over {} tokens{}",
            loss, std::exp(loss), bits, HumanCount(sum.tokens),
            model.round ? fmt::format(", with the state after round {}", *model.round) : "");
  }
  return {};
}

}  // namespace

Verb EvalVerb() {
  auto options = std::make_shared<Options>();
  return {.name = "eval",
          .summary = "Measure a model's loss on a text, or its answers to questions",
          .example = "loom eval demo/model --text book.txt --json",
          .declare =
              [options](Args& args) {
                args.Positional("model", options->model,
                                "A Hugging Face folder or a peer's folder");
                args.Option("--text", "FILE", options->text, "Text whose loss is measured");
                args.Option("--split", "NAME", options->split,
                            "val or train: that part of a peer's folder's data");
                args.Option("--choices", "FILE", options->choices,
                            "Questions as jsonl: query, choices, answer (an index)");
                args.Option("--ids", "FILE", options->ids, "JSON array of token ids");
                args.Option("--logits", "FILE", options->logits,
                            "safetensors file for the logits [T, V] of --ids");
                args.Option("--device", "NAME", options->device, "auto, cpu or cuda");
                args.Option("--threads", "N", options->threads, "0 = half of the processors");
                args.Flag("--json", options->json, "One object: loss, tokens, ...");
              },
          .run = [options] { return Eval(*options); }};
}

}  // namespace loom::app
