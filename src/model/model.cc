// Model: checks the batch, lays tensors over the flat buffers, runs network and head, and turns
// libtorch's exceptions into errors.
#include "model/model.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/check.h"
#include "model/attention.h"
#include "model/family.h"
#include "model/network.h"
#include "model/weight_views.h"

namespace loom::model {
namespace {

std::int64_t ToSigned(std::size_t n) { return static_cast<std::int64_t>(n); }

at::Tensor View(std::span<float> values) {
  return at::from_blob(values.data(), {ToSigned(values.size())}, at::kFloat);
}

/// Runs what may throw (libtorch, allocation); the error says what was being done.
template <class F>
auto Guard(std::string_view doing, F&& run) -> Result<decltype(run())> {
  try {
    return run();
  } catch (const c10::OutOfMemoryError& e) {
    return MakeError(Code::kLimit, fmt::format("{}: {}", doing, e.what_without_backtrace()),
                     "use a smaller batch, a shorter context or activation checkpointing");
  } catch (const c10::Error& e) {
    return MakeError(Code::kInternal, fmt::format("{}: {}", doing, e.what_without_backtrace()));
  } catch (const std::bad_alloc&) {
    return MakeError(Code::kLimit, fmt::format("{}: out of memory", doing),
                     "use a smaller batch, a shorter context or activation checkpointing");
  } catch (const std::exception& e) {
    return MakeError(Code::kInternal, fmt::format("{}: {}", doing, e.what()));
  }
}

Status CheckIds(std::span<const std::int32_t> ids, std::uint32_t vocab, std::string_view what,
                bool ignore_allowed) {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::int32_t id = ids[i];
    if (id >= 0 && static_cast<std::uint32_t>(id) < vocab) continue;
    if (ignore_allowed && id == kIgnoreToken) continue;
    return MakeError(Code::kInvalid,
                     fmt::format("{} {} is id {}, the vocabulary has {}", what, i, id, vocab),
                     "was the text encoded with this model's tokenizer?");
  }
  return {};
}

}  // namespace

struct Model::State {
  ModelConfig config;
  ModelOptions options;
  at::Tensor master;      // the caller's weights, fp32 on the CPU
  at::Tensor weights;     // the same tensor, or its copy in the compute type on the device
  at::Tensor host_grads;  // the caller's gradients; undefined when there are none
  at::Tensor grads;       // the same tensor, or its fp32 twin on the device
  at::Tensor frozen;      // in the compute type on the device; undefined when all is trained
  std::unique_ptr<Network> network;

  bool copies_weights() const { return !weights.is_same(master); }
  bool copies_grads() const { return grads.defined() && !grads.is_same(host_grads); }

  Status CheckBatch(const Batch& batch) const {
    if (batch.batch == 0 || batch.length == 0 || batch.length > config.context) {
      return MakeError(
          Code::kInvalid,
          fmt::format("batch of {} x {} tokens, allowed are 1 or more sequences of 1 to "
                      "{} (the model's context)",
                      batch.batch, batch.length, config.context));
    }
    if (batch.inputs.size() / batch.length != batch.batch ||
        batch.inputs.size() % batch.length != 0 || batch.targets.size() != batch.inputs.size()) {
      return MakeError(
          Code::kInvalid,
          fmt::format("batch of {} x {} tokens came with {} inputs and {} targets", batch.batch,
                      batch.length, batch.inputs.size(), batch.targets.size()));
    }
    LOOM_RETURN_IF_ERROR(CheckIds(batch.inputs, config.vocab, "input", false));
    return CheckIds(batch.targets, config.vocab, "target", true);
  }

  at::Tensor Ids(std::span<const std::int32_t> ids) const {
    at::Tensor ids_R = at::empty({ToSigned(ids.size())}, at::kLong);
    std::copy(ids.begin(), ids.end(), ids_R.mutable_data_ptr<std::int64_t>());
    return ids_R.to(weights.device());
  }

  double Run(const Batch& batch, float loss_scale) {
    const at::Tensor ids_R = Ids(batch.inputs);
    const at::Tensor targets_R = at::from_blob(const_cast<std::int32_t*>(batch.targets.data()),
                                               {ToSigned(batch.targets.size())}, at::kInt);
    const bool backward = loss_scale != 0.0f;
    const at::AutoGradMode mode(backward);
    if (copies_grads() && backward) grads.zero_();
    const at::Tensor x_RW = tensor::Embed(ids_R, network->embedding()).requires_grad_(backward);
    const at::Tensor h_RW = network->Hidden(x_RW, ToSigned(batch.batch), ToSigned(batch.length),
                                            options.checkpointing && backward);
    at::Tensor dh_RW;
    const double nll = tensor::CrossEntropyHead(h_RW, targets_R, network->head(),
                                                static_cast<std::int64_t>(kLossChunkTokens),
                                                loss_scale, options.z_loss, &dh_RW);
    if (backward) {
      h_RW.backward(dh_RW);
      tensor::EmbedBackward(ids_R, x_RW.grad(), network->embedding());
      if (copies_grads()) host_grads.add_(grads.to(at::kCPU));
    }
    return nll;
  }

