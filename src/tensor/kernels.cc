// Loops the compiler vectorises: sums run in kLanes independent lanes, exp is a polynomial.
#include "tensor/kernels.h"

#include <bit>
#include <cmath>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define LOOM_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define LOOM_CLONES
#endif
#define LOOM_INLINE [[gnu::always_inline]] inline

namespace loom::tensor::kernels {
namespace {

constexpr std::size_t kLanes = 16;

LOOM_INLINE float AddLanes(const float (&lanes)[kLanes]) {
  float eight[8], four[4];
  for (std::size_t i = 0; i < 8; ++i) eight[i] = lanes[i] + lanes[i + 8];
  for (std::size_t i = 0; i < 4; ++i) four[i] = eight[i] + eight[i + 4];
  return (four[0] + four[2]) + (four[1] + four[3]);
}

/// e^x for x <= 0 clamped at -87 (about 1e-38), and for x up to 88; relative error below 2e-7.
/// x = k ln 2 + r with |r| <= ln 2 / 2; e^r by its Taylor polynomial of degree 6, then 2^k.
LOOM_INLINE float Exp(float x) {
  x = x < -87.0f ? -87.0f : x;
  x = x > 88.0f ? 88.0f : x;
  constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const float shifted = x * 1.44269504f + kMagic;
  const float k = shifted - kMagic;
  const float r = (x - k * 0.693359375f) + k * 2.12194440e-4f;
  float p = 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const std::uint32_t exponent = (std::bit_cast<std::uint32_t>(shifted) + 127u) << 23;
  return p * std::bit_cast<float>(exponent);
}

}  // namespace

LOOM_CLONES
void RmsNorm(const float* __restrict x, const float* __restrict w, float eps, std::size_t rows,
             std::size_t n, float* __restrict y, float* __restrict scale) {
  for (std::size_t row = 0; row < rows; ++row, x += n, y += n) {
    float lanes[kLanes] = {};
    std::size_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += x[i + lane] * x[i + lane];
    }
    for (; i < n; ++i) lanes[i % kLanes] += x[i] * x[i];
    const float s = 1.0f / std::sqrt(AddLanes(lanes) / static_cast<float>(n) + eps);
    scale[row] = s;
    for (i = 0; i < n; ++i) y[i] = (x[i] * s) * w[i];
  }
}

LOOM_CLONES
void RmsNormBackward(const float* __restrict dy, const float* __restrict x,
                     const float* __restrict w, const float* __restrict scale, std::size_t rows,
                     std::size_t n, float* __restrict dx, float* __restrict dw) {
  for (std::size_t row = 0; row < rows; ++row, dy += n, x += n, dx += n) {
    const float s = scale[row];
    float lanes[kLanes] = {};
    std::size_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      for (std::size_t lane = 0; lane < kLanes; ++lane) {
        lanes[lane] += (dy[i + lane] * w[i + lane]) * x[i + lane];
      }
    }
    for (; i < n; ++i) lanes[i % kLanes] += (dy[i] * w[i]) * x[i];
    const float along = AddLanes(lanes) * s * s / static_cast<float>(n);
    for (i = 0; i < n; ++i) dx[i] = s * (dy[i] * w[i] - x[i] * along);
    if (dw != nullptr) {
      for (i = 0; i < n; ++i) dw[i] += dy[i] * (x[i] * s);
    }
  }
}

LOOM_CLONES
void SplitRotate(const float* __restrict qkv, const float* __restrict cos,
                 const float* __restrict sin, const HeadShape& shape, float* __restrict q,
                 float* __restrict k, float* __restrict v) {
  const auto [batch, length, heads, kv_heads, dim] = shape;
  const std::size_t half = dim / 2;
  for (std::size_t b = 0; b < batch; ++b) {
    for (std::size_t t = 0; t < length; ++t) {
      const float* c = cos + t * half;
      const float* s = sin + t * half;
      for (std::size_t h = 0; h < heads + 2 * kv_heads; ++h, qkv += dim) {
        float* out = h < heads ? q + ((b * heads + h) * length + t) * dim
                     : h < heads + kv_heads
                         ? k + ((b * kv_heads + h - heads) * length + t) * dim
                         : v + ((b * kv_heads + h - heads - kv_heads) * length + t) * dim;
        if (h < heads + kv_heads) {
          for (std::size_t i = 0; i < half; ++i) {
            out[i] = qkv[i] * c[i] - qkv[i + half] * s[i];
            out[i + half] = qkv[i + half] * c[i] + qkv[i] * s[i];
          }
        } else {
          for (std::size_t i = 0; i < dim; ++i) out[i] = qkv[i];
        }
      }
    }
  }
}

