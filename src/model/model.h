// A transformer over flat weights: loss, gradients and logits. The caller owns weights and
// gradients as flat fp32 buffers of one TileGrid; the model's tensors are views of them (on CUDA,
// device copies that WeightsChanged and ForwardBackward keep in step). libtorch stays in model.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "agreed/tile_grid.h"
#include "base/result.h"
#include "model/config.h"
#include "tensor/runtime.h"

namespace loom::model {

/// A target with this id has no loss and is not counted.
inline constexpr std::int32_t kIgnoreToken = -100;

/// Sum of negative log-likelihoods in nats, and the number of targets that were summed.
struct LossSum {
  double nll = 0;
  std::uint64_t tokens = 0;
};

struct ModelOptions {
  tensor::Device device = tensor::Device::kAuto;
  tensor::ComputeType compute = tensor::ComputeType::kFp32;  ///< kBf16: weights stay fp32 masters
  bool checkpointing = false;  ///< recompute each block in the backward pass; same gradient bits
  /// Weight of the squared log-sum-exp of the logits, per token, in what is differentiated (PaLM);
  /// no loss that is returned has it.
  float z_loss = 0;
};

/// B sequences of T inputs and their T targets, row-major [B, T].
struct Batch {
  std::span<const std::int32_t> inputs;   ///< ids in [0, vocab)
  std::span<const std::int32_t> targets;  ///< ids in [0, vocab) or kIgnoreToken
  std::size_t batch = 0;                  ///< B
  std::size_t length = 0;                 ///< T, at most the context
};

/// Keys and values of one growing sequence, so that a new token costs one token's work.
/// Thread: the model's. Must not outlive its model; a change of the weights makes it stale: Clear.
class Decoder {
 public:
  ~Decoder();
  /// Appends ids, 1..context - length() of them, and returns the logits [V] after the last one.
  Result<std::vector<float>> Feed(std::span<const std::int32_t> ids);
  std::size_t length() const;  ///< ids seen since the start or Clear
  void Clear();

 private:
  friend class Model;
  struct State;
  explicit Decoder(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// Thread: one compute thread. The spans must outlive the model.
class Model {
 public:
  /// `weights` and `grads` are flat buffers of `grid` (flat_size elements), which must be the grid
  /// of ParameterShapes(config). `grads` may be empty when only losses and logits are wanted.
  /// `frozen` is the flat buffer of the grid of FrozenShapes(config), empty when all is trained; it
  /// is only read, and may be a mapped file.
  static Result<std::unique_ptr<Model>> Create(const ModelConfig& config,
                                               const agreed::TileGrid& grid,
                                               const ModelOptions& options,
                                               std::span<float> weights, std::span<float> grads,
                                               std::span<const float> frozen = {});
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  /// Must follow every change of the weight span. Free for fp32 on the CPU, else a copy
  /// (to bf16, to the device).
  void WeightsChanged();

  /// Adds loss_scale * d(sum of token losses)/d(weights) to the gradient span and returns the sum.
  /// (With options().z_loss the gradient is that of the losses with it.)
  /// With loss_scale = 1 / (non-ignored targets of the whole step), summed over its micro-batches,
  /// the span holds the gradient of the mean loss; the caller zeroes it before the first one.
  /// An error (bad shape, id out of range) leaves the gradients untouched.
  Result<LossSum> ForwardBackward(const Batch& batch, float loss_scale);
  /// The same from windows [B, T + 1]: token t + 1 is the target of token t. kIgnoreToken in a
  /// window is an ignored target, and as an input reads as id 0 (padding at the end of a window).
  Result<LossSum> ForwardBackward(std::span<const std::int32_t> tokens, std::size_t batch,
                                  std::size_t length, float loss_scale);

  /// The loss alone; no gradients, no activations kept.
  Result<LossSum> Loss(const Batch& batch);
  Result<LossSum> Loss(std::span<const std::int32_t> tokens, std::size_t batch, std::size_t length);

  /// Logits [T, V] in fp32 of one sequence of 1..context ids.
  Result<std::vector<float>> Logits(std::span<const std::int32_t> ids);

  const ModelConfig& config() const;
  const ModelOptions& options() const;  ///< with the device resolved

  /// A decoder with an empty sequence, of at most config().context ids.
  Result<std::unique_ptr<Decoder>> NewDecoder();

 private:
  friend class Decoder;
  struct State;
  explicit Model(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace loom::model