  Result<LossSum> Compute(const Batch& batch, float loss_scale) {
    LOOM_RETURN_IF_ERROR(CheckBatch(batch));
    LossSum loss;
    for (const std::int32_t id : batch.targets) loss.tokens += id == kIgnoreToken ? 0u : 1u;
    if (loss.tokens == 0) return loss;
    LOOM_ASSIGN(loss.nll, Guard(loss_scale != 0 ? "forward and backward pass" : "forward pass",
                                [&] { return Run(batch, loss_scale); }));
    return loss;
  }
};

namespace {

/// Windows [B, T + 1] cut into inputs and targets.
struct Cut {
  std::vector<std::int32_t> inputs, targets;
};
Result<Cut> CutWindows(std::span<const std::int32_t> tokens, std::size_t batch,
                       std::size_t length) {
  const std::size_t window = length + 1;
  if (window == 0 || tokens.size() / window != batch || tokens.size() % window != 0) {
    return MakeError(Code::kInvalid, fmt::format("{} tokens are not {} windows of {} + 1 tokens",
                                                 tokens.size(), batch, length));
  }
  Cut cut;
  cut.inputs.reserve(batch * length);
  cut.targets.reserve(batch * length);
  for (std::size_t b = 0; b < batch; ++b) {
    const auto row = tokens.subspan(b * window, window);
    for (std::size_t t = 0; t < length; ++t) {
      cut.inputs.push_back(row[t] == kIgnoreToken ? 0 : row[t]);
      cut.targets.push_back(row[t + 1]);
    }
  }
  return cut;
}

}  // namespace

Model::Model(std::unique_ptr<State> state) : state_(std::move(state)) {}
Model::~Model() = default;

Result<std::unique_ptr<Model>> Model::Create(const ModelConfig& config,
                                             const agreed::TileGrid& grid,
                                             const ModelOptions& options, std::span<float> weights,
                                             std::span<float> grads,
                                             std::span<const float> frozen) {
  LOOM_RETURN_IF_ERROR(Validate(config));
  if (grid.tensors() != ParameterShapes(config)) {
    return MakeError(Code::kInvalid, "the tile grid is not the one of this model's parameters");
  }
  if (weights.size() != grid.flat_size() || (!grads.empty() && grads.size() != weights.size())) {
    return MakeError(Code::kInvalid,
                     fmt::format("weights have {} and gradients {} elements, the grid has {}",
                                 weights.size(), grads.size(), grid.flat_size()));
  }
  LOOM_ASSIGN(const agreed::TileGrid frozen_grid, agreed::TileGrid::Make(FrozenShapes(config)));
  if (frozen.size() != frozen_grid.flat_size()) {
    return MakeError(Code::kInvalid,
                     fmt::format("the frozen weights have {} elements, this model needs {}",
                                 frozen.size(), frozen_grid.flat_size()));
  }
  if (!(options.z_loss >= 0) || !std::isfinite(options.z_loss)) {
    return MakeError(Code::kInvalid,
                     fmt::format("z_loss is {}, it must be 0 or above", options.z_loss));
  }
  auto state = std::make_unique<State>();
  state->config = config;
  state->options = options;
  LOOM_ASSIGN(state->options.device, tensor::ResolveDevice(options.device));
  const auto build = [&] {
    const at::Device device(state->options.device == tensor::Device::kCuda ? at::kCUDA : at::kCPU);
    const bool bf16 = options.compute == tensor::ComputeType::kBf16;
    const auto placed = [&](const at::Tensor& values) {  // a copy only where it has to be one
      return values.to(at::dtype(bf16 ? at::kBFloat16 : at::kFloat).device(device));
    };
    state->master = View(weights);
    state->weights = placed(state->master);
    if (!grads.empty()) {
      state->host_grads = View(grads);
      state->grads = device.is_cpu()
                         ? state->host_grads
                         : at::zeros({state->master.numel()}, at::dtype(at::kFloat).device(device));
    }
    std::vector<FlatTensors> flats{{&grid, {state->weights, state->grads}}};
    if (!frozen.empty()) {
      state->frozen = placed(View({const_cast<float*>(frozen.data()), frozen.size()}));
      flats.push_back({&frozen_grid, {state->frozen, at::Tensor()}});
    }
    const WeightViews views(std::move(flats), config.tuning);
    state->network =
        Traits(config.family).rotary ? MakeLlama(config, views) : MakeGpt2(config, views);
    return true;
  };
  LOOM_RETURN_IF_ERROR([&]() -> Status {
    LOOM_ASSIGN([[maybe_unused]] const bool built, Guard("model set-up", build));
    return {};
  }());
  return std::unique_ptr<Model>(new Model(std::move(state)));
}

