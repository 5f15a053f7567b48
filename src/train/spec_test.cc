// run.toml: what it says is what the run gets, every mistake is named with its line and the nearest
// right word, and the canonical spec is one text for one meaning.
#include "train/spec.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "model/family.h"
#include "train/spec_keys.h"

namespace loom::train {
namespace {

RunFile Parsed(std::string_view toml) {
  auto run = ParseRun(toml, "run.toml");
  EXPECT_TRUE(run.ok()) << run.error().ToString();
  return run.ok() ? *std::move(run) : RunFile();
}

TEST(Spec, EmptyFileIsTheDefaultRun) {
  const RunFile run = Parsed("");
  EXPECT_EQ(run.spec.model.layers, 4u);
  EXPECT_EQ(run.spec.model.width, 128u);
  EXPECT_EQ(run.spec.model.vocab, 0u);
  EXPECT_EQ(run.spec.sync.inner_steps, 30u);
  EXPECT_EQ(run.spec.sync.codec, "int8");
  EXPECT_EQ(run.spec.sync.context, run.spec.model.context);
  EXPECT_FLOAT_EQ(run.spec.sync.outer_momentum, 0.5F);
  EXPECT_FLOAT_EQ(run.spec.optim.schedule.peak, 2e-3F);
  EXPECT_EQ(run.spec.optim.schedule.total_tokens,
            run.spec.sync.rounds * 30 * run.spec.sync.batch * run.spec.model.context);
}

TEST(Spec, ReadsEveryKindOfValue) {
  const RunFile run = Parsed(R"(
[model]
preset = "nano"
width = 96
heads = 6
tie_embeddings = false
[data]
paths = ["a.txt", "b"]
val_fraction = 0.05
[optim]
lr = 1
total_tokens = 1e6
schedule = "wsd"
decay_tokens = 1000
[sync]
preset = "diloco"
inner_steps = 7
workers = 3
quorum = "two-thirds"
[determinism]
deterministic = false
[local]
max_up = "2M"
max_down = 5000
device = "cpu"
)");
  EXPECT_EQ(run.spec.model.width, 96u);
  EXPECT_EQ(run.spec.model.head_dim, 16u) << "width / heads";
  EXPECT_EQ(run.spec.model.kv_heads, 6u);
  EXPECT_EQ(run.spec.model.ffn, 256u);
  EXPECT_FALSE(run.spec.model.tie_embeddings);
  EXPECT_EQ(run.spec.data.paths, (std::vector<std::string>{"a.txt", "b"}));
  EXPECT_FLOAT_EQ(run.spec.optim.schedule.peak, 1.0F);
  EXPECT_EQ(run.spec.optim.schedule.total_tokens, 1000000u);
  EXPECT_EQ(run.spec.optim.schedule.kind, agreed::ScheduleKind::kWsd);
  EXPECT_EQ(run.spec.sync.inner_steps, 7u) << "an explicit key wins over the preset";
  EXPECT_FLOAT_EQ(run.spec.sync.outer_momentum, 0.9F) << "from the preset";
  EXPECT_EQ(run.spec.sync.workers, 3u);
  EXPECT_EQ(run.spec.sync.quorum, collab::QuorumRule::kTwoThirds);
  EXPECT_FALSE(run.spec.determinism.deterministic);
  EXPECT_EQ(run.local.max_up, 2000000u);
  EXPECT_EQ(run.local.max_down, 5000u);
}

TEST(Spec, KeyOrderInTheFileDoesNotMatter) {
  const RunFile a = Parsed("[sync]\npreset = \"diloco\"\n[optim]\nlr = 1e-3\nbatch = 8\n");
  const RunFile b = Parsed("[optim]\nbatch = 8\nlr = 1e-3\n[sync]\npreset = \"diloco\"\n");
  EXPECT_EQ(CanonicalSpec(a.spec), CanonicalSpec(b.spec));
  EXPECT_FLOAT_EQ(a.spec.optim.schedule.peak, 1e-3F);
}

TEST(Spec, EveryPresetResolves) {
  for (const auto& name : SyncPresetNames()) {
    const RunFile run = Parsed("[sync]\nrounds = 100\npreset = \"" + name + "\"\n");
    EXPECT_EQ(run.sync_preset, name);
  }
  for (const auto& name : model::PresetNames()) {
    const RunFile run = Parsed("[model]\npreset = \"" + name + "\"\n");
    EXPECT_GT(run.spec.model.layers, 0u) << name;
  }
}

TEST(Spec, AllReduceIsExactWhereItCanBe) {
  const RunFile plain = Parsed("[sync]\nmethod = \"allreduce\"\n");
  EXPECT_TRUE(plain.spec.sync.exact);
  EXPECT_EQ(plain.spec.sync.codec, "fp32");
  EXPECT_EQ(plain.spec.sync.workers, kExactWorkers);
  EXPECT_EQ(plain.spec.sync.inner_steps, 1U);
  EXPECT_EQ(plain.spec.determinism.threads, 1U) << "equal on every peer";
  EXPECT_EQ(plain.spec.sync.optimizer.inner.adamw.beta2, plain.spec.optim.inner.adamw.beta2);
  EXPECT_EQ(
      CanonicalSpec(Parsed("[sync]\nrounds = 20\npreset = \"allreduce\"\n").spec),
      CanonicalSpec(ParseCanonicalSpec(
                        CanonicalSpec(Parsed("[sync]\nrounds = 20\npreset = \"allreduce\"\n").spec))
                        .value()));
  const RunFile lossy = Parsed("[sync]\nmethod = \"allreduce\"\ncodec = \"bf16\"\n");
  EXPECT_FALSE(lossy.spec.sync.exact);
  EXPECT_EQ(lossy.spec.sync.workers, 0U);
  const RunFile own = Parsed("[sync]\nmethod = \"allreduce\"\nworkers = \"per-peer\"\n");
  EXPECT_FALSE(own.spec.sync.exact);
  EXPECT_FALSE(Parsed("[sync]\nmethod = \"allreduce\"\nexact = false\n").spec.sync.exact);
}

TEST(Spec, MomentumFollowsTheOptimizer) {
  const auto inner = [](std::string_view toml) { return Parsed(toml).spec.optim.inner; };
  EXPECT_EQ(inner("").momentum, 0.0F);
  const auto sgd = inner("[optim]\noptimizer = \"sgd\"\n");
  EXPECT_EQ(sgd.kind, agreed::InnerKind::kSgd);
  EXPECT_EQ(sgd.momentum, 0.0F);
  EXPECT_FALSE(sgd.nesterov);
  const auto muon = inner("[optim]\noptimizer = \"muon\"\n");
  EXPECT_EQ(muon.momentum, 0.95F);
  EXPECT_TRUE(muon.nesterov);
  const auto plain = inner("[optim]\noptimizer = \"muon\"\nmomentum = 0\n");
  EXPECT_EQ(plain.momentum, 0.0F);
  EXPECT_FALSE(plain.nesterov);
  // A preset's momentum does not outlive its optimizer.
  const RunFile other =
      Parsed("[optim]\noptimizer = \"adamw\"\n[sync]\npreset = \"muloco\"\nrounds = 100\n");
  EXPECT_EQ(other.spec.optim.inner.momentum, 0.0F);
  EXPECT_EQ(CanonicalSpec(Parsed(WriteRun(other)).spec), CanonicalSpec(other.spec));
}

TEST(Spec, MulocoIsMuonWithinNesterovOutside) {
  const RunSpec spec = Parsed("[sync]\npreset = \"muloco\"\nrounds = 100\n").spec;
  EXPECT_EQ(spec.optim.inner.kind, agreed::InnerKind::kMuon);
  EXPECT_EQ(spec.optim.inner.momentum, 0.95F);
  EXPECT_TRUE(spec.optim.inner.nesterov);
  EXPECT_EQ(spec.sync.inner_steps, 30u);
  EXPECT_EQ(spec.sync.outer, collab::OuterKind::kNesterov);
  EXPECT_FLOAT_EQ(spec.sync.outer_lr, 0.7F);
  EXPECT_FLOAT_EQ(spec.sync.outer_momentum, 0.6F);
}

struct BadCase {
  const char* toml;
  std::vector<const char*> says;  ///< all of these in message or hint
};

TEST(Spec, MistakesAreNamed) {
  const std::vector<BadCase> cases = {
      {"[model]\nlayer = 4\n", {"run.toml:2", "model.layer", "did you mean layers?"}},
      {"[modle]\n", {"run.toml:1", "modle", "did you mean [model]?"}},
      {"[optim]\n\nwidth = 4\n", {"run.toml:3", "optim.width", "belongs below [model]"}},
      {"layers = 4\n", {"run.toml:1", "layers", "belongs below [model]"}},
      {"model = 4\n", {"run.toml:1", "model is an integer", "[model]"}},
      {"[model]\nlayers = \"4\"\n", {"run.toml:2", "model.layers is a string, not an integer"}},
      {"[model]\nlayers = 4.5\n", {"run.toml:2", "model.layers is a number, not an integer"}},
      {"[model]\nlayers = 0\n", {"run.toml:2", "model.layers = 0", "1 .. 512"}},
      {"[model]\nlayers = -1\n", {"run.toml:2", "model.layers = -1", "1 .. 512"}},
      {"[model]\nlayers = 100000\n", {"model.layers = 100000", "1 .. 512"}},
      {"[model]\npreset = \"nanp\"\n", {"run.toml:2", "nanp", "nano"}},
      {"[model]\npreset = 3\n", {"run.toml:2", "model.preset is an integer, not a string"}},
      {"[model]\nheads = 3\nkv_heads = 2\n", {"run.toml", "kv_heads"}},
      {"[model]\ntie_embeddings = 1\n", {"run.toml:2", "model.tie_embeddings", "true or false"}},
      {"[data]\npaths = 3\n", {"run.toml:2", "data.paths is an integer"}},
      {"[data]\npaths = [1]\n", {"run.toml:2", "data.paths is an integer, not a string"}},
      {"[data]\nval_fraction = 0.9\n", {"run.toml:2", "data.val_fraction = 0.9", "0 .. 0.5"}},
      {"[data]\nval_fraction = nan\n", {"run.toml:2", "data.val_fraction = nan"}},
      {"[data]\nformat = \"csv\"\n", {"run.toml:2", "data.format = \"csv\"", "auto | txt | jsonl"}},
      {"[data]\nweights = 3\n", {"run.toml:2", "data.weights is an integer", "array of numbers"}},
      {"[data]\nweights = [1, 0]\n", {"run.toml:2", "data.weights = [1, 0]", "1e-06 .."}},
      {"[data]\nchat = \"jinja\"\n", {"run.toml:2", "auto | chatml | llama3 | smollm"}},
      {"[data]\nseed = 2020-01-01\n", {"run.toml:2", "data.seed is a date or time"}},
      {"[optim]\nlr = inf\n", {"run.toml:2", "optim.lr = inf"}},
      {"[optim]\nlr = \"fast\"\n", {"run.toml:2", "optim.lr is a string, not a number"}},
      {"[optim]\nschedule = \"cosin\"\n", {"run.toml:2", "cosin", "did you mean \"cosine\"?"}},
      {"[optim]\nbatch = 4\naccumulation = 3\n", {"accumulation = 3", "batch = 4"}},
      {"[optim]\ntotal_tokens = 10\nwarmup_tokens = 20\n", {"run.toml", "20", "10"}},
      {"[optim]\noptimizer = \"adam\"\n",
       {"run.toml:2", "optim.optimizer = \"adam\"", "did you mean \"adamw\"?"}},
      {"[optim]\nmomentum = 0.9\n",
       {"run.toml:2", "optim.momentum is a setting of sgd, muon; the optimizer is adamw"}},
      {"[optim]\noptimizer = \"sgd\"\nbeta2 = 0.9\n",
       {"run.toml:3", "optim.beta2 is a setting of adamw, muon; the optimizer is sgd"}},
      {"[optim]\noptimizer = \"sgd\"\nnewton_schulz = 5\n",
       {"run.toml:3", "optim.newton_schulz", "muon; the optimizer is sgd"}},
      {"[optim]\noptimizer = \"sgd\"\nnesterov = true\n",
       {"optim.nesterov = true with optim.momentum = 0"}},
      {"[optim]\noptimizer = \"muon\"\nmuon_scale = \"rms\"\n",
       {"run.toml:3", "original | match_rms_adamw"}},
      {"[optim]\noptimizer = \"muon\"\nnewton_schulz = 21\n", {"run.toml:3", "1 .. 20"}},
      {"[sync]\nrounds = 0\n", {"schedule has no end", "optim.total_tokens"}},
      {"[sync]\nmethod = \"demo\"\n", {"run.toml:2", "sync.method", "diloco"}},
      {"[sync]\nexact = true\n", {"sync.exact", "diloco", "allreduce"}},
      {"[sync]\nmethod = \"allreduce\"\nexact = true\ncodec = \"int8\"\n",
       {"sync.exact", "int8", "fp32"}},
      {"[sync]\nmethod = \"allreduce\"\nexact = true\nworkers = \"per-peer\"\n",
       {"sync.exact", "per-peer", "workers = N"}},
      {"[sync]\nmethod = \"allreduce\"\nworkers = 2\nmax_norm = 1\n", {"exact", "max_norm"}},
      {"[sync]\nmethod = \"allreduce\"\n[determinism]\ndeterministic = false\n",
       {"exact", "deterministic"}},
      {"[optim]\noptimizer = \"muon\"\n[sync]\nmethod = \"allreduce\"\n",
       {"muon", "whole matrices"}},
      {"[sync]\nmethod = \"allreduce\"\ninner_steps = 5\n", {"inner_steps = 5", "one step"}},
      {"[sync]\npreset = \"dilico\"\n", {"run.toml:2", "dilico", "did you mean diloco?"}},
      {"[sync]\ncodec = \"int4\"\n", {"run.toml:2", "sync.codec = \"int4\"", "fp32 | bf16 | int8"}},
      {"[sync]\nworkers = \"four\"\n", {"run.toml:2", "sync.workers = \"four\"", "per-peer"}},
      {"[sync]\nworkers = 0\n", {"run.toml:2", "sync.workers = 0", "per-peer"}},
      {"[sync]\ntile_elements = 300\n", {"tile_elements = 300", "256"}},
      {"[sync]\nquorum = \"all\"\n", {"run.toml:2", "sync.quorum", "majority | two-thirds"}},
      {"[local]\nmax_up = \"2X\"\n", {"run.toml:2", "local.max_up", "2X", "2M"}},
      {"[local]\nmax_up = \"-2M\"\n", {"run.toml:2", "local.max_up"}},
      {"[local]\ndevice = \"tpu\"\n",
       {"run.toml:2", "local.device = \"tpu\"", "auto | cpu | cuda"}},
      {"[model]\nlayers = 4\nlayers = 5\n", {"run.toml:3"}},
      {"[model\n", {"run.toml:1"}},
  };
  ASSERT_GE(cases.size(), 30u);
  for (const BadCase& bad : cases) {
    const auto run = ParseRun(bad.toml, "run.toml");
    if (run.ok()) {
      ADD_FAILURE() << "accepted: " << bad.toml;
      continue;
    }
    const std::string said = run.error().ToString();
    for (const char* part : bad.says) {
      EXPECT_NE(said.find(part), std::string::npos)
          << bad.toml << "said: " << said << "\nnot: " << part;
    }
  }
}

TEST(Spec, WrittenFileParsesToTheSameRun) {
  RunFile run = Parsed(
      "[model]\nlayers = 2\n[data]\npaths = [\"x \\\" y\"]\nweights = [2.5]\n[optim]\nlr = "
      "0.003\n");
  const std::string text = WriteRun(run);
  const RunFile again = Parsed(text);
  EXPECT_EQ(CanonicalSpec(again.spec), CanonicalSpec(run.spec));
  EXPECT_EQ(again.spec.data.paths, run.spec.data.paths);
  EXPECT_EQ(again.spec.data.weights, std::vector<double>{2.5});
  EXPECT_NE(text.find("\nlayers = 2\n"), std::string::npos);
  EXPECT_NE(text.find("\n# width = 128\n"), std::string::npos) << "defaults are commented out";
  for (const Key& key : Keys()) {
    EXPECT_NE(text.find(key.text), std::string::npos) << key.table << "." << key.name;
    EXPECT_FALSE(key.text.empty());
  }
}

TEST(Spec, FamiliesAndTheirSettingsAreAgreed) {
  for (const Key& key : Keys()) {
    if (key.name != "family") continue;
    ASSERT_EQ(key.choices.size(), model::Families().size());
    for (std::size_t i = 0; i < key.choices.size(); ++i)
      EXPECT_EQ(key.choices[i], model::Families()[i].name);
  }
  const std::string plain = CanonicalSpec(ParseRun("", "run.toml")->spec);
  EXPECT_EQ(plain.find("family"), std::string::npos) << "older runs keep their hash";
  const auto run = ParseRun(
      "[model]\nfamily = \"qwen3\"\nattention_bias = true\nrope_scaling = \"llama3\"\n"
      "rope_factor = 8\nrope_original_context = 32\npositions = 256\n",
      "run.toml");
  ASSERT_TRUE(run.ok()) << run.error().ToString();
  const std::string canonical = CanonicalSpec(run->spec);
  EXPECT_NE(canonical.find("model.family = \"qwen3\"\n"), std::string::npos);
  EXPECT_NE(canonical.find("model.attention_bias = true\n"), std::string::npos);
  const auto again = ParseCanonicalSpec(canonical);
  ASSERT_TRUE(again.ok()) << again.error().ToString();
  EXPECT_EQ(again->model, run->spec.model);
  EXPECT_EQ(again->model.rope_scaling.high_freq_factor, 4.0F);
  EXPECT_FALSE(ParseCanonicalSpec(plain + "model.window = 0\n").ok()) << "one spec, one text";

  const auto gpt2 = ParseRun("[model]\nfamily = \"gpt2\"\n", "run.toml");
  ASSERT_TRUE(gpt2.ok()) << gpt2.error().ToString();
  EXPECT_EQ(gpt2->spec.model.ffn, 4 * gpt2->spec.model.width);
  const auto odd = ParseRun("[model]\nwindow = 8\n", "run.toml");
  ASSERT_FALSE(odd.ok());
  EXPECT_NE(odd.error().message.find("model.window is 8, which the family llama"),
            std::string::npos);
}

TEST(Spec, WhatIsTrainedIsAgreed) {
  RunFile run = DefaultRun();
  ASSERT_TRUE(ApplyModelPreset("nano", run));
  run.spec.model.vocab = 300;
  ASSERT_TRUE(ResolveSpec(run.spec));
  const std::string whole = CanonicalSpec(run.spec);
  EXPECT_EQ(whole.find("tune."), std::string::npos) << "older runs keep their hash";
  for (const model::Tuning& tuning :
       {model::Tuning{{}, 4, 8, {"q_proj", "down_proj"}},
        model::Tuning{{"model.embed_tokens.*", "model.layers.[0-2].*"}, 0, 0, {}}}) {
    run.spec.model.tuning = tuning;
    const std::string text = CanonicalSpec(run.spec);
    EXPECT_NE(text, whole);
    const auto again = ParseCanonicalSpec(text);
    ASSERT_TRUE(again.ok()) << again.error().ToString();
    EXPECT_EQ(again->model.tuning, tuning);
  }
  // What it would take apart, or what no name has, is not agreed.
  run.spec.model.tuning = {{"a\", \"b"}, 0, 0, {}};
  EXPECT_FALSE(ParseCanonicalSpec(CanonicalSpec(run.spec)).ok());
}

TEST(Spec, CanonicalRoundTripAndHash) {
  const RunFile run = Parsed("[data]\nseparator = \"\\n\\t\\\"\"\n[optim]\nlr = 0.1\n");
  const std::string text = CanonicalSpec(run.spec);
  const auto again = ParseCanonicalSpec(text);
  ASSERT_TRUE(again.ok()) << again.error().ToString();
  EXPECT_EQ(CanonicalSpec(*again), text);
  EXPECT_EQ(SpecHash(*again), SpecHash(run.spec));
  EXPECT_EQ(again->sync.context, run.spec.model.context);

  RunFile other = run;
  other.local.threads = 7;
  other.spec.data.paths = {"elsewhere"};
  EXPECT_EQ(SpecHash(other.spec), SpecHash(run.spec)) << "a peer's own settings are not agreed";
  other.spec.optim.schedule.peak = 0.2F;
  EXPECT_NE(SpecHash(other.spec), SpecHash(run.spec));
  EXPECT_EQ(ChangesOf(text, CanonicalSpec(other.spec)),
            (std::vector<SettingChange>{{"optim.lr", "0.1", "0.2"}}));
}

TEST(Spec, ChangesNameEveryKeyThatDiffers) {
  const std::string_view before =
      "loom-spec 1\noptim.lr = 0.002\nsync.beta = 7\nsync.rounds = 100\n";
  const std::string_view after =
      "loom-spec 1\noptim.lr = 0.001\nsync.alpha = 3\nsync.rounds = 100\n";
  const std::vector<SettingChange> expected{{"optim.lr", "0.002", "0.001"},
                                            {"sync.alpha", "its default", "3"},
                                            {"sync.beta", "7", "its default"}};
  EXPECT_EQ(ChangesOf(before, after), expected);
  EXPECT_TRUE(ChangesOf(before, before).empty());
}

TEST(Spec, CanonicalRefusesEveryOtherText) {
  const std::string text = CanonicalSpec(Parsed("").spec);
  EXPECT_FALSE(ParseCanonicalSpec("").ok());
  EXPECT_FALSE(ParseCanonicalSpec("loom-spec 2\n").ok());
  EXPECT_FALSE(ParseCanonicalSpec(text + "model.more = 1\n").ok());
  EXPECT_FALSE(ParseCanonicalSpec(text + "\n").ok());
  EXPECT_FALSE(ParseCanonicalSpec(text.substr(0, text.size() - 1)).ok());
  EXPECT_FALSE(ParseCanonicalSpec(std::string(kMaxSpecBytes + 1, 'x')).ok());
  const auto changed = [&](std::string_view from, std::string_view to) {
    std::string copy = text;
    const std::size_t at = copy.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return copy.replace(at, from.size(), to);
  };
  for (const auto& bad :
       {changed("model.layers = 4", "model.layers = 04"),
        changed("model.layers = 4", "model.layers = 4000"),
        changed("model.layers = 4", "model.layers = -4"),
        changed("model.layers = 4", "model.layers ="), changed("\"int8\"", "\"int9\""),
        changed("\"int8\"", "int8"), changed("= true", "= yes"),
        changed("sync.outer_lr = 1", "sync.outer_lr = nan"),
        changed("model.layers", "model.width")}) {
    EXPECT_FALSE(ParseCanonicalSpec(bad).ok()) << bad;
  }
  for (std::size_t cut = 0; cut < text.size(); ++cut) {
    EXPECT_FALSE(ParseCanonicalSpec(std::string_view(text).substr(0, cut)).ok()) << cut;
  }
}

TEST(Spec, Sizes) {
  EXPECT_EQ(*ParseSize("1000"), 1000u);
  EXPECT_EQ(*ParseSize("1.5k"), 1500u);
  EXPECT_EQ(*ParseSize("2G"), 2000000000u);
  for (const char* bad : {"", "M", "1 M", "1Mi", "nan", "inf", "1e30", "0x10"}) {
    EXPECT_FALSE(ParseSize(bad).ok()) << bad;
  }
}

TEST(Spec, ExamplesAreRuns) {
  std::size_t examples = 0;
  for (const auto& entry : std::filesystem::directory_iterator(LOOM_SOURCE_DIR "/examples")) {
    if (entry.path().extension() != ".toml") continue;
    const auto run = LoadRun(entry.path().string());
    EXPECT_TRUE(run.ok()) << run.error().ToString();
    ++examples;
  }
  EXPECT_GT(examples, 0u);
}

TEST(Spec, TheNanoGptExampleIsTheConfigurationItNames) {
  const auto run = LoadRun(LOOM_SOURCE_DIR "/examples/nanogpt-cpu.toml");
  ASSERT_TRUE(run.ok()) << run.error().ToString();
  const RunSpec& spec = run->spec;
  EXPECT_EQ(spec.sync.rounds * spec.sync.inner_steps, 2000u);
  EXPECT_EQ(spec.optim.schedule.total_tokens, 2000u * 12 * 64);
  EXPECT_EQ(spec.optim.schedule.warmup_tokens, 100u * 12 * 64);
  EXPECT_EQ(spec.model.head_dim, 32u);
  EXPECT_FLOAT_EQ(spec.optim.inner.adamw.beta2, 0.99F);
}

// docs/run-toml.md is `loom init --keys`; this test says when it was forgotten.
TEST(Spec, ReferencePageIsCurrent) {
  std::ifstream file(LOOM_SOURCE_DIR "/docs/run-toml.md");
  ASSERT_TRUE(file.good()) << "write it with: loom init --keys > docs/run-toml.md";
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_EQ(text.str(), RunTomlReference()) << "write it with: loom init --keys > docs/run-toml.md";
}

}  // namespace
}  // namespace loom::train
