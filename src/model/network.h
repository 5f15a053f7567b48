// One family of transformers, seen by Model: ids in, hidden states out, gradients into the weights.
// A further family is one more file that implements Network. Internal to model.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>

#include "model/config.h"
#include "tensor/ops.h"

namespace at {
class Tensor;
}

namespace loom::model {

class KvCache;

class Network {
 public:
  virtual ~Network() = default;

  /// Blocks and final norm over embedded ids [B * T, W]: the hidden states [B * T, W] that the head
  /// multiplies.
  virtual at::Tensor Hidden(const at::Tensor& x_RW, std::int64_t batch, std::int64_t length,
                            bool checkpointing) = 0;
  /// The same for the next ids of one sequence, after and into the cache (room for them is the
  /// caller's duty). More than one id at a time only into an empty cache.
  virtual at::Tensor HiddenNext(const at::Tensor& x_TW, KvCache& cache) = 0;

  virtual const tensor::Weight& embedding() const = 0;
  virtual const tensor::Weight& head() const = 0;  ///< the embedding when tied
};

/// Gives the parameter of a name; for several names, them one below the other.
using WeightLookup = std::function<tensor::Stack(std::initializer_list<std::string> names)>;

/// Llama, Mistral, Qwen2, Qwen3.
std::unique_ptr<Network> MakeLlama(const ModelConfig& config, const WeightLookup& weight);
std::unique_ptr<Network> MakeGpt2(const ModelConfig& config, const WeightLookup& weight);

}  // namespace loom::model