void Model::WeightsChanged() {
  if (state_->copies_weights()) state_->weights.copy_(state_->master);
}

Result<LossSum> Model::ForwardBackward(const Batch& batch, float loss_scale) {
  if (!state_->grads.defined()) {
    return MakeError(Code::kInvalid, "the model was made without gradients");
  }
  if (!std::isfinite(loss_scale) || loss_scale <= 0.0f) {
    return MakeError(Code::kInvalid,
                     fmt::format("loss_scale is {}, it must be above 0", loss_scale),
                     "it is 1 / (targets with a loss in the whole step)");
  }
  return state_->Compute(batch, loss_scale);
}

Result<LossSum> Model::ForwardBackward(std::span<const std::int32_t> tokens, std::size_t batch,
                                       std::size_t length, float loss_scale) {
  LOOM_ASSIGN(const Cut cut, CutWindows(tokens, batch, length));
  return ForwardBackward(Batch{cut.inputs, cut.targets, batch, length}, loss_scale);
}

Result<LossSum> Model::Loss(const Batch& batch) { return state_->Compute(batch, 0.0f); }

Result<LossSum> Model::Loss(std::span<const std::int32_t> tokens, std::size_t batch,
                            std::size_t length) {
  LOOM_ASSIGN(const Cut cut, CutWindows(tokens, batch, length));
  return Loss(Batch{cut.inputs, cut.targets, batch, length});
}

namespace {

std::vector<float> HeadLogits(const at::Tensor& h_RW, const tensor::Weight& head_VW) {
  const at::Tensor logits =
      at::mm(h_RW, head_VW.value().t()).to(at::kFloat).to(at::kCPU).contiguous();
  const float* data = logits.const_data_ptr<float>();
  return {data, data + logits.numel()};
}

}  // namespace

Result<std::vector<float>> Model::Logits(std::span<const std::int32_t> ids) {
  if (ids.empty() || ids.size() > state_->config.context) {
    return MakeError(Code::kInvalid,
                     fmt::format("logits of {} ids, allowed are 1 to {} (the context)", ids.size(),
                                 state_->config.context));
  }
  LOOM_RETURN_IF_ERROR(CheckIds(ids, state_->config.vocab, "token", false));
  return Guard("logits", [&] {
    const at::NoGradGuard no_grad;
    Network& network = *state_->network;
    const at::Tensor h_TW = network.Hidden(tensor::Embed(state_->Ids(ids), network.embedding()), 1,
                                           ToSigned(ids.size()), false);
    return HeadLogits(h_TW, network.head());
  });
}

const ModelConfig& Model::config() const { return state_->config; }
const ModelOptions& Model::options() const { return state_->options; }

struct Decoder::State {
  Model::State* model;
  KvCache cache;
};

Decoder::Decoder(std::unique_ptr<State> state) : state_(std::move(state)) {}
Decoder::~Decoder() = default;

Result<std::unique_ptr<Decoder>> Model::NewDecoder() {
  auto state = std::make_unique<Decoder::State>(state_.get(), KvCache(state_->config.layers));
  return std::unique_ptr<Decoder>(new Decoder(std::move(state)));
}

Result<std::vector<float>> Decoder::Feed(std::span<const std::int32_t> ids) {
  const std::uint32_t context = state_->model->config.context;
  if (ids.empty() || ids.size() > context - length()) {
    return MakeError(Code::kInvalid, fmt::format("{} ids after {}, the context has room for {}",
                                                 ids.size(), length(), context));
  }
  LOOM_RETURN_IF_ERROR(CheckIds(ids, state_->model->config.vocab, "token", false));
  return Guard("decoding", [&] {
    const at::NoGradGuard no_grad;
    Network& network = *state_->model->network;
    const at::Tensor x_TW = tensor::Embed(state_->model->Ids(ids), network.embedding());
    at::Tensor h_TW;
    if (length() == 0) {
      h_TW = network.HiddenNext(x_TW, state_->cache);
    } else {
      for (std::int64_t t = 0; t < x_TW.size(0); ++t) {
        h_TW = network.HiddenNext(x_TW.narrow(0, t, 1), state_->cache);
      }
    }
    return HeadLogits(h_TW.narrow(0, h_TW.size(0) - 1, 1), network.head());
  });
}

std::size_t Decoder::length() const { return static_cast<std::size_t>(state_->cache.length()); }
void Decoder::Clear() { state_->cache.Clear(); }

}  // namespace loom::model
