// The small fp32 CPU kernels between the matrix products: RMSNorm, rotary split, SwiGLU and
// cross-entropy, each one pass over memory where a chain of operators takes four to eight. Plain
// spans, no libtorch. A row's result does not depend on how rows are spread over threads.
// Their bits may differ between CPUs (unlike `agreed`): inner steps are each peer's own.
#pragma once

#include <cstddef>
#include <cstdint>

namespace loom::tensor::kernels {

/// y = x / rms(x) * w over rows of n values; keeps 1 / rms(x) per row.
void RmsNorm(const float* x, const float* w, float eps, std::size_t rows, std::size_t n, float* y,
             float* scale);
/// dx of RmsNorm; adds into dw when it is not null.
void RmsNormBackward(const float* dy, const float* x, const float* w, const float* scale,
                     std::size_t rows, std::size_t n, float* dx, float* dw);

/// The shape of one attention input: rows [B * T] of (heads + 2 kv_heads) * dim values.
struct HeadShape {
  std::size_t batch, length, heads, kv_heads, dim;
};
/// Splits q|k|v rows into q [B, heads, T, dim], k and v [B, kv_heads, T, dim]; q and k are rotated
/// by halves: (a, b) -> (a cos - b sin, b cos + a sin) with cos, sin [T, dim / 2].
void SplitRotate(const float* qkv, const float* cos, const float* sin, const HeadShape& shape,
                 float* q, float* k, float* v);
/// The gradient of SplitRotate. dq, dk, dv are laid out as its outputs.
void SplitRotateBackward(const float* dq, const float* dk, const float* dv, const float* cos,
                         const float* sin, const HeadShape& shape, float* dqkv);

/// y = silu(gate) * up over rows of gate|up, n values each.
void SwiGlu(const float* gate_up, std::size_t rows, std::size_t n, float* y);
void SwiGluBackward(const float* dy, const float* gate_up, std::size_t rows, std::size_t n,
                    float* dgate_up);

/// Negative log-likelihood of each row's target in nats (0 for a negative target, which is
/// ignored). With scale != 0 the logits become scale * d(nll + z_loss * logsumexp^2)/d(logits),
/// zero for ignored rows.
void CrossEntropy(float* logits, const std::int32_t* targets, std::size_t rows, std::size_t vocab,
                  float scale, float z_loss, double* nll);

/// table[ids[r]] += rows[r], in row order.
void ScatterAdd(const float* rows, const std::int64_t* ids, std::size_t num_rows, std::size_t n,
                float* table);

}  // namespace loom::tensor::kernels
