// The kernels against double arithmetic at sizes around the vector width and at extreme values, and
// the names and limits of the runtime settings.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "tensor/kernels.h"
#include "tensor/runtime.h"

namespace loom::tensor {
namespace {

double D(float x) { return static_cast<double>(x); }

std::vector<float> Wave(std::size_t n, float scale) {
  std::vector<float> out(n);
  for (std::size_t i = 0; i < n; ++i)
    out[i] = scale * std::sin(1.7f * static_cast<float>(i) + 0.3f);
  return out;
}

TEST(KernelsTest, CrossEntropyEqualsDoubleArithmetic) {
  for (const std::size_t vocab : {2u, 5u, 16u, 17u, 37u, 300u}) {
    for (const auto& [scale, z_loss] : {std::pair{1.0f, 0.0f}, {90.0f, 0.0f}, {3.0f, 0.01f}}) {
      const std::vector<float> logits = Wave(3 * vocab, scale);
      const std::int32_t targets[3] = {0, -100, static_cast<std::int32_t>(vocab - 1)};
      std::vector<float> kept = logits, changed = logits;
      double nll[3], nll_again[3];
      kernels::CrossEntropy(kept.data(), targets, 3, vocab, 0.0f, z_loss, nll);
      kernels::CrossEntropy(changed.data(), targets, 3, vocab, 0.5f, z_loss, nll_again);
      EXPECT_EQ(kept, logits);
      for (std::size_t row = 0; row < 3; ++row) {
        EXPECT_EQ(nll[row], nll_again[row]);
        double sum = 0;
        for (std::size_t i = 0; i < vocab; ++i) sum += std::exp(D(logits[row * vocab + i]));
        const bool ignored = targets[row] < 0;
        const std::size_t target = ignored ? 0 : static_cast<std::size_t>(targets[row]);
        const double expected = ignored ? 0 : std::log(sum) - D(logits[row * vocab + target]);
        EXPECT_NEAR(nll[row], expected, 1e-6 * (1 + expected)) << vocab << " " << scale;
        for (std::size_t i = 0; i < vocab; ++i) {
          const double p = std::exp(D(logits[row * vocab + i])) / sum;
          const double with_z = p * (1 + 2 * D(z_loss) * std::log(sum));
          const double slope = ignored ? 0 : 0.5 * (with_z - (i == target ? 1 : 0));
          EXPECT_NEAR(changed[row * vocab + i], slope, 1e-6);
        }
      }
    }
  }
}

TEST(KernelsTest, SwiGluAndItsGradientEqualDoubleArithmetic) {
  for (const float scale : {0.1f, 3.0f, 200.0f}) {
    constexpr std::size_t n = 21;
    const std::vector<float> gate_up = Wave(2 * n, scale), dy = Wave(n, 1.0f);
    std::vector<float> y(n), d(2 * n);
    kernels::SwiGlu(gate_up.data(), 1, n, y.data());
    kernels::SwiGluBackward(dy.data(), gate_up.data(), 1, n, d.data());
    for (std::size_t i = 0; i < n; ++i) {
      const double g = D(gate_up[i]), u = D(gate_up[n + i]), s = 1 / (1 + std::exp(-g));
      EXPECT_NEAR(y[i], g * s * u, 2e-6 * std::abs(g * u) + 1e-12);
      EXPECT_NEAR(d[n + i], D(dy[i]) * g * s, 2e-6 * std::abs(g) + 1e-12);
      EXPECT_NEAR(d[i], D(dy[i]) * u * (s + g * s * (1 - s)), 2e-6 * std::abs(u) + 1e-12);
    }
  }
}

TEST(KernelsTest, RmsNormEqualsDoubleArithmetic) {
  for (const std::size_t n : {1u, 15u, 16u, 40u}) {
    const std::vector<float> x = Wave(2 * n, 2.0f), w = Wave(n, 1.0f);
    std::vector<float> y(2 * n), scale(2);
    kernels::RmsNorm(x.data(), w.data(), 1e-5f, 2, n, y.data(), scale.data());
    for (std::size_t row = 0; row < 2; ++row) {
      double sum = 0;
      for (std::size_t i = 0; i < n; ++i) sum += D(x[row * n + i]) * D(x[row * n + i]);
      const double rms = std::sqrt(sum / static_cast<double>(n) + 1e-5);
      for (std::size_t i = 0; i < n; ++i) {
        EXPECT_NEAR(y[row * n + i], D(x[row * n + i]) / rms * D(w[i]), 1e-6);
      }
    }
  }
}

TEST(RuntimeTest, NamesParseAndUnknownOnesSayWhatIsAllowed) {
  for (const Device device : {Device::kAuto, Device::kCpu, Device::kCuda}) {
    EXPECT_EQ(ParseDevice(DeviceName(device)).value(), device);
  }
  for (const ComputeType type : {ComputeType::kFp32, ComputeType::kBf16}) {
    EXPECT_EQ(ParseComputeType(ComputeTypeName(type)).value(), type);
  }
  EXPECT_EQ(ParseDevice("gpu").error().hint, "devices: auto, cpu, cuda");
  EXPECT_FALSE(ParseComputeType("fp16").ok());
}

TEST(RuntimeTest, ThreadsAndDevicesAreCheckedAndReported) {
  EXPECT_FALSE(ConfigureRuntime({0, true}).ok());
  EXPECT_FALSE(ConfigureRuntime({100000, true}).ok());
  ASSERT_TRUE(ConfigureRuntime({2, true}).ok());
  const RuntimeFacts facts = GetRuntimeFacts();
  EXPECT_EQ(facts.threads, 2);
  EXPECT_TRUE(facts.deterministic);
  EXPECT_FALSE(facts.torch_version.empty());
  EXPECT_FALSE(facts.cpu_capability.empty());
  EXPECT_FALSE(facts.blas.empty());
  EXPECT_EQ(ResolveDevice(Device::kCpu).value(), Device::kCpu);
  EXPECT_EQ(ResolveDevice(Device::kAuto).value(), facts.cuda ? Device::kCuda : Device::kCpu);
  EXPECT_EQ(ResolveDevice(Device::kCuda).ok(), facts.cuda);
}

}  // namespace
}  // namespace loom::tensor
