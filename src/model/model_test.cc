// Model against PyTorch's numbers, finite differences and itself: every promise of model.h.
#include "model/model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "agreed/flat_buffer.h"
#include "agreed/random.h"
#include "model/config.h"
#include "model/family.h"
#include "tensor/runtime.h"

namespace loom::model {
namespace {

using Ids = std::vector<std::int32_t>;

struct GoldenTensor {
  std::string name;
  double probe[4];  // norm, sum, first and middle element of the gradient
};
struct Golden {
  std::string name;
  float z_loss;
  double loss;
  std::vector<float> logits;  // of the first sequence, [8, V]
  std::vector<GoldenTensor> grads;
};
const std::vector<Golden>& Goldens() {
  static const std::vector<Golden> goldens = {
#include "model/llama_golden.inc"
  };
  return goldens;
}

ModelConfig Tiny() {
  ModelConfig c;
  c.vocab = 19, c.layers = 2, c.width = 16, c.heads = 4, c.kv_heads = 2, c.head_dim = 4;
  c.ffn = 24, c.context = 8;
  return c;
}

/// One model of each family with all it can have, odd in every size.
std::vector<ModelConfig> OfEveryFamily() {
  std::vector<ModelConfig> out;
  for (const FamilyTraits& traits : Families()) {
    ModelConfig c = Tiny();
    c.family = traits.family;
    c.width = 15, c.heads = 3, c.kv_heads = traits.rotary ? 1 : 3;
    c.head_dim = traits.rotary ? 6 : 5, c.ffn = 21;
    c.tie_embeddings = traits.family != Family::kQwen2;
    c.attention_bias = traits.attention_bias, c.mlp_bias = traits.mlp_bias;
    c.window = traits.window ? 3 : 0;
    c.positions = 11;
    out.push_back(c);
  }
  return out;
}

ModelConfig GoldenConfig(std::size_t i) {
  ModelConfig c = Tiny();
  if (i == 1) {
    c.vocab = 23, c.width = 24, c.kv_heads = 4, c.head_dim = 8, c.ffn = 32;
    c.tie_embeddings = false, c.attention_bias = c.mlp_bias = true, c.rope_theta = 500;
    c.rope_scaling.kind = RopeScalingKind::kLinear, c.rope_scaling.factor = 2;
  } else if (i == 2) {
    c.vocab = 17, c.layers = 3, c.width = 8, c.heads = 2, c.kv_heads = 1, c.head_dim = 8;
    c.ffn = 20, c.rope_theta = 100, c.norm_eps = 1e-3f;
    c.rope_scaling = {RopeScalingKind::kLlama3, 4, 1, 4, 64};
  }
  return c;
}

/// The formula of make_llama_golden.py: n numbers in [-1, 1).
std::vector<float> Hashed(std::size_t n, std::uint64_t salt) {
  std::vector<float> out(n);
  for (std::size_t i = 0; i < n; ++i) {
    auto h = static_cast<std::uint32_t>((i + 1) * 2654435761u + salt * 40503u);
    h = (h ^ (h >> 15)) * 2246822519u;
    h ^= h >> 13;
    out[i] = static_cast<float>((h >> 9) / 4194304.0 - 1.0);
  }
  return out;
}

bool EndsWith(const std::string& text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

/// A model with its buffers; every parameter redrawn, norms and biases too.
struct Rig {
  explicit Rig(ModelConfig c, ModelOptions options = Cpu()) : config(std::move(c)) {
    grid = MakeGrid(config).value();
    weights = agreed::FlatBuffer(grid.flat_size());
    grads = agreed::FlatBuffer(grid.flat_size());
    for (std::size_t t = 0; t < grid.tensors().size(); ++t) {
      const agreed::TensorShape& tensor = grid.tensors()[t];
      std::uint64_t salt = tensor.name.size();
      for (const char ch : tensor.name) salt += 31u * static_cast<unsigned char>(ch);
      std::vector<float> u = Hashed(tensor.Numel(), salt);
      for (float& x : u) {
        if (tensor.shape.size() == 2) x *= 0.5f;
        if (tensor.shape.size() == 1 && EndsWith(tensor.name, ".weight")) x = 1.0f + 0.5f * x;
      }
      std::copy(u.begin(), u.end(), weights.data() + grid.TensorOffset(t));
    }
    model = Model::Create(config, grid, options, weights.span(), grads.span()).value();
  }
  static ModelOptions Cpu() {
    ModelOptions options;
    options.device = tensor::Device::kCpu;
    return options;
  }
  std::vector<float> Grads() const { return {grads.span().begin(), grads.span().end()}; }
  void Zero() { std::fill_n(grads.data(), grads.size(), 0.0f); }
  Ids Windows(std::size_t batch, std::size_t length, std::uint64_t salt = 7) const {
    Ids ids;
    for (const float u : Hashed(batch * (length + 1), salt)) {
      ids.push_back(static_cast<std::int32_t>((u * 0.5 + 0.5) * config.vocab));
    }
    return ids;
  }

  ModelConfig config;
  agreed::TileGrid grid;
  agreed::FlatBuffer weights, grads;
  std::unique_ptr<Model> model;
};

Ids GoldenWindows(const Rig& rig) {
  Ids ids = rig.Windows(2, 8);
  return ids;
}
struct Halves {
  Ids inputs, targets;
};
Halves GoldenBatch(const Rig& rig) {
  const Ids ids = GoldenWindows(rig);
  Halves out;
  for (std::size_t b = 0; b < 2; ++b) {
    for (std::size_t t = 0; t < 8; ++t) {
      out.inputs.push_back(ids[b * 9 + t]);
      out.targets.push_back(ids[b * 9 + t + 1]);
    }
  }
  out.targets[2] = out.targets[8 + 5] = out.targets[8 + 6] = kIgnoreToken;
  return out;
}

double MaxDifference(std::span<const float> a, std::span<const float> b) {
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  }
  return most;
}
double Norm(std::span<const float> a) {
  double sum = 0;
  for (const float x : a) sum += static_cast<double>(x) * static_cast<double>(x);
  return std::sqrt(sum);
}

class ModelTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(tensor::ConfigureRuntime({1, true}).ok()); }
};

