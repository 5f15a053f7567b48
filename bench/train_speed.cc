// Local training over plain training: the rounds that `loom train` runs (inner steps, pseudo-
// gradient, encoding, reduce, root, outer step) beside a plain libtorch loop of the same module and
// batch (forward, backward, clip_grad_norm, fused AdamW; no rounds, no agreement), and, where the
// tests' Python is there, the same model in eager PyTorch. One thread each, taking turns: a pair is
// some steps of each one after the other, and what counts is the median of the pairs' ratios.
//   train_speed [PAIRS] [PYTHON]
// Tokens are counted by CPU second of the process, which other programs of the machine disturb less
// than they disturb the clock on the wall.
#include <ATen/ATen.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "agreed/random.h"
#include "collab/engine.h"
#include "model/config.h"
#include "node/compute.h"
#include "train/trainer.h"

namespace loom {
namespace {

constexpr std::size_t kTextTokens = 1'000'000;

template <class T>
T Must(Result<T> result) {
  if (!result) {
    fmt::print(stderr, "train_speed: {}\n", result.error().ToString());
    std::exit(1);
  }
  return std::move(result).value();
}
void Must(const Status& status) {
  if (status) return;
  fmt::print(stderr, "train_speed: {}\n", status.error().ToString());
  std::exit(1);
}

double CpuSeconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

double Median(std::vector<double> x) {
  std::ranges::sort(x);
  return x.empty() ? 0 : x[x.size() / 2];
}

train::LocalConfig OneThread() {
  train::LocalConfig local;
  local.device = "cpu";
  local.threads = 1;
  return local;
}

struct Case {
  std::string name;
  train::RunSpec spec;
  std::uint32_t steps = 0;  ///< of one turn: one round of Loom
};

std::vector<std::int32_t> Text(std::uint32_t vocab) {
  const agreed::Philox random(2, 0);
  std::vector<std::int32_t> tokens(kTextTokens);
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<std::int32_t>(random.Below(i, vocab));
  return tokens;
}

/// A swarm of one: whole rounds, as a lone peer's compute thread does them.
class LoomRounds {
 public:
  explicit LoomRounds(const Case& what) : spec_(what.spec) {
    auto tokens = data::TokenStream::FromTokens(Text(spec_.model.vocab));
    std::shared_ptr<train::StepEngine> shared =
        Must(train::StepEngine::Make(spec_, OneThread(), std::move(tokens)));
    const auto grid = shared->grid();
    engine_ = std::make_unique<collab::Engine>(Must(collab::Engine::Make(
        grid, spec_.sync, Must(codec::ParseCodec(spec_.sync.codec)), agreed::BestIsa(),
        [shared](WorkerIndex) -> Result<std::unique_ptr<collab::Worker>> {
          LOOM_ASSIGN(auto worker, train::TrainWorker::Make(shared));
          return std::unique_ptr<collab::Worker>(std::move(worker));
        })));
    model::InitWeights(spec_.model, engine_->grid(), 1, engine_->weights());
  }
  /// One round; the loss.
  double Turn() {
    collab::WorkOrder order;
    order.batch = spec_.sync.batch;
    const std::uint64_t samples = std::uint64_t{spec_.sync.inner_steps} * spec_.sync.batch;
    order.ranges = {{next_, next_ + samples - 1}};
    next_ += samples;
    order.tokens_before = tokens_;
    order.tokens_per_step = std::uint64_t{spec_.sync.batch} * spec_.model.context;
    const std::atomic<bool> never{false};
    const collab::EncodedWork work = Must(engine_->Work(order, never));
    tokens_ += work.done.tokens;
    const collab::TileLayout& layout = engine_->layout();
    collab::ReduceInput input{1.0F, 1, {}};
    for (std::size_t i = 0; i < layout.num_tiles(); ++i)
      input.tiles.push_back({work.encoded, layout.Offset(i), layout.Size(i)});
    const Bytes reduced = Must(engine_->Reduce(0, layout.num_tiles(), std::span(&input, 1)));
    const agreed::StepClock clock{++round_, tokens_};
    (void)Must(engine_->Next(reduced, clock));
    Must(engine_->Apply(reduced, clock));
    engine_->Settle(0, true);
    return work.done.loss_sum / static_cast<double>(work.done.tokens);
  }

