// The real program as a script sees it: help, exit codes, JSON on stdout, named mistakes, and the
// way from a text to a trained, exported, evaluated model.
#include "app/cli_test_fixture.h"

namespace loom::app {
namespace {

TEST_F(Cli, HelpAndUnknownVerbs) {
  const Ran overview = Run("");
  EXPECT_EQ(overview.code, 0);
  for (const char* verb : {"demo",
                           "import",
                           "init",
                           "train",
                           "generate",
                           "eval",
                           "export",
                           "data check",
                           "status",
                           "log",
                           "host",
                           "join",
                           "owner",
                           "delegate",
                           "amend",
                           "continue",
                           "invite",
                           "pause",
                           "resume",
                           "finish",
                           "leave",
                           "doctor",
                           "bench",
                           "tokenizer encode",
                           "tokenizer decode",
                           "tokenizer train"}) {
    EXPECT_NE(overview.out.find(verb), std::string::npos) << verb;
    const Ran help = Run(std::string(verb) + " --help");
    EXPECT_EQ(help.code, 0) << verb;
    const std::size_t example = help.out.find("Example: loom " + std::string(verb));
    EXPECT_NE(example, std::string::npos) << verb << "\n" << help.out;
    EXPECT_EQ(help.out.find("Example:", example + 1), std::string::npos) << verb;
  }
  const Ran unknown = Run("trian");
  EXPECT_EQ(unknown.code, 2);
  EXPECT_NE(unknown.err.find("did you mean loom train?"), std::string::npos) << unknown.err;
  const Ran half = Run("data");
  EXPECT_EQ(half.code, 2);
  EXPECT_NE(half.err.find("loom data check"), std::string::npos) << half.err;
  const Ran half_help = Run("tokenizer --help");
  EXPECT_EQ(half_help.code, 0);
  EXPECT_NE(half_help.out.find("loom tokenizer encode"), std::string::npos) << half_help.out;
  const Ran join = Run("join --help");
  EXPECT_EQ(join.out.find("half of the processors (default"), std::string::npos) << join.out;
  EXPECT_EQ(Run("init --nonsense").code, 2);
  EXPECT_EQ(Run("generate").code, 2);
  EXPECT_EQ(Run("generate x --prompt y --tokens -1").code, 2);
  EXPECT_EQ(Run("generate x --prompt y --tokens 99999999999999999999").code, 2);
}

TEST_F(Cli, MistakesHaveCodesAndNames) {
  Write("empty.txt", "");
  Write("binary.txt", std::string("\x00\xff\x01 abc", 7));
  Write("short.txt", "tiny");
  Write("story.txt", Story());
  Write("bad.toml", "[model]\nlayer = 3\n");
  EXPECT_EQ(Run("train " + Path("none.toml")).code, 4);
  const Ran bad = Run("train " + Path("bad.toml") + " --json");
  EXPECT_EQ(bad.code, 3);
  EXPECT_NE(bad.err.find("bad.toml:2"), std::string::npos) << bad.err;
  EXPECT_NE(bad.err.find("did you mean layers?"), std::string::npos) << bad.err;
  const json::Value error = Parsed(bad.out);
  ASSERT_NE(error.Find("error"), nullptr);
  EXPECT_EQ(*error.Find("error")->Find("code")->AsString(), "invalid");
  EXPECT_EQ(Run("eval " + Path("nowhere") + " --text " + Path("story.txt")).code, 4);
  const Ran missing = Run("init --data " + Path("none.txt") + " --out " + Path("x.toml"));
  EXPECT_EQ(missing.code, 4);
  EXPECT_NE(missing.err.find("check the spelling"), std::string::npos) << missing.err;
  fs::create_directories(Path("keys"));
  ::setenv("LOOM_OWNER_KEY", Path("keys").c_str(), 1);
  const Ran folder = Run("owner");
  EXPECT_EQ(folder.code, 3);
  EXPECT_NE(folder.err.find("is a folder, not a key file"), std::string::npos) << folder.err;
  EXPECT_EQ(folder.err.find("chmod"), std::string::npos) << folder.err;
  ::unsetenv("LOOM_OWNER_KEY");
  EXPECT_EQ(Run("init --preset nan --data " + Path("story.txt") + " --out " + Path("x.toml")).code,
            4);
  for (const char* text : {"empty.txt", "binary.txt"}) {
    const Ran init = Run("init --data " + Path(text) + " --out " + Path("x.toml"));
    EXPECT_EQ(init.code, 3) << init.err;
    EXPECT_NE(init.err.find(text), std::string::npos) << init.err;
    EXPECT_FALSE(fs::exists(Path("x.toml")));
  }
  for (const char* text : {"empty.txt", "binary.txt", "short.txt"}) {
    const Ran demo =
        Run("demo --corpus " + Path(text) + " --out " + Path("d") + " --rounds 1 --one-process");
    EXPECT_NE(demo.code, 0) << text;
    EXPECT_EQ(demo.err.find("check failed"), std::string::npos) << demo.err;
    EXPECT_NE(demo.err.find("loom demo: "), std::string::npos) << demo.err;
  }
}

TEST_F(Cli, PathsOfARunTomlAreMeantFromItsFolder) {
  Write("story.txt", Story());
  fs::create_directories(dir_ / "runs" / "deep");
  const fs::path here = fs::current_path();
  fs::current_path(dir_);
  EXPECT_EQ(Run("init --data story.txt --out runs/deep/run.toml").code, 0);
  fs::current_path(here);
  EXPECT_NE(Read("runs/deep/run.toml").find("../../story.txt"), std::string::npos);
  const Ran check = Run("data check " + Path("runs/deep/run.toml"));
  EXPECT_EQ(check.code, 0) << check.err;
}

TEST_F(Cli, ADryRunRefusesWhatATrainingWould) {
  Write("story.txt", Story());
  ASSERT_EQ(
      Run("init --preset loom-0.2m --data " + Path("story.txt") + " --out " + Path("a.toml")).code,
      0);
  std::string toml = Read("a.toml");
  const std::size_t at = toml.find("[model]\n");
  ASSERT_NE(at, std::string::npos);
  Write("b.toml", toml.insert(at + 8, "context = 70000\n"));
  const Ran plan = Run("train " + Path("b.toml") + " --dry-run");
  EXPECT_EQ(plan.code, 3);
  EXPECT_NE(plan.err.find("70000"), std::string::npos) << plan.err;
}

TEST_F(Cli, ADryRunCountsEveryMethodAndMorePeers) {
  Write("story.txt", Story());
  const auto plan = [&](const std::string& sync, const std::string& options) {
    Write("run.toml", "[model]\npreset = \"loom-0.2m\"\n[data]\npaths = [\"story.txt\"]\n[sync]\n" +
                          sync + "\n[local]\nthreads = 1\n");
    const Ran ran = Run("train " + Path("run.toml") + " --dry-run --json" + options);
    EXPECT_EQ(ran.code, 0) << ran.err;
    return Parsed(ran.out);
  };
  const json::Value exact =
      plan("method = \"allreduce\"\nexact = true\ncodec = \"fp32\"\nworkers = 2", "");
  EXPECT_GT(Number(exact, "tokens_per_second"), 0);
  EXPECT_EQ(Number(exact, "inner"), 0);
  EXPECT_EQ(Number(exact, "weights"), Number(exact, "gradients"))
      << "gradients at the agreed weights";
  EXPECT_EQ(Number(exact, "outer"), 2 * Number(exact, "weights")) << "moments";
  const json::Value alone = plan("codec = \"int8\"\nworkers = 4", "");
  const json::Value four = plan("codec = \"int8\"\nworkers = 4", " --peers 4");
  EXPECT_EQ(Number(alone, "inner"), 4 * Number(four, "inner")) << "one peer hosts all workers";
  EXPECT_GT(Number(four, "bytes_up_per_round"), 0);
}

// OpenMP tells what it was started with; another one than libgomp has other names for it.
TEST_F(Cli, SeveralComputeThreadsDoNotSpinUnlessAsked) {
  Write("story.txt", Story());
  const auto told = [&](const std::string& threads, const char* policy) {
    Write("run.toml",
          "[model]\npreset = \"loom-0.2m\"\n[data]\npaths = [\"story.txt\"]\n[local]\nthreads = " +
              threads + "\n");
    ::setenv("OMP_DISPLAY_ENV", "VERBOSE", 1);
    if (policy != nullptr) ::setenv("OMP_WAIT_POLICY", policy, 1);
    const Ran ran = Run("train " + Path("run.toml") + " --dry-run");
    ::unsetenv("OMP_DISPLAY_ENV");
    ::unsetenv("OMP_WAIT_POLICY");
    EXPECT_EQ(ran.code, 0) << ran.err;
    return ran.err;
  };
  ::unsetenv("OMP_WAIT_POLICY");
  const std::string two = told("2", nullptr);
  if (two.find("GOMP_SPINCOUNT") == std::string::npos)
    GTEST_SKIP() << "libtorch has another OpenMP";
  const std::string sleeps = "GOMP_SPINCOUNT = '0'";
  EXPECT_NE(two.find(sleeps), std::string::npos) << two;
  EXPECT_EQ(told("1", nullptr).find(sleeps), std::string::npos);
  EXPECT_EQ(told("2", "ACTIVE").find(sleeps), std::string::npos);
}

TEST_F(Cli, StreamsThatAreClosedOrFullAreNoticed) {
  const auto code = [](const std::string& shell) {
    const int status = std::system((std::string(LOOM_BINARY) + " " + shell).c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  };
  EXPECT_EQ(code("--help > /dev/full 2>/dev/null"), 6);
  EXPECT_EQ(code("--help > /dev/full 2>/dev/full"), 6);
  EXPECT_EQ(code("init --keys > /dev/full 2>/dev/full"), 6);
  EXPECT_EQ(code("bogus 2>/dev/full"), 2);
  EXPECT_EQ(code("doctor --json >&- 2>&- <&-"), 0);
  Write("story.txt", Story());
  EXPECT_EQ(code("init --data " + Path("story.txt") + " --out " + Path("c.toml") + " >&- 2>&-"), 0);
  EXPECT_NE(Read("c.toml").find("[model]"), std::string::npos);
}

TEST_F(Cli, FromTextToModel) {
  Write("story.txt", Story());
  const Ran init = Run("init --preset loom-0.2m --data " + Path("story.txt") +
                       " --rounds 2 --out " + Path("run.toml"));
  ASSERT_EQ(init.code, 0) << init.err;
  EXPECT_EQ(Run("init --data " + Path("story.txt") + " --out " + Path("run.toml")).code, 11)
      << "never overwrites";

  const Ran plan = Run("train " + Path("run.toml") + " --dry-run --json");
  ASSERT_EQ(plan.code, 0) << plan.err;
  const json::Value numbers = Parsed(plan.out);
  double total = 0;
  for (const char* key :
       {"weights", "gradients", "inner", "outer", "encoded", "activations", "base"}) {
    total += Number(numbers, key);
  }
  EXPECT_EQ(Number(numbers, "total"), total);
  EXPECT_EQ(Number(numbers, "bytes_up_per_round"), 0);
  EXPECT_EQ(Number(numbers, "bytes_down_per_round"), 0);
  EXPECT_GT(Number(numbers, "eta_s"), 0);

  const Ran check = Run("data check " + Path("run.toml") + " --json");
  ASSERT_EQ(check.code, 0) << check.err;
  EXPECT_GT(Number(Parsed(check.out), "train_tokens"), 1000);

  const Ran train =
      Run("train " + Path("run.toml") + " --one-process --dir " + Path("d") + " --json");
  ASSERT_EQ(train.code, 0) << train.err;
  const json::Value done = LastLine(train.out);
  EXPECT_EQ(Number(done, "rounds"), 2);
  EXPECT_LT(Number(done, "val_loss"), 2.9);
  const std::string model = Path("d/model");

  const Ran text = Run("generate " + model + " --prompt \"the cat\" --tokens 9 --greedy --json");
  ASSERT_EQ(text.code, 0) << text.err;
  const json::Value generated = Parsed(text.out);
  EXPECT_EQ(generated.Find("prompt_ids")->AsArray()->size(), 7u);
  EXPECT_EQ(generated.Find("ids")->AsArray()->size(), 9u);
  EXPECT_EQ(generated.Find("text")->AsString()->size(), 9u);
  EXPECT_EQ(Run("generate " + model + " --prompt \"the cat\" --tokens 9 --greedy --json").out,
            text.out);
  EXPECT_EQ(Run("generate " + model + " --prompt \"QQ\" --tokens 1").code, 3)
      << "not in the vocabulary";
  const Ran started = Run("generate " + model + " --tokens 9 --json");
  ASSERT_EQ(started.code, 0) << started.err;
  EXPECT_EQ(Parsed(started.out).Find("ids")->AsArray()->size(), 9u);
  const Ran cold = Run("generate " + model + " --prompt \"the cat\" --temperature 0");
  EXPECT_EQ(cold.code, 3);
  EXPECT_EQ(cold.out, "") << "no prompt before an error";
  EXPECT_NE(cold.err.find("--greedy"), std::string::npos) << cold.err;

  const Ran eval = Run("eval " + model + " --text " + Path("story.txt") + " --json");
  ASSERT_EQ(eval.code, 0) << eval.err;
  EXPECT_EQ(Number(Parsed(eval.out), "tokens"), static_cast<double>(Story().size() - 1));

  Write("ids.json", "[1, 2, 3]");
  ASSERT_EQ(
      Run("eval " + model + " --ids " + Path("ids.json") + " --logits " + Path("l.safetensors"))
          .code,
      0);
  EXPECT_GT(fs::file_size(Path("l.safetensors")), 3u * 4);
  Write("ids.json", "[1, -2]");
  EXPECT_EQ(
      Run("eval " + model + " --ids " + Path("ids.json") + " --logits " + Path("l.safetensors"))
          .code,
      3);

  ASSERT_EQ(Run("export " + model + " --out " + Path("again")).code, 0);
  EXPECT_EQ(Read("again/model.safetensors"), Read("d/model/model.safetensors"));
}

TEST_F(Cli, ATokenizerIsLearntUsedAndTrainedWith) {
  Write("story.txt", Story());
  const std::string file = Path("bpe.json");
  const Ran learnt =
      Run("tokenizer train " + Path("story.txt") + " --vocab 300 --out " + file + " --json");
  ASSERT_EQ(learnt.code, 0) << learnt.err;
  EXPECT_GT(Number(Parsed(learnt.out), "vocab"), 256);
  EXPECT_EQ(Run("tokenizer train " + Path("story.txt") + " --out " + file).code, 11)
      << "never overwrites";
  EXPECT_EQ(Run("tokenizer train " + Path("story.txt") + " --vocab 3 --out x.json").code, 3);
  EXPECT_EQ(Run("tokenizer train " + Path("story.txt") + " --pattern x --out x.json").code, 3);

  Write("in.txt", "the cat sat\n \xC3\xA9");
  const Ran ids = Run("tokenizer encode " + file + " <" + Path("in.txt"));
  ASSERT_EQ(ids.code, 0) << ids.err;
  EXPECT_LT(Parsed(ids.out).AsArray()->size(), 10U) << ids.out;
  Write("ids.json", ids.out);
  EXPECT_EQ(Run("tokenizer decode " + file + " <" + Path("ids.json")).out, Read("in.txt"));
  Write("ids.json", "[1, 2]\n[70000]\n");
  const Ran beyond = Run("tokenizer decode " + file + " <" + Path("ids.json"));
  EXPECT_EQ(beyond.code, 3);
  EXPECT_NE(beyond.err.find("line 2"), std::string::npos) << beyond.err;
  Write("in.txt", "a\xff");
  EXPECT_EQ(Run("tokenizer encode " + file + " <" + Path("in.txt")).code, 3);

  Write("run.toml",
        "[model]\npreset = \"nano\"\nlayers = 1\nwidth = 32\nheads = 2\ncontext = 16\n[data]\n"
        "paths = [\"story.txt\"]\ntokenizer = \"bpe.json\"\n[optim]\nbatch = 2\ntotal_tokens = "
        "1000\nwarmup_tokens = 0\n[sync]\nrounds = 1\ninner_steps = 3\n[local]\nthreads = 1\n");
  const Ran train = Run("train " + Path("run.toml") + " --dir " + Path("d"));
  ASSERT_EQ(train.code, 0) << train.err;
  ASSERT_EQ(Run("export " + Path("d") + " --out " + Path("m")).code, 0);
  EXPECT_EQ(Read("m/tokenizer.json"), Read("bpe.json")) << "kept as it was";
  EXPECT_EQ(Run("generate " + Path("m") + " --prompt \"the\" --tokens 3").code, 0);
}

TEST_F(Cli, BenchMeasuresEveryPart) {
  Write("story.txt", Story());
  Write("run.toml",
        "[model]\npreset = \"nano\"\nwidth = 32\ncontext = 16\n[data]\npaths = [\"story.txt\"]\n"
        "tokenizer = \"chars\"\n[optim]\nbatch = 2\n[local]\nthreads = 1\n");
  const Ran bench = Run("bench " + Path("run.toml") + " --peers 3 --dir " + Path("") + " --json");
  ASSERT_EQ(bench.code, 0) << bench.err;
  const json::Value figures = Parsed(bench.out);
  for (const char* key :
       {"int8_encode", "int8_decode", "bf16_encode", "bf16_decode", "sha256", "disk"}) {
    EXPECT_GT(Number(figures, key), 1e6) << key;
  }
  ASSERT_NE(figures.Find("training"), nullptr);
  ASSERT_FALSE(figures.Find("training")->AsArray()->empty());
  for (const json::Value& row : *figures.Find("training")->AsArray())
    EXPECT_GT(Number(row, "tokens_per_second"), 0);
  ASSERT_NE(figures.Find("round"), nullptr);
  EXPECT_EQ(figures.Find("round")->AsObject()->front().first, "work");
  for (const auto& entry : fs::directory_iterator(Path("")))
    EXPECT_EQ(entry.path().filename().string().find(".loom-speed"), std::string::npos);
  EXPECT_EQ(Run("bench --peers 0").code, 3);
  const Ran nowhere = Run("bench --dir " + Path("none"));
  EXPECT_EQ(nowhere.code, 4);
  EXPECT_NE(nowhere.err.find("--dir"), std::string::npos) << nowhere.err;
}

TEST_F(Cli, DemoInOneProcess) {
  Write("story.txt", Story());
  const Ran demo = Run("demo --corpus " + Path("story.txt") + " --out " + Path("d") +
                       " --rounds 1 --one-process --json");
  ASSERT_EQ(demo.code, 0) << demo.err;
  const json::Value summary = Parsed(Read("d/summary.json"));
  std::vector<std::string> keys;
  for (const auto& [key, value] : *summary.AsObject()) keys.push_back(key);
  EXPECT_EQ(keys, (std::vector<std::string>{"peers", "killed", "rounds", "tokens", "val_loss",
                                            "val_loss_one_process", "unigram_entropy",
                                            "bytes_per_token", "bytes_per_token_ddp_bf16",
                                            "roots_equal", "export_dir", "seconds"}));
  EXPECT_EQ(Number(summary, "tokens"), 4 * 30 * 4 * 64);
  EXPECT_TRUE(fs::exists(Path("d/model/tokenizer.json")));
}

}  // namespace
}  // namespace loom::app