class GoldenTest : public testing::TestWithParam<int> {
 protected:
  void SetUp() override { ASSERT_TRUE(tensor::ConfigureRuntime({GetParam(), true}).ok()); }
};
// One thread takes the fused kernels, eight take ATen's operators.
INSTANTIATE_TEST_SUITE_P(Threads, GoldenTest, testing::Values(1, 8));

TEST_P(GoldenTest, LossLogitsAndEveryGradientEqualPyTorch) {
  ASSERT_EQ(Goldens().size(), 4u);
  for (std::size_t i = 0; i < Goldens().size(); ++i) {
    const Golden& golden = Goldens()[i];
    SCOPED_TRACE(golden.name);
    ModelOptions options = Rig::Cpu();
    options.z_loss = golden.z_loss;
    Rig rig(GoldenConfig(i), options);
    const Halves batch = GoldenBatch(rig);
    const LossSum loss =
        rig.model->ForwardBackward(Batch{batch.inputs, batch.targets, 2, 8}, 1.0f / 13).value();
    EXPECT_EQ(loss.tokens, 13u);
    EXPECT_NEAR(loss.nll / 13, golden.loss, 2e-6 * golden.loss);
    const auto logits = rig.model->Logits(std::span(batch.inputs).first(8)).value();
    ASSERT_EQ(logits.size(), golden.logits.size());
    EXPECT_LT(MaxDifference(logits, golden.logits), 2e-5);

    ASSERT_EQ(rig.grid.tensors().size(), golden.grads.size());
    std::map<std::string, const double*> probes;
    for (const GoldenTensor& tensor : golden.grads) probes[tensor.name] = tensor.probe;
    for (std::size_t t = 0; t < rig.grid.tensors().size(); ++t) {
      const agreed::TensorShape& tensor = rig.grid.tensors()[t];
      SCOPED_TRACE(tensor.name);
      ASSERT_TRUE(probes.contains(tensor.name));
      const double* probe = probes[tensor.name];
      const auto grad = rig.grads.span().subspan(rig.grid.TensorOffset(t), tensor.Numel());
      double sum = 0;
      for (const float g : grad) sum += static_cast<double>(g);
      const double tolerance = 1e-5 * std::max(probe[0], 1e-3);
      EXPECT_NEAR(Norm(grad), probe[0], tolerance);
      EXPECT_NEAR(sum, probe[1], 10 * tolerance);
      EXPECT_NEAR(grad[0], probe[2], tolerance);
      EXPECT_NEAR(grad[grad.size() / 2], probe[3], tolerance);
    }
  }
}