 private:
  train::RunSpec spec_;
  std::unique_ptr<collab::Engine> engine_;
  std::uint64_t next_ = 0, tokens_ = 0, round_ = 0;
};

/// The same module on weights of its own, stepped by libtorch.
class PlainLoop {
 public:
  explicit PlainLoop(const Case& what)
      : spec_(what.spec),
        steps_(what.steps),
        text_(Text(spec_.model.vocab)),
        grid_(Must(
            agreed::TileGrid::Make(model::ParameterShapes(spec_.model), spec_.sync.tile_elements))),
        weights_(grid_.flat_size()),
        gradients_(grid_.flat_size()) {
    model::InitWeights(spec_.model, grid_, 1, weights_.span());
    model_ = Must(model::Model::Create(spec_.model, grid_, {.device = tensor::Device::kCpu},
                                       weights_.span(), gradients_.span()));
    for (std::size_t t = 0; t < grid_.tensors().size(); ++t) {
      const agreed::TensorShape& tensor = grid_.tensors()[t];
      std::vector<std::int64_t> shape(tensor.shape.begin(), tensor.shape.end());
      const auto view = [&](agreed::FlatBuffer& flat) {
        return at::from_blob(flat.data() + grid_.TensorOffset(t), shape, at::kFloat);
      };
      Group& group = groups_[shape.size() >= 2 ? 0 : 1];
      group.weights.push_back(view(weights_));
      group.gradients.push_back(view(gradients_));
      group.first.push_back(at::zeros(shape));
      group.second.push_back(at::zeros(shape));
      group.steps.push_back(at::scalar_tensor(0.0F));
      all_gradients_.push_back(view(gradients_));
    }
    groups_[0].decay = spec_.optim.inner.adamw.weight_decay;
  }
  double Turn() {
    const at::NoGradGuard no_grad;
    const std::size_t batch = spec_.sync.batch;
    const std::size_t length = spec_.model.context;
    model::LossSum sum;
    std::vector<std::int32_t> windows(batch * (length + 1));
    for (std::uint32_t step = 0; step < steps_; ++step) {
      for (std::size_t row = 0; row < batch; ++row) {
        const std::uint64_t at = random_.Below(drawn_++, text_.size() - length - 1);
        std::copy_n(text_.begin() + static_cast<std::ptrdiff_t>(at), length + 1,
                    windows.begin() + static_cast<std::ptrdiff_t>(row * (length + 1)));
      }
      at::_foreach_zero_(all_gradients_);
      {
        const at::AutoGradMode grad(true);
        const auto loss = Must(model_->ForwardBackward(windows, batch, length,
                                                       1.0F / static_cast<float>(batch * length)));
        sum.nll += loss.nll;
        sum.tokens += loss.tokens;
      }
      Clip();
      for (Group& group : groups_) Step(group);
      model_->WeightsChanged();
    }
    return sum.nll / static_cast<double>(sum.tokens);
  }

 private:
  struct Group {
    std::vector<at::Tensor> weights, gradients, first, second, steps;
    double decay = 0;
  };
  // torch.nn.utils.clip_grad_norm_
  void Clip() {
    const at::Tensor norm = at::linalg_vector_norm(at::stack(at::_foreach_norm(all_gradients_)), 2);
    at::_foreach_mul_(all_gradients_, (spec_.optim.inner.clip_norm / (norm + 1e-6)).clamp_max(1.0));
  }
  void Step(Group& group) const {
    const agreed::AdamWConfig& adamw = spec_.optim.inner.adamw;
    at::_foreach_add_(group.steps, 1);
    at::_fused_adamw_(group.weights, group.gradients, group.first, group.second, {}, group.steps,
                      double{spec_.optim.schedule.peak}, adamw.beta1, adamw.beta2, group.decay,
                      adamw.eps, false, false);
  }

  train::RunSpec spec_;
  std::uint32_t steps_;
  std::vector<std::int32_t> text_;
  agreed::TileGrid grid_;
  agreed::FlatBuffer weights_, gradients_;
  std::unique_ptr<model::Model> model_;
  std::array<Group, 2> groups_;  ///< matrices, which decay, and vectors
  std::vector<at::Tensor> all_gradients_;
  agreed::Philox random_{3, 0};
  std::uint64_t drawn_ = 0;
};

/// tests/compat/bench_llama.py, waiting on a pipe for its turns.
class EagerPython {
 public:
  EagerPython(const std::string& python, const Case& what) {
    const model::ModelConfig& m = what.spec.model;
    const std::vector<std::string> words = {
        python,
        LOOM_SOURCE_DIR "/tests/compat/bench_llama.py",
        "--turns",
        fmt::format("{},{},{},{},{},{},{},{}", m.vocab, m.layers, m.width, m.heads, m.kv_heads,
                    m.head_dim, m.ffn, m.context),
        std::to_string(what.spec.sync.batch),
        std::to_string(what.steps)};
    int to_child[2] = {}, from_child[2] = {};
    if (::pipe2(to_child, O_CLOEXEC) != 0 || ::pipe2(from_child, O_CLOEXEC) != 0) return;
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(to_child[0], 0);
      ::dup2(from_child[1], 1);
      std::vector<char*> argv;
      for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
      argv.push_back(nullptr);
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
    ::close(to_child[0]);
    ::close(from_child[1]);
    in_ = ::fdopen(to_child[1], "w");
    out_ = ::fdopen(from_child[0], "r");
  }
  ~EagerPython() {
    if (in_ != nullptr) std::fclose(in_);
    if (out_ != nullptr) std::fclose(out_);
    if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
  }
  EagerPython(const EagerPython&) = delete;
  EagerPython& operator=(const EagerPython&) = delete;
  /// CPU seconds of a turn; 0 when it is not there.
  double Turn() {
    double seconds = 0;
    if (in_ == nullptr || std::fputs("turn\n", in_) < 0 || std::fflush(in_) != 0) return 0;
    return std::fscanf(out_, "%lf", &seconds) == 1 ? seconds : 0;
  }

