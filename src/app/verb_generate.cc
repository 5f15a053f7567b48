// loom generate: text from a model folder.
#include <fmt/core.h>

#include <cstdio>
#include <memory>
#include <utility>

#include "app/model_source.h"
#include "app/output.h"
#include "app/print.h"
#include "app/verbs.h"
#include "model/generate.h"

namespace loom::app {
namespace {

struct Options {
  std::string model;
  std::string prompt;
  std::uint64_t tokens = 256;
  bool greedy = false;
  double temperature = 0.8;
  std::uint64_t top_k = 0;
  double top_p = 1.0;
  std::uint64_t seed = 0;
  std::string device = "auto";
  std::uint64_t threads = 0;
  bool json = false;
};

json::Array ToArray(std::span<const std::int32_t> ids) {
  json::Array out;
  for (const std::int32_t id : ids) out.emplace_back(id);
  return out;
}

constexpr std::uint64_t kMaxTokens = 1'000'000;

/// The ids to begin with. Without a prompt: the token that begins a text, else a line's end, else
/// the vocabulary's first.
Result<std::vector<std::int32_t>> BeginningOf(const data::Tokenizer& tokenizer,
                                              const std::string& prompt) {
  if (!prompt.empty()) return tokenizer.EncodeWhole(prompt);
  if (const auto begin = tokenizer.BeginId()) return std::vector{*begin};
  if (auto line = tokenizer.Encode("\n"); line && !line->empty()) return line;
  return std::vector<std::int32_t>{0};
}

Status Generate(const Options& options) {
  if (options.tokens > kMaxTokens) {
    return MakeError(Code::kInvalid,
                     fmt::format("--tokens {} is more than {}", options.tokens, kMaxTokens));
  }
  LOOM_ASSIGN(OpenedModel model, OpenModel(options.model, options.device, options.threads));
  LOOM_ASSIGN(const data::Tokenizer* found, model.Tokenizer());
  const data::Tokenizer& tokenizer = *found;
  LOOM_ASSIGN(const std::vector<std::int32_t> prompt, BeginningOf(tokenizer, options.prompt));
  model::GenerateOptions generate;
  generate.max_new_tokens = options.tokens;
  generate.greedy = options.greedy;
  generate.temperature = static_cast<float>(options.temperature);
  generate.top_k = static_cast<std::uint32_t>(std::min<std::uint64_t>(options.top_k, 1U << 30));
  generate.top_p = static_cast<float>(options.top_p);
  generate.seed = options.seed;
  model::TokenCallback print;
  if (!options.json) {
    // Tokens of `bytes` are parts of characters: decode what is new once all of it is there.
    print = [&, begun = false, pending = std::vector<std::int32_t>()](std::int32_t id) mutable {
      if (!std::exchange(begun, true)) Print(stdout, "{}", Printable(options.prompt));
      pending.push_back(id);
      const std::string text = tokenizer.Decode(pending);
      if (Printable(text).find("\xEF\xBF\xBD") == std::string::npos || pending.size() >= 4) {
        Print(stdout, "{}", Printable(text));
        std::fflush(stdout);
        pending.clear();
      }
      return true;
    };
  }
  LOOM_ASSIGN(const model::Generated result,
              model::Generate(*model.network, prompt, generate, print));
  if (options.json) {
    const json::Object out{{"prompt_ids", ToArray(prompt)},
                           {"ids", ToArray(result.ids)},
                           {"text", json::Value(tokenizer.Decode(result.ids))}};
    Output(true).Event(out);
  } else {
    Print(stdout, "{}\n", result.ids.empty() ? Printable(options.prompt) : "");
  }
  return {};
}

}  // namespace

Verb GenerateVerb() {
  auto options = std::make_shared<Options>();
  return {.name = "generate",
          .summary = "Continue a text with a model",
          .example = "loom generate demo/model --prompt \"It was\" --tokens 200",
          .declare =
              [options](Args& args) {
                args.Positional("model", options->model,
                                "A Hugging Face folder or a peer's folder");
                args.Option("--prompt", "TEXT", options->prompt,
                            "Text to continue; without it, one from its beginning");
                args.Option("--tokens", "N", options->tokens, "New tokens");
                args.Flag("--greedy", options->greedy, "Always the most likely token");
                args.Option("--temperature", "X", options->temperature, "Above 0; lower is safer");
                args.Option("--top-k", "K", options->top_k,
                            "Keep the K most likely tokens; 0 keeps all");
                args.Option("--top-p", "P", options->top_p,
                            "Keep the fewest tokens with this probability");
                args.Option("--seed", "N", options->seed, "Same seed, same text");
                args.Option("--device", "NAME", options->device, "auto, cpu or cuda");
                args.Option("--threads", "N", options->threads, "0 = half of the processors");
                args.Flag("--json", options->json,
                          "One object: prompt_ids, ids, text (new tokens only)");
              },
          .run = [options] { return Generate(*options); }};
}

}  // namespace loom::app