void ExpectGradientEqualsFiniteDifferences(const ModelConfig& config) {
  SCOPED_TRACE(Traits(config.family).name);
  Rig rig(config);
  const Ids ids = rig.Windows(2, 8);
  (void)rig.model->ForwardBackward(ids, 2, 8, 1.0f).value();
  const agreed::Philox random(11, 0);
  // Along random directions inside each tensor: many elements at once lift the slope above fp32
  // noise.
  for (std::size_t t = 0; t < rig.grid.tensors().size(); ++t) {
    const agreed::TensorShape& tensor = rig.grid.tensors()[t];
    SCOPED_TRACE(tensor.name);
    const std::uint64_t begin = rig.grid.TensorOffset(t), count = tensor.Numel();
    std::vector<float> direction(count);
    double slope = 0, size = 0;
    for (std::uint64_t i = 0; i < count; ++i) {
      direction[i] = random.U64(begin + i) % 2 == 0 ? 1.0f : -1.0f;
      slope += static_cast<double>(direction[i] * rig.grads.data()[begin + i]);
      size += 1;
    }
    const auto step = static_cast<float>(4e-3 / std::sqrt(size));
    const auto at = [&](float h) {
      const std::vector<float> kept(rig.weights.data() + begin, rig.weights.data() + begin + count);
      for (std::uint64_t i = 0; i < count; ++i) rig.weights.data()[begin + i] += h * direction[i];
      const double nll = rig.model->Loss(ids, 2, 8).value().nll;
      std::copy(kept.begin(), kept.end(), rig.weights.data() + begin);
      return nll;
    };
    const double measured = (at(step) - at(-step)) / (2 * static_cast<double>(step));
    const double scale = Norm(rig.grads.span().subspan(begin, count)) * std::sqrt(size);
    EXPECT_NEAR(measured, slope, 3e-3 * scale);
    EXPECT_GT(scale, 0.0);
  }
}

TEST_F(ModelTest, GradientEqualsFiniteDifferences) {
  ExpectGradientEqualsFiniteDifferences(Tiny());
  for (const ModelConfig& config : OfEveryFamily()) ExpectGradientEqualsFiniteDifferences(config);
}

TEST_F(ModelTest, IgnoredTargetsHaveNoLossNoGradientAndNoCount) {
  Rig rig(Tiny());
  const Ids ids = rig.Windows(1, 8);
  // The last four targets ignored = the first four alone (later inputs do not reach back).
  Ids padded = ids;
  for (std::size_t t = 5; t < 9; ++t) padded[t] = kIgnoreToken;
  const LossSum part = rig.model->ForwardBackward(padded, 1, 8, 0.25f).value();
  const auto padded_grads = rig.Grads();
  rig.Zero();
  const LossSum alone = rig.model->ForwardBackward(std::span(ids).first(5), 1, 4, 0.25f).value();
  EXPECT_EQ(part.tokens, 4u);
  EXPECT_EQ(alone.tokens, 4u);
  EXPECT_NEAR(part.nll, alone.nll, 1e-5 * alone.nll);
  EXPECT_LT(MaxDifference(padded_grads, rig.Grads()), 1e-5 * Norm(padded_grads));

  rig.Zero();
  const Ids all(9, kIgnoreToken);
  const LossSum none = rig.model->ForwardBackward(all, 1, 8, 1.0f).value();
  EXPECT_EQ(none.tokens, 0u);
  EXPECT_EQ(none.nll, 0.0);
  EXPECT_EQ(Norm(rig.grads.span()), 0.0);
}

TEST_F(ModelTest, MicroBatchesOfUnequalTokensSumToTheBigBatch) {
  Rig rig(Tiny());
  Ids ids = rig.Windows(4, 8);
  for (std::size_t t = 4; t < 9; ++t) ids[t] = kIgnoreToken;  // first window: 3 targets only
  const float scale = 1.0f / 27;
  const LossSum big = rig.model->ForwardBackward(ids, 4, 8, scale).value();
  const auto big_grads = rig.Grads();
  rig.Zero();
  LossSum sum;
  for (std::size_t b = 0; b < 4; ++b) {
    const auto part =
        rig.model->ForwardBackward(std::span(ids).subspan(b * 9, 9), 1, 8, scale).value();
    sum.nll += part.nll, sum.tokens += part.tokens;
  }
  EXPECT_EQ(big.tokens, 27u);
  EXPECT_EQ(sum.tokens, 27u);
  EXPECT_NEAR(sum.nll, big.nll, 1e-5 * big.nll);
  EXPECT_LT(MaxDifference(rig.Grads(), big_grads), 1e-5 * Norm(big_grads));
}

TEST_F(ModelTest, CheckpointingGivesTheSameBits) {
  for (const auto compute : {tensor::ComputeType::kFp32, tensor::ComputeType::kBf16}) {
    ModelOptions plain = Rig::Cpu();
    plain.compute = compute;
    ModelOptions checkpointing = plain;
    checkpointing.checkpointing = true;
    std::vector<ModelConfig> configs = OfEveryFamily();
    configs.push_back(Tiny());
    for (const ModelConfig& config : configs) {
      Rig a(config, plain), b(config, checkpointing);
      const Ids ids = a.Windows(3, 8);
      EXPECT_EQ(a.model->ForwardBackward(ids, 3, 8, 0.1f).value().nll,
                b.model->ForwardBackward(ids, 3, 8, 0.1f).value().nll);
      EXPECT_GT(Norm(a.grads.span()), 0.0);
      EXPECT_EQ(a.Grads(), b.Grads());
    }
  }
}

