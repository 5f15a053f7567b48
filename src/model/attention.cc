#include "model/attention.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "base/check.h"

namespace loom::model {
namespace {

/// Each head `times` times in a row: [B, K, S, D] to [B, K * times, S, D].
at::Tensor Repeat(const at::Tensor& x_BKSD, std::int64_t times) {
  if (times == 1) return x_BKSD;
  const auto shape = x_BKSD.sizes();
  return x_BKSD.unsqueeze(2)
      .expand({shape[0], shape[1], times, shape[2], shape[3]})
      .reshape({shape[0], shape[1] * times, shape[2], shape[3]});
}

}  // namespace

struct KvCache::State {
  std::vector<at::Tensor> keys, values;  // [1, K, room, D]
  std::int64_t length = 0;

  at::Tensor AppendTo(at::Tensor& store, const at::Tensor& x_BKTD) const {
    const std::int64_t tokens = x_BKTD.size(2);
    const std::int64_t need = length + tokens;
    if (!store.defined() || store.size(2) < need) {
      constexpr std::int64_t kRoom = 64;
      const std::int64_t room = std::max(need + kRoom, 2 * length);
      at::Tensor larger =
          at::empty({x_BKTD.size(0), x_BKTD.size(1), room, x_BKTD.size(3)}, x_BKTD.options());
      if (length > 0) larger.narrow(2, 0, length).copy_(store.narrow(2, 0, length));
      store = larger;
    }
    store.narrow(2, length, tokens).copy_(x_BKTD);
    return store.narrow(2, 0, need);
  }
};

KvCache::KvCache(std::size_t layers) : state_(std::make_unique<State>()) {
  state_->keys.resize(layers);
  state_->values.resize(layers);
}
KvCache::KvCache(KvCache&&) noexcept = default;
KvCache::~KvCache() = default;

std::int64_t KvCache::length() const { return state_->length; }
void KvCache::Clear() { state_->length = 0; }
void KvCache::Advance(std::int64_t tokens) { state_->length += tokens; }

std::pair<at::Tensor, at::Tensor> KvCache::Append(std::size_t layer, const at::Tensor& k_BKTD,
                                                  const at::Tensor& v_BKTD) {
  return {state_->AppendTo(state_->keys[layer], k_BKTD),
          state_->AppendTo(state_->values[layer], v_BKTD)};
}

at::Tensor Attend(const at::Tensor& q_BHTD, const at::Tensor& k_BKSD, const at::Tensor& v_BKSD,
                  std::int64_t window) {
  const std::int64_t queries = q_BHTD.size(2);
  const std::int64_t keys = k_BKSD.size(2);
  LOOM_CHECK(queries == keys || queries == 1, "{} queries over {} keys", queries, keys);
  const std::int64_t group = q_BHTD.size(1) / k_BKSD.size(1);
  const bool narrowed = window > 0 && keys > window;
  if (narrowed && queries == 1) {
    return Attend(q_BHTD, k_BKSD.narrow(2, keys - window, window),
                  v_BKSD.narrow(2, keys - window, window));
  }
  std::optional<at::Tensor> mask_TT;
  if (narrowed) {
    mask_TT =
        at::ones({queries, keys}, q_BHTD.options().dtype(at::kBool)).tril_().triu_(1 - window);
  }
  const bool causal = queries == keys && !narrowed;
  return at::scaled_dot_product_attention(q_BHTD, Repeat(k_BKSD, group), Repeat(v_BKSD, group),
                                          mask_TT, /*dropout_p=*/0.0, causal);
}

}  // namespace loom::model
