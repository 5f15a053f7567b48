// One family of transformers, seen by Model: ids in, hidden states out, gradients into the weights.
// A further family is one more file that implements Network. Internal to model.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "model/config.h"
#include "tensor/ops.h"

namespace at {
class Tensor;
}

namespace loom::model {

/// Keys and values of one sequence; the family decides what is inside.
class KvCache {
 public:
  virtual ~KvCache() = default;
  virtual std::int64_t length() const = 0;  ///< tokens held
  virtual void Clear() = 0;
};

class Network {
 public:
  virtual ~Network() = default;

  /// Embedded ids [B * T, W].
  virtual at::Tensor Embed(const at::Tensor& ids_R) const = 0;
  /// Blocks and final norm: the hidden states [B * T, W] that the head multiplies.
  virtual at::Tensor Hidden(const at::Tensor& x_RW, std::int64_t batch, std::int64_t length,
                            bool checkpointing) = 0;
  /// The same for the next ids of one sequence, after and into the cache (room for them is the
  /// caller's duty). More than one id at a time only into an empty cache.
  virtual at::Tensor HiddenNext(const at::Tensor& x_TW, KvCache& cache) = 0;
  virtual std::unique_ptr<KvCache> NewCache() const = 0;

  virtual const tensor::Weight& embedding() const = 0;
  virtual const tensor::Weight& head() const = 0;  ///< the embedding when tied
};

/// Gives the parameter of a name; for several names, those lying side by side in the flat buffer as
/// one matrix of all their rows.
using WeightLookup = std::function<tensor::Weight(std::initializer_list<std::string> names)>;

std::unique_ptr<Network> MakeLlama(const ModelConfig& config, const WeightLookup& weight);

}  // namespace loom::model
