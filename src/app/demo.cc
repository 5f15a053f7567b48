// The parts of the demo that every form of it shares: settings, data, the one-process run, the page
// of text, the summary.
#include "app/demo.h"

#include <memory>

#include "app/folders.h"
#include "app/interrupt.h"
#include "app/model_source.h"
#include "app/one_process.h"
#include "base/file.h"
#include "base/time.h"
#include "data/dataset.h"
#include "model/generate.h"
#include "train/hf_folder.h"

namespace loom::app {
namespace {

constexpr std::uint64_t kDemoRounds = 30;
constexpr std::uint64_t kMaxDemoRounds = 100000;
constexpr std::uint64_t kPageTokens = 1200;
constexpr std::size_t kPromptTokens = 48;

/// The first words of the validation text: something that the model has not seen.
Result<std::vector<std::int32_t>> PagePrompt(const data::Dataset& dataset) {
  std::vector<std::int32_t> ids(std::min<std::uint64_t>(kPromptTokens, dataset.val.size()));
  dataset.val.Read(0, ids);
  return ids;
}

Result<std::string> WritePage(const train::RunSpec& spec, const train::LocalConfig& local,
                              const agreed::TileGrid& grid, std::span<float> weights,
                              const data::Dataset& dataset, std::string* prompt_text) {
  model::ModelOptions options;
  LOOM_ASSIGN(options.device, tensor::ParseDevice(local.device));
  LOOM_ASSIGN(const auto network, model::Model::Create(spec.model, grid, options, weights, {}));
  LOOM_ASSIGN(const auto prompt, PagePrompt(dataset));
  model::GenerateOptions generate;
  generate.max_new_tokens = kPageTokens;
  generate.temperature = 0.7F;
  generate.seed = 1;
  LOOM_ASSIGN(const model::Generated page, model::Generate(*network, prompt, generate));
  *prompt_text = Printable(dataset.tokenizer->Decode(prompt));
  return Printable(dataset.tokenizer->Decode(page.ids));
}

Status OneProcessDemo(const DemoOptions& options, train::RunFile run, Output& out) {
  const Time start = SystemClock().Now();
  const std::atomic<bool>& cut = InterruptFlag();
  LOOM_RETURN_IF_ERROR(MakeFolder(options.out));
  LOOM_RETURN_IF_ERROR(ConfigureCompute(run.spec.determinism, run.local));
  out.Say("Reading {} and turning it into tokens, one a character.", options.corpus);
  LOOM_RETURN_IF_ERROR(data::BuildDataset(run.spec.data, options.out + "/data"));
  LOOM_ASSIGN(const data::Dataset dataset, data::OpenDataset(options.out + "/data"));
  run.spec.model.vocab = dataset.tokenizer->vocab_size();
  if (dataset.val.size() < 2) {
    return MakeError(Code::kInvalid, fmt::format("{} is too short: {} tokens for validation",
                                                 options.corpus, dataset.val.size()));
  }
  const std::uint64_t parameters = model::ParameterCount(run.spec.model);
  out.Say(
      "{} characters, {} different ones. The model: {} parameters in {} layers, context {} "
      "characters.",
      HumanCount(dataset.train.size() + dataset.val.size()), run.spec.model.vocab,
      HumanCount(parameters), run.spec.model.layers, run.spec.model.context);
  const double entropy = data::UnigramEntropy(dataset.val);
  out.Say("Guessing by letter frequency alone would cost {:.3f} nats a character.", entropy);
  out.Say("Training in this one process, as if {} workers summed their gradients after every step.",
          kDemoPeers);

  const OneProcessOptions one{.spec = run.spec,
                              .local = run.local,
                              .workers = kDemoPeers,
                              .rounds = run.spec.sync.rounds,
                              .metrics_path = options.out + "/metrics.jsonl"};
  LOOM_ASSIGN(OneProcessResult result, TrainOneProcess(one, dataset.train, cut, out));
  LOOM_ASSIGN(const double loss,
              LossOf(run.spec, run.local, result.grid, result.weights.span(), dataset.val));
  const std::string export_dir = options.out + "/model";
  LOOM_RETURN_IF_ERROR(train::ExportHfFolder(export_dir, run.spec.model, result.grid,
                                             result.weights.span(), *dataset.tokenizer));
  std::string prompt;
  LOOM_ASSIGN(const std::string page,
              WritePage(run.spec, run.local, result.grid, result.weights.span(), dataset, &prompt));

  DemoSummary summary;
  summary.peers = 1;
  summary.rounds = result.rounds;
  summary.tokens = result.tokens;
  summary.val_loss = loss;
  summary.val_loss_one_process = loss;
  summary.unigram_entropy = entropy;
  summary.bytes_per_token_ddp_bf16 =
      DdpBf16BytesPerToken(parameters, kDemoPeers, kDemoPeers * train::TokensPerStep(run.spec));
  summary.roots_equal = true;
  summary.export_dir = export_dir;
  summary.seconds = Seconds(SystemClock().Now() - start);
  const std::string text = json::Dump(summary.ToJson(), 2) + "\n";
  LOOM_RETURN_IF_ERROR(WriteFileAtomic(options.out + "/summary.json", AsBytes(text)));

  out.Say("\nThe model goes on from \"{}\":\n\n{}\n", prompt, page);
  out.Say("Loss on text it has not seen: {:.3f} nats a character, {:.3f} below letter frequencies.",
          loss, entropy - loss);
  out.Say("{} characters in {}. The model is in {}; try: loom generate {} --prompt \"It was\"",
          HumanCount(result.tokens), HumanSeconds(summary.seconds), export_dir, export_dir);
  out.Event(summary.ToJson());
  return {};
}

}  // namespace

json::Object DemoSummary::ToJson() const {
  return {{"peers", json::Value(peers)},
          {"killed", json::Value(killed)},
          {"rounds", json::Value(rounds)},
          {"tokens", json::Value(tokens)},
          {"val_loss", json::Value(val_loss)},
          {"val_loss_one_process", json::Value(val_loss_one_process)},
          {"unigram_entropy", json::Value(unigram_entropy)},
          {"bytes_per_token", json::Value(bytes_per_token)},
          {"bytes_per_token_ddp_bf16", json::Value(bytes_per_token_ddp_bf16)},
          {"roots_equal", json::Value(roots_equal)},
          {"export_dir", json::Value(export_dir)},
          {"seconds", json::Value(seconds)}};
}

train::RunFile DemoRun(const std::string& corpus, std::uint64_t rounds) {
  train::RunFile run = train::DefaultRun();
  run.spec.data.paths = {corpus};
  run.spec.data.tokenizer = "chars";
  run.spec.sync.rounds = rounds == 0 ? kDemoRounds : rounds;
  run.spec.optim.schedule.total_tokens = run.spec.sync.rounds * run.spec.sync.inner_steps *
                                         train::TokensPerStep(run.spec) * kDemoPeers;
  run.spec.optim.schedule.warmup_tokens = run.spec.optim.schedule.total_tokens / 20;
  run.local.threads = 1;
  return run;
}

double DdpBf16BytesPerToken(std::uint64_t parameters, std::uint64_t peers,
                            std::uint64_t tokens_per_step) {
  const auto m = static_cast<double>(peers);
  return 2 * (m - 1) / m * 2 * static_cast<double>(parameters) * m /
         static_cast<double>(tokens_per_step);
}

Status RunDemo(const DemoOptions& options) {
  if (options.rounds > kMaxDemoRounds) {
    return MakeError(Code::kInvalid,
                     fmt::format("--rounds {} is more than {}", options.rounds, kMaxDemoRounds));
  }
  Output out(options.json);
  train::RunFile run = DemoRun(options.corpus, options.rounds);
  LOOM_RETURN_IF_ERROR(train::ResolveSpec(run.spec));
  return OneProcessDemo(options, std::move(run), out);
}

}  // namespace loom::app