 private:
  pid_t pid_ = -1;
  std::FILE* in_ = nullptr;
  std::FILE* out_ = nullptr;
};

void Compare(const Case& what, int pairs, const std::string& python) {
  Must(node::ConfigureCompute(what.spec, OneThread()));
  LoomRounds loom(what);
  PlainLoop plain(what);
  EagerPython eager(python, what);
  const bool has_eager = eager.Turn() > 0;
  (void)loom.Turn();
  (void)plain.Turn();
  const double tokens =
      static_cast<double>(what.steps) * what.spec.sync.batch * what.spec.model.context;
  const auto timed = [&](auto& loop, double* loss) {
    const double before = CpuSeconds();
    *loss = loop.Turn();
    return CpuSeconds() - before;
  };
  double loss = 0, plain_loss = 0;
  std::vector<double> rate, over_plain, over_eager;
  for (int pair = 0; pair < pairs; ++pair) {
    const double theirs_first = pair % 2 == 1 ? timed(plain, &plain_loss) : 0;
    const double ours = timed(loom, &loss);
    const double theirs = pair % 2 == 1 ? theirs_first : timed(plain, &plain_loss);
    rate.push_back(tokens / ours);
    over_plain.push_back(theirs / ours);
    if (has_eager) over_eager.push_back(eager.Turn() / ours);
  }
  const auto [least, most] = std::ranges::minmax(over_plain);
  fmt::print("{:<12} {:>8.0f} tokens/cpu-s  over the plain loop {:.3f} ({:.3f} to {:.3f})",
             what.name, Median(rate), Median(over_plain), least, most);
  if (has_eager) {
    const auto [low, high] = std::ranges::minmax(over_eager);
    fmt::print("  over eager PyTorch {:.3f} ({:.3f} to {:.3f})", Median(over_eager), low, high);
  }
  fmt::print("  [{} pairs of {} steps, losses {:.2f} and {:.2f}]\n", pairs, what.steps, loss,
             plain_loss);
  std::fflush(stdout);
}

Case NanoGpt() {
  train::RunFile run = Must(train::LoadRun(LOOM_SOURCE_DIR "/examples/nanogpt-cpu.toml"));
  run.spec.sync.inner_steps = 25;  // short turns meet the same moments of a busy machine
  Must(train::FitVocab(run.spec, 65));
  Must(train::ResolveSpec(run.spec));
  return {"nanogpt-cpu", run.spec, run.spec.sync.inner_steps};
}

Case TenMillion() {
  train::RunFile run = Must(train::LoadRun(LOOM_SOURCE_DIR "/examples/nanogpt-cpu.toml"));
  run.spec.model = Must(model::Preset("loom-10m"));
  run.spec.sync.batch = 4;
  run.spec.sync.inner_steps = 4;
  Must(train::FitVocab(run.spec, 256));
  Must(train::ResolveSpec(run.spec));
  return {"10m", run.spec, run.spec.sync.inner_steps};
}

}  // namespace
}  // namespace loom

int main(int argc, char** argv) {
  ::signal(SIGPIPE, SIG_IGN);
  const int pairs = std::max(1, argc > 1 ? std::atoi(argv[1]) : 15);
  const std::string python = argc > 2 ? argv[2] : LOOM_SOURCE_DIR "/.venv-test/bin/python";
  if (::access(python.c_str(), X_OK) != 0)
    fmt::print("skipped: eager PyTorch: {} is not there (./run test makes it)\n", python);
  loom::Compare(loom::NanoGpt(), pairs, python);
  loom::Compare(loom::TenMillion(), pairs, python);
  return 0;
}
