// What the families share around attention: the product itself, and the cache of keys and values
// with which a new token costs one token's work. Internal to model.
//
// Shape suffixes: B batch   T tokens   H query heads   K key/value heads   D head_dim
//                 S tokens so far
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace at {
class Tensor;
}

namespace loom::model {

/// Keys and values of every layer for one sequence, allocated as it grows.
class KvCache {
 public:
  explicit KvCache(std::size_t layers);
  KvCache(KvCache&&) noexcept;
  ~KvCache();
  std::int64_t length() const;  ///< tokens held
  void Clear();

  /// Appends k, v [1, K, T, D] to the layer's and returns all so far [1, K, S, D].
  std::pair<at::Tensor, at::Tensor> Append(std::size_t layer, const at::Tensor& k_BKTD,
                                           const at::Tensor& v_BKTD);
  /// After the last layer: the T tokens are held now.
  void Advance(std::int64_t tokens);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// softmax(q k^T / sqrt(D)) v; each key/value head serves H / K query heads. Queries are those of
/// all S tokens, each of which sees itself and those before it, or of the last one alone (T = 1).
/// window: how many tokens it sees at most, itself included; 0 = all.
at::Tensor Attend(const at::Tensor& q_BHTD, const at::Tensor& k_BKSD, const at::Tensor& v_BKSD,
                  std::int64_t window = 0);

}  // namespace loom::model
