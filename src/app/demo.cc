// The demo from its settings to its summary: four peers (the story is demo_swarm's) or one process,
// then the yardstick, the losses, the exported model, a page of text.
#include "app/demo.h"

#include <filesystem>
#include <memory>

#include "app/demo_swarm.h"
#include "app/folders.h"
#include "app/interrupt.h"
#include "app/model_source.h"
#include "app/one_process.h"
#include "app/peer_folder_source.h"
#include "base/file.h"
#include "base/time.h"
#include "data/dataset.h"
#include "model/generate.h"
#include "train/hf_folder.h"

namespace loom::app {
namespace {

constexpr std::uint64_t kDemoRounds = 100;
constexpr std::uint64_t kMinDemoRounds = 16;  ///< two are killed, and one comes back
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

/// What this demo makes in its folder. A folder with other things in it is left alone; what an
/// earlier demo made is made anew.
constexpr const char* kMarker = "made-by-loom-demo";

Status PrepareFolder(const std::string& out) {
  namespace fs = std::filesystem;
  std::error_code error;
  const bool used =
      fs::exists(out, error) && (!fs::is_directory(out, error) || !fs::is_empty(out, error));
  if (used && !fs::exists(out + "/" + kMarker, error)) {
    return MakeError(Code::kConflict, fmt::format("{} exists and no demo made it", out),
                     "choose another folder with --out");
  }
  for (std::uint32_t k = 1; used && k <= kDemoPeers; ++k) {
    const std::string peer = fmt::format("{}/peer-{}", out, k);
    if (const auto pid = FolderHolder(peer)) {
      return MakeError(Code::kConflict, fmt::format("process {} still runs in {}", *pid, peer),
                       "end it, or choose another folder with --out");
    }
    for (const char* end : {"", ".log", ".events"}) fs::remove_all(peer + end, error);
  }
  if (used) {
    for (const char* name : {"data", "model", "summary.json", "run.toml", "one-process.jsonl"}) {
      fs::remove_all(out + "/" + name, error);
    }
  }
  LOOM_RETURN_IF_ERROR(MakeFolder(out));
  return WriteFileAtomic(out + "/" + kMarker, ByteView{});
}

/// What both forms of the demo end with.
struct Outcome {
  train::RunSpec spec;  ///< vocab set
  agreed::TileGrid grid;
  agreed::FlatBuffer weights;
  data::Dataset dataset;
  DemoSummary summary;  ///< but for the fields that Finish fills
};

Status Finish(const DemoOptions& options, const train::LocalConfig& local, Time start,
              Outcome& outcome, Output& out) {
  DemoSummary& summary = outcome.summary;
  summary.unigram_entropy = data::UnigramEntropy(outcome.dataset.val);
  summary.bytes_per_token_ddp_bf16 =
      DdpBf16BytesPerToken(model::ParameterCount(outcome.spec.model), kDemoPeers,
                           kDemoPeers * train::TokensPerStep(outcome.spec));
  summary.export_dir = options.out + "/model";
  LOOM_RETURN_IF_ERROR(train::ExportHfFolder(summary.export_dir, outcome.spec.model, outcome.grid,
                                             outcome.weights.span(), *outcome.dataset.tokenizer));
  std::string prompt;
  LOOM_ASSIGN(const std::string page, WritePage(outcome.spec, local, outcome.grid,
                                                outcome.weights.span(), outcome.dataset, &prompt));
  out.Say("\nThe model goes on from \"{}\":\n\n{}\n", prompt, page);
  summary.seconds = Seconds(SystemClock().Now() - start);
  const std::string text = json::Dump(summary.ToJson(), 2) + "\n";
  return WriteFileAtomic(options.out + "/summary.json", AsBytes(text));
}

void SayModel(const train::RunSpec& spec, const data::Dataset& dataset, Output& out) {
  out.Say(
      "{} characters, {} different ones. The model: {} parameters in {} layers, context {} "
      "characters.",
      HumanCount(dataset.train.size() + dataset.val.size()), spec.model.vocab,
      HumanCount(model::ParameterCount(spec.model)), spec.model.layers, spec.model.context);
}

Status OneProcessDemo(const DemoOptions& options, train::RunFile run, Output& out) {
  const Time start = SystemClock().Now();
  LOOM_RETURN_IF_ERROR(ConfigureCompute(run.spec.determinism, run.local));
  out.Say("Reading {} and turning it into tokens, one a character.", options.corpus);
  LOOM_RETURN_IF_ERROR(data::BuildDataset(run.spec.data, options.out + "/data"));
  Outcome outcome;
  LOOM_ASSIGN(outcome.dataset, data::OpenDataset(options.out + "/data"));
  run.spec.model.vocab = outcome.dataset.tokenizer->vocab_size();
  if (outcome.dataset.val.size() < 2) {
    return MakeError(Code::kInvalid, fmt::format("{} is too short: {} tokens for validation",
                                                 options.corpus, outcome.dataset.val.size()));
  }
  SayModel(run.spec, outcome.dataset, out);
  out.Say("Training in this one process, as if {} workers summed their gradients after every step.",
          kDemoPeers);
  const OneProcessOptions one{.spec = run.spec,
                              .local = run.local,
                              .workers = kDemoPeers,
                              .rounds = run.spec.sync.rounds,
                              .samples = {},
                              .metrics_path = options.out + "/one-process.jsonl"};
  LOOM_ASSIGN(OneProcessResult result,
              TrainOneProcess(one, outcome.dataset.train, InterruptFlag(), out));
  outcome.spec = run.spec;
  outcome.grid = result.grid;
  outcome.weights = std::move(result.weights);
  DemoSummary& summary = outcome.summary;
  LOOM_ASSIGN(summary.val_loss, LossOf(outcome.spec, run.local, outcome.grid,
                                       outcome.weights.span(), {}, outcome.dataset.val));
  summary.val_loss_one_process = summary.val_loss;
  summary.peers = 1;
  summary.rounds = result.rounds;
  summary.tokens = result.tokens;
  summary.roots_equal = true;
  LOOM_RETURN_IF_ERROR(Finish(options, run.local, start, outcome, out));
  out.Say(
      "Loss on text it has not seen: {:.3f} nats a character; letter frequencies alone cost "
      "{:.3f}.",
      summary.val_loss, summary.unigram_entropy);
  out.Say("{} characters in {}. The model is in {}; try: loom generate {} --prompt \"It was\"",
          HumanCount(summary.tokens), HumanSeconds(summary.seconds), summary.export_dir,
          ShellWord(summary.export_dir));
  out.Event(summary.ToJson());
  return {};
}

/// Whether the folders hold one history: the same records as far as each goes, and at the end of
/// the longest one of the survivors nothing that another survivor lacks.
Result<bool> OneHistory(const SwarmEnd& end, const FolderRecords& longest) {
  bool equal = end.roots_equal;
  for (const std::string& dir : end.folders) {
    LOOM_ASSIGN(const FolderRecords folder, ReadFolderRecords(dir));
    for (std::size_t i = 0; i < std::min(folder.records.size(), longest.records.size()); ++i) {
      equal = equal && folder.records[i].hash == longest.records[i].hash &&
              folder.records[i].body.root == longest.records[i].body.root;
    }
  }
  for (const std::string& dir : end.survivors) {
    LOOM_ASSIGN(const FolderRecords folder, ReadFolderRecords(dir));
    LOOM_ASSIGN(const FolderModel state, ReadFolderModel(dir));  // checks every root on the way
    equal = equal && folder.records.size() == longest.records.size() &&
            state.round == longest.records.size();
  }
  return equal;
}

/// The samples that each worker's part in each round was made of.
std::vector<std::vector<std::vector<collab::Range>>> SamplesUsed(const FolderRecords& folder) {
  std::vector<std::vector<std::vector<collab::Range>>> rounds;
  for (const collab::Record& record : folder.records) {
    auto& round = rounds.emplace_back();
    for (const collab::Contribution& c : record.body.contributions) round.push_back(c.ranges);
  }
  return rounds;
}

Status SwarmDemo(const DemoOptions& options, train::RunFile run, Output& out) {
  LOOM_RETURN_IF_ERROR(
      data::MakeTokenizer(run.spec.data));  // a bad corpus is told before any peer starts
  namespace fs = std::filesystem;
  const Time start = SystemClock().Now();
  SwarmPlan plan;
  plan.run_toml = options.out + "/run.toml";
  plan.out = options.out;
  plan.peers = kDemoPeers;
  plan.rounds = run.spec.sync.rounds;
  LOOM_ASSIGN(plan.program, OwnProgram());
  for (std::string& path : run.spec.data.paths) path = fs::absolute(path).string();
  LOOM_RETURN_IF_ERROR(WriteFileAtomic(plan.run_toml, AsBytes(train::WriteRun(run))));
  out.Say(
      "Four peers will train one model on {}, each a process of its own with a folder of its own.",
      options.corpus);
  out.Say("{} rounds of {} steps; after each round they agree on every bit of the result.",
          plan.rounds, run.spec.sync.inner_steps);
  LOOM_ASSIGN(const SwarmEnd end, DemoSwarm(plan, out).Run());

  const std::string& dir = end.survivors.front();
  LOOM_ASSIGN(const FolderRecords folder, ReadFolderRecords(dir));
  Outcome outcome;
  outcome.spec = folder.run.spec;
  LOOM_ASSIGN(outcome.dataset, data::OpenDataset(dir + "/" + std::string(node::kDataFolder)));
  DemoSummary& summary = outcome.summary;
  LOOM_ASSIGN(summary.roots_equal, OneHistory(end, folder));
  out.Say("\nAfter {} rounds {} peers stopped by themselves. Their weights are {}.",
          folder.records.size(), end.survivors.size(),
          summary.roots_equal ? "equal in every bit" : "NOT EQUAL");
  out.Say(
      "For comparison: one process with the same workers, samples and schedule, which sums the "
      "gradients after every step.");
  const train::LocalConfig& local = run.local;
  LOOM_RETURN_IF_ERROR(ConfigureCompute({}, local));
  const OneProcessOptions one{.spec = outcome.spec,
                              .local = local,
                              .samples = SamplesUsed(folder),
                              .metrics_path = options.out + "/one-process.jsonl"};
  LOOM_ASSIGN(OneProcessResult result,
              TrainOneProcess(one, outcome.dataset.train, InterruptFlag(), out));
  if (result.interrupted) {
    return MakeError(Code::kRefused, "stopped by Ctrl-C; the peers' folders are kept");
  }
  LOOM_ASSIGN(FolderModel final, ReadFolderModel(dir));
  outcome.grid = final.model.grid;
  outcome.weights = std::move(final.model.weights);
  LOOM_ASSIGN(summary.val_loss, LossOf(outcome.spec, local, outcome.grid, outcome.weights.span(),
                                       {}, outcome.dataset.val));
  LOOM_ASSIGN(summary.val_loss_one_process, LossOf(outcome.spec, local, result.grid,
                                                   result.weights.span(), {}, outcome.dataset.val));
  summary.peers = kDemoPeers;
  summary.killed = end.killed;
  summary.rounds = folder.records.size();
  summary.tokens = folder.records.empty() ? 0 : folder.records.back().body.tokens;
  summary.bytes_per_token = summary.tokens == 0 ? 0
                                                : static_cast<double>(end.bytes_sent) /
                                                      static_cast<double>(summary.tokens);
  LOOM_RETURN_IF_ERROR(Finish(options, local, start, outcome, out));
  SayModel(outcome.spec, outcome.dataset, out);
  out.Say(
      "Loss on text that nobody trained on, nats a character: {:.3f} by the peers, {:.3f} in one "
      "process, {:.3f} by letter frequencies alone.",
      summary.val_loss, summary.val_loss_one_process, summary.unigram_entropy);
  out.Say(
      "Bytes sent, all of them: {} for {} characters, {:.0f} a character. Summing gradients every "
      "step in bf16 takes {:.0f}: {:.0f} times as many.",
      HumanBytes(static_cast<double>(end.bytes_sent)), HumanCount(summary.tokens),
      summary.bytes_per_token, summary.bytes_per_token_ddp_bf16,
      summary.bytes_per_token_ddp_bf16 / std::max(1e-9, summary.bytes_per_token));
  out.Say("It took {}. The model is in {}; try: loom generate {} --prompt \"It was\"",
          HumanSeconds(summary.seconds), summary.export_dir, summary.export_dir);
  out.Say("Each peer's history is in its folder: loom log --dir {}", dir);
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

// Many cheap rounds of a small model: what one process learns from summed gradients is caught up
// with best when rounds are many (same 3 million characters, four workers, H = 30: 0.11 nats behind
// after 60 rounds of a model twice as large). The rate ends at zero, so that the workers end up in
// one place.
train::RunFile DemoRun(const std::string& corpus, std::uint64_t rounds) {
  train::RunFile run = train::DefaultRun();
  model::ModelConfig& model = run.spec.model;
  model.layers = 2;
  model.width = 96;
  model.heads = model.kv_heads = 3;
  model.head_dim = 32;
  model.ffn = 192;
  run.spec.data.paths = {corpus};
  run.spec.data.tokenizer = "chars";
  run.spec.sync.rounds = rounds == 0 ? kDemoRounds : rounds;
  agreed::ScheduleConfig& schedule = run.spec.optim.schedule;
  schedule.peak = 3e-3F;
  schedule.final = 0;
  // With four workers in every round; the kills cost about a tenth of it, and the rate is then low.
  const std::uint64_t all = run.spec.sync.rounds * run.spec.sync.inner_steps *
                            train::TokensPerStep(run.spec) * kDemoPeers;
  schedule.total_tokens = all / 100 * 88;
  schedule.warmup_tokens = all / 20;
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
  if (!options.one_process && options.rounds != 0 && options.rounds < kMinDemoRounds) {
    return MakeError(Code::kInvalid,
                     fmt::format("--rounds {} is less than {}, too short for what the demo shows",
                                 options.rounds, kMinDemoRounds));
  }
  std::error_code ignored;
  if (!std::filesystem::exists(options.corpus, ignored)) {
    return MakeError(
        Code::kNotFound, fmt::format("{} does not exist", options.corpus),
        "`./run demo` fetches a text; --corpus takes a txt or jsonl file, or a folder of these");
  }
  Output out(options.json);
  train::RunFile run = DemoRun(options.corpus, options.rounds);
  LOOM_RETURN_IF_ERROR(train::ResolveSpec(run.spec));
  LOOM_RETURN_IF_ERROR(PrepareFolder(options.out));
  return options.one_process ? OneProcessDemo(options, std::move(run), out)
                             : SwarmDemo(options, std::move(run), out);
}

}  // namespace loom::app