LOOM_CLONES
void SplitRotateBackward(const float* __restrict dq, const float* __restrict dk,
                         const float* __restrict dv, const float* __restrict cos,
                         const float* __restrict sin, const HeadShape& shape,
                         float* __restrict dqkv) {
  const auto [batch, length, heads, kv_heads, dim] = shape;
  const std::size_t half = dim / 2;
  for (std::size_t b = 0; b < batch; ++b) {
    for (std::size_t t = 0; t < length; ++t) {
      const float* c = cos + t * half;
      const float* s = sin + t * half;
      for (std::size_t h = 0; h < heads + 2 * kv_heads; ++h, dqkv += dim) {
        const float* in = h < heads ? dq + ((b * heads + h) * length + t) * dim
                          : h < heads + kv_heads
                              ? dk + ((b * kv_heads + h - heads) * length + t) * dim
                              : dv + ((b * kv_heads + h - heads - kv_heads) * length + t) * dim;
        if (h < heads + kv_heads) {
          for (std::size_t i = 0; i < half; ++i) {
            dqkv[i] = in[i] * c[i] + in[i + half] * s[i];
            dqkv[i + half] = in[i + half] * c[i] - in[i] * s[i];
          }
        } else {
          for (std::size_t i = 0; i < dim; ++i) dqkv[i] = in[i];
        }
      }
    }
  }
}

LOOM_CLONES
void SwiGlu(const float* __restrict gate_up, std::size_t rows, std::size_t n, float* __restrict y) {
  for (std::size_t row = 0; row < rows; ++row, gate_up += 2 * n, y += n) {
    const float* gate = gate_up;
    const float* up = gate_up + n;
    for (std::size_t i = 0; i < n; ++i) {
      y[i] = gate[i] / (1.0f + Exp(-gate[i])) * up[i];
    }
  }
}

LOOM_CLONES
void SwiGluBackward(const float* __restrict dy, const float* __restrict gate_up, std::size_t rows,
                    std::size_t n, float* __restrict dgate_up) {
  for (std::size_t row = 0; row < rows; ++row, dy += n, gate_up += 2 * n, dgate_up += 2 * n) {
    const float* gate = gate_up;
    const float* up = gate_up + n;
    float* dgate = dgate_up;
    float* dup = dgate_up + n;
    for (std::size_t i = 0; i < n; ++i) {
      const float sigmoid = 1.0f / (1.0f + Exp(-gate[i]));
      const float silu = gate[i] * sigmoid;
      dup[i] = dy[i] * silu;
      dgate[i] = dy[i] * up[i] * (sigmoid + silu * (1.0f - sigmoid));
    }
  }
}

LOOM_CLONES
void CrossEntropy(float* __restrict logits, const std::int32_t* __restrict targets,
                  std::size_t rows, std::size_t vocab, float scale, float z_loss,
                  double* __restrict nll) {
  for (std::size_t row = 0; row < rows; ++row, logits += vocab) {
    nll[row] = 0;
    if (targets[row] < 0) {
      if (scale != 0.0f) {
        for (std::size_t i = 0; i < vocab; ++i) logits[i] = 0.0f;
      }
      continue;
    }
    float top = logits[0];
    std::size_t i = 0;
    if (vocab >= kLanes) {
      float lanes[kLanes];
      for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] = logits[lane];
      for (i = kLanes; i + kLanes <= vocab; i += kLanes) {
        for (std::size_t lane = 0; lane < kLanes; ++lane) {
          lanes[lane] = lanes[lane] > logits[i + lane] ? lanes[lane] : logits[i + lane];
        }
      }
      for (std::size_t lane = 0; lane < kLanes; ++lane) {
        top = top > lanes[lane] ? top : lanes[lane];
      }
    }
    for (; i < vocab; ++i) top = top > logits[i] ? top : logits[i];

    const auto target = static_cast<std::size_t>(targets[row]);
    const float target_below_top = logits[target] - top;
    float lanes[kLanes] = {};
    if (scale == 0.0f) {
      for (i = 0; i + kLanes <= vocab; i += kLanes) {
        for (std::size_t lane = 0; lane < kLanes; ++lane) {
          lanes[lane] += Exp(logits[i + lane] - top);
        }
      }
      for (; i < vocab; ++i) lanes[i % kLanes] += Exp(logits[i] - top);
    } else {
      for (i = 0; i + kLanes <= vocab; i += kLanes) {
        for (std::size_t lane = 0; lane < kLanes; ++lane) {
          logits[i + lane] = Exp(logits[i + lane] - top);
          lanes[lane] += logits[i + lane];
        }
      }
      for (; i < vocab; ++i) {
        logits[i] = Exp(logits[i] - top);
        lanes[i % kLanes] += logits[i];
      }
    }
    const float sum = AddLanes(lanes);
    const double log_sum = std::log(static_cast<double>(sum));
    nll[row] = log_sum - static_cast<double>(target_below_top);
    if (scale != 0.0f) {
      const double log_z = static_cast<double>(top) + log_sum;
      const float factor = scale / sum * static_cast<float>(1 + 2 * double{z_loss} * log_z);
      for (i = 0; i < vocab; ++i) logits[i] *= factor;
      logits[target] -= scale;
    }
  }
}

LOOM_CLONES
void ScatterAdd(const float* __restrict rows, const std::int64_t* __restrict ids,
                std::size_t num_rows, std::size_t n, float* __restrict table) {
  for (std::size_t row = 0; row < num_rows; ++row, rows += n) {
    float* out = table + static_cast<std::size_t>(ids[row]) * n;
    for (std::size_t i = 0; i < n; ++i) out[i] += rows[i];
  }
}

}  // namespace loom::tensor::kernels