TEST_F(ModelTest, SameThreadCountSameBitsAndTwoThreadsClose) {
  const auto run = [](int threads) {
    std::vector<float> grads;
    std::thread compute([&] {
      ASSERT_TRUE(tensor::ConfigureRuntime({threads, true}).ok());
      ModelConfig config = Preset("loom-0.2m").value();
      Rig rig(config);
      InitWeights(config, rig.grid, 3, rig.weights.span());
      (void)rig.model->ForwardBackward(rig.Windows(4, 64), 4, 64, 1.0f / 256).value();
      grads = rig.Grads();
    });
    compute.join();
    return grads;
  };
  const auto one = run(1), two = run(2);
  EXPECT_EQ(one, run(1));
  EXPECT_EQ(two, run(2));
  EXPECT_LT(MaxDifference(one, two), 1e-5 * Norm(one));
}

TEST_F(ModelTest, Bf16IsCloseToFp32) {
  ModelConfig config = Preset("loom-0.2m").value();
  ModelOptions bf16 = Rig::Cpu();
  bf16.compute = tensor::ComputeType::kBf16;
  Rig a(config), b(config, bf16);
  for (Rig* rig : {&a, &b}) {
    InitWeights(config, rig->grid, 5, rig->weights.span());
    rig->model->WeightsChanged();
  }
  const Ids ids = a.Windows(2, 64);
  const double fp32_nll = a.model->ForwardBackward(ids, 2, 64, 1.0f / 128).value().nll;
  const double bf16_nll = b.model->ForwardBackward(ids, 2, 64, 1.0f / 128).value().nll;
  EXPECT_NE(fp32_nll, bf16_nll);
  EXPECT_NEAR(bf16_nll, fp32_nll, 2e-3 * fp32_nll);
  std::vector<float> difference = a.Grads();
  for (std::size_t i = 0; i < difference.size(); ++i) difference[i] -= b.grads.data()[i];
  EXPECT_LT(Norm(difference), 0.03 * Norm(a.grads.span()));
}

TEST_F(ModelTest, LossInChunksOfTheHeadEqualsOneSequenceAtATime) {
  ModelConfig config = Tiny();
  config.context = 512;
  Rig rig(config);
  const Ids ids = rig.Windows(3, 512);  // 1536 rows: more than one chunk
  const LossSum all = rig.model->Loss(ids, 3, 512).value();
  double sum = 0;
  for (std::size_t b = 0; b < 3; ++b) {
    sum += rig.model->Loss(std::span(ids).subspan(b * 513, 513), 1, 512).value().nll;
  }
  EXPECT_EQ(all.tokens, 1536u);
  EXPECT_NEAR(all.nll, sum, 1e-6 * sum);
}

TEST_F(ModelTest, BadInputIsAnErrorAndChangesNothing) {
  Rig rig(Tiny());
  Ids ids = rig.Windows(1, 8);
  ids[3] = 19;
  const auto outside = rig.model->ForwardBackward(ids, 1, 8, 1.0f);
  ASSERT_FALSE(outside.ok());
  EXPECT_NE(outside.error().message.find("id 19, the vocabulary has 19"), std::string::npos);
  ids[3] = -1;
  EXPECT_FALSE(rig.model->ForwardBackward(ids, 1, 8, 1.0f).ok());
  ids[3] = 0;
  EXPECT_FALSE(rig.model->ForwardBackward(ids, 2, 8, 1.0f).ok());
  EXPECT_FALSE(rig.model->ForwardBackward(ids, 0, 0, 1.0f).ok());
  EXPECT_FALSE(rig.model->ForwardBackward(ids, 1, 8, NAN).ok());
  EXPECT_FALSE(rig.model->ForwardBackward(rig.Windows(1, 9), 1, 9, 1.0f).ok());  // over the context
  EXPECT_FALSE(rig.model->Logits({}).ok());
  EXPECT_FALSE(rig.model->Logits(Ids(9, 0)).ok());
  EXPECT_EQ(Norm(rig.grads.span()), 0.0);
  ModelOptions negative = Rig::Cpu();
  negative.z_loss = -1;
  EXPECT_FALSE(Model::Create(rig.config, rig.grid, negative, rig.weights.span(), {}).ok());
  EXPECT_FALSE(
      Model::Create(rig.config, rig.grid, Rig::Cpu(), rig.weights.span().first(8), {}).ok());
  ModelConfig other = rig.config;
  other.layers = 3;
  EXPECT_FALSE(
      Model::Create(other, rig.grid, Rig::Cpu(), rig.weights.span(), rig.grads.span()).ok());
}

}  // namespace
}  // namespace loom::model
