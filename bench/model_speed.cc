// Tokens per CPU second of Loom's inner loop on one preset: forward, backward, clip, AdamW. (CPU
// time of the process, all threads: a busy machine disturbs it less than wall time.) Its
// counterpart in eager PyTorch is tests/compat/bench_llama.py; run the two in turn on a quiet
// machine.
//   model_speed [steps] [repetitions] [preset] [batch] [length] [threads] [fp32|bf16]
#include <fmt/core.h>

#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "agreed/flat_buffer.h"
#include "agreed/random.h"
#include "model/config.h"
#include "model/model.h"
#include "optim/inner_optimizer.h"
#include "tensor/runtime.h"

using namespace loom;

int main(int argc, char** argv) {
  const auto number = [&](int i, int fallback) {
    return static_cast<std::size_t>(argc > i ? std::atoi(argv[i]) : fallback);
  };
  const std::size_t steps = number(1, 100), repetitions = number(2, 1);
  const std::string preset = argc > 3 ? argv[3] : "nano";
  const std::size_t B = number(4, 12), T = number(5, 64);
  const int threads = static_cast<int>(number(6, 1));
  const bool bf16 = argc > 7 && std::string(argv[7]) == "bf16";

  const model::ModelConfig config = model::Preset(preset).value();
  const agreed::TileGrid grid = model::MakeGrid(config).value();
  agreed::FlatBuffer weights(grid.flat_size()), grads(grid.flat_size());
  model::InitWeights(config, grid, 1, weights.span());
  if (const Status ok = tensor::ConfigureRuntime({threads, true}); !ok) {
    fmt::print(stderr, "{}\n", ok.error().ToString());
    return 1;
  }
  model::ModelOptions options;
  options.device = tensor::Device::kCpu;
  options.compute = bf16 ? tensor::ComputeType::kBf16 : tensor::ComputeType::kFp32;
  auto model = model::Model::Create(config, grid, options, weights.span(), grads.span()).value();
  auto optimizer = optim::InnerOptimizer::Make(grid, {}).value();

  const agreed::Philox random(2, 0);
  std::vector<std::int32_t> tokens(B * (T + 1));
  std::uint64_t drawn = 0;
  double loss = 0;
  const auto step = [&] {
    for (std::int32_t& id : tokens) {
      id = static_cast<std::int32_t>(random.Below(drawn++, config.vocab));
    }
    optim::ZeroGradients(grads.span());
    const auto sum = model->ForwardBackward(tokens, B, T, 1.0f / static_cast<float>(B * T)).value();
    (void)optimizer.Step(weights.span(), grads.span(), 1e-3f).value();
    model->WeightsChanged();
    loss = sum.nll / static_cast<double>(sum.tokens);
  };
  for (int i = 0; i < 10; ++i) step();
  for (std::size_t r = 0; r < repetitions; ++r) {
    const std::clock_t start = std::clock();
    for (std::size_t i = 0; i < steps; ++i) step();
    const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    fmt::print("loom {:.0f} tok/cpu-s loss {:.4f}\n", static_cast<double>(steps * B * T) / seconds,
               loss);
  }
  return 0;
}
