// The differentiable operations of a transformer block on at::Tensor. Weights are not autograd
// leaves: each operation's backward adds the weight's gradient straight into the caller's tensor
// (one pass less over every weight than autograd's own accumulation, and the same for a recomputed
// block). fp32 on the CPU with few threads runs the kernels of kernels.h, everything else
// ATen formulas.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace at {
class Tensor;
}

namespace loom::tensor {

struct LowRank;

/// A parameter and where its gradient goes. Copies share storage. `grad` may be undefined (no
/// gradient wanted); it is fp32 whatever the type of `value`.
class Weight {
 public:
  Weight() = default;  ///< absent, e.g. no bias
  Weight(at::Tensor value, at::Tensor grad);
  /// A matrix that products add these to.
  Weight(at::Tensor value, at::Tensor grad, std::vector<LowRank> additions);
  bool defined() const { return tensors_ != nullptr; }
  const at::Tensor& value() const;
  const at::Tensor& grad() const;
  const std::vector<LowRank>& additions() const;

 private:
  struct Tensors;
  std::shared_ptr<const Tensors> tensors_;
};

/// scale * B A beside the matrix that produces some outputs (LoRA, Hu et al. 2021, section 4.1).
struct LowRank {
  std::int64_t first = 0;  ///< of the outputs that B has rows for
  Weight a_NI, b_ON;       ///< rank N
  double scale = 1;
};

/// Matrices one below the other, or vectors end to end, that act as one: those that lie side by
/// side in memory are one Weight already.
using Stack = std::vector<Weight>;

/// y_RO = x_RI W_OI^T (+ b_O), rows R.
at::Tensor Linear(const at::Tensor& x_RI, const Stack& weight_OI, const Stack& bias_O = {});
/// y_RO = x_RI W_IO + b_O: GPT-2 stores its matrices this way round.
at::Tensor InputMajorLinear(const at::Tensor& x_RI, const Weight& weight_IO, const Weight& bias_O);

/// Normalised in fp32, cast to x's type, then times the weight; over the last dimension.
at::Tensor RmsNorm(const at::Tensor& x_RW, const Weight& weight_W, double eps);

/// (x - mean) / sqrt(variance + eps) * w + b over the last dimension (Ba et al. 2016).
at::Tensor LayerNorm(const at::Tensor& x_RW, const Weight& weight_W, const Weight& bias_W,
                     double eps);

/// silu(gate) * up of rows gate|up.
at::Tensor SwiGlu(const at::Tensor& gate_up_R2F);

/// Rows q|k|v of B*T tokens to rotated q_BHTD, rotated k_BKTD and v_BKTD (rotation by halves).
/// cos and sin: fp32 [T, D / 2], of the positions these T tokens stand at.
struct HeadCounts {
  std::int64_t batch, length, heads, kv_heads, dim;
};
std::array<at::Tensor, 3> SplitRotate(const at::Tensor& qkv_RN, const at::Tensor& cos_TE,
                                      const at::Tensor& sin_TE, const HeadCounts& counts);

/// Rows of the table.
at::Tensor Embed(const at::Tensor& ids_R, const Weight& table_VW);
/// Rows of B*T tokens, each plus the row of the table of its position: first, first + 1, ...
at::Tensor AddPositions(const at::Tensor& x_RW, const Weight& table_PW, std::int64_t first,
                        std::int64_t length);
/// Adds dx's rows into the table's gradient, in a fixed order.
void EmbedBackward(const at::Tensor& ids_R, const at::Tensor& dx_RW, const Weight& table_VW);

/// The head: logits = h W^T in fp32, `chunk` rows at a time, so that they never exist all at once.
/// targets: int32 on the CPU, negative = ignored. With scale != 0, *dh becomes scale * d(sum of nll
/// + z_loss * logsumexp^2)/dh (the z-loss of PaLM, Chowdhery et al. 2022) and the weight's gradient
/// grows likewise. Returns the sum of nll alone, in nats.
double CrossEntropyHead(const at::Tensor& h_RW, const at::Tensor& targets_R,
                        const Weight& weight_VW, std::int64_t chunk, float scale, float z_loss,
                        at::Tensor* dh);

/// block(x), keeping only x; the backward pass runs block again. Weight gradients and dx have the
/// same bits as without. `block` must be a pure function of x and of things that do not change
/// before the backward pass.
using Block = std::function<at::Tensor(const at::Tensor&)>;
at::Tensor Checkpoint(Block block, const at::Tensor& x);

}  // namespace loom::tensor
