// Muon on one matrix. Of the three products of an iteration two are symmetric and cost half.
#include "agreed/muon.h"

#include <algorithm>
#include <utility>

#include "agreed/combine.h"
#include "agreed/kernel.h"
#include "agreed/math.h"
#include "agreed/matmul.h"
#include "base/check.h"

namespace loom::agreed {
namespace {

constexpr float kA = 3.4445F, kB = -4.7750F, kC = 2.0315F;
constexpr double kNormFloor = 1e-7;

LOOM_KERNEL_INLINE void MuonMomentumBody(const float* g, float* b, float* u, float momentum,
                                         float rest, float grad_scale, bool nesterov,
                                         std::size_t n) {
  LOOM_INDEPENDENT
  for (std::size_t i = 0; i < n; ++i) {
    const float gradient = rest * (grad_scale * g[i]);
    const float sum = momentum * b[i] + gradient;
    const float ahead = momentum * sum + gradient;
    b[i] = sum;
    u[i] = nesterov ? ahead : sum;
  }
}
LOOM_KERNEL(void, MuonMomentum,
            (const float* g, float* b, float* u, float momentum, float rest, float grad_scale,
             bool nesterov, std::size_t n),
            (g, b, u, momentum, rest, grad_scale, nesterov, n))

LOOM_KERNEL_INLINE void DivideBody(float* x, float by, std::size_t n) {
  LOOM_INDEPENDENT
  for (std::size_t i = 0; i < n; ++i) x[i] = x[i] / by;
}
LOOM_KERNEL(void, Divide, (float* x, float by, std::size_t n), (x, by, n))

/// y = p * x + q * y.
LOOM_KERNEL_INLINE void BlendBody(const float* x, float p, float q, float* y, std::size_t n) {
  LOOM_INDEPENDENT
  for (std::size_t i = 0; i < n; ++i) y[i] = p * x[i] + q * y[i];
}
LOOM_KERNEL(void, Blend, (const float* x, float p, float q, float* y, std::size_t n),
            (x, p, q, y, n))

LOOM_KERNEL_INLINE void ApplyBody(float* w, const float* x, float shrink, float step_size,
                                  std::size_t n) {
  LOOM_INDEPENDENT
  for (std::size_t i = 0; i < n; ++i) w[i] = w[i] * shrink - step_size * x[i];
}
LOOM_KERNEL(void, Apply, (float* w, const float* x, float shrink, float step_size, std::size_t n),
            (w, x, shrink, step_size, n))

void Transpose(std::span<const float> from, MatrixSize size, std::span<float> to) {
  constexpr std::size_t kBlock = 16;
  for (std::size_t i0 = 0; i0 < size.rows; i0 += kBlock) {
    for (std::size_t j0 = 0; j0 < size.columns; j0 += kBlock) {
      for (std::size_t i = i0; i < std::min(i0 + kBlock, size.rows); ++i) {
        for (std::size_t j = j0; j < std::min(j0 + kBlock, size.columns); ++j) {
          to[j * size.rows + i] = from[i * size.columns + j];
        }
      }
    }
  }
}

double UpdateScale(MuonScale scale, MatrixSize size) {
  const auto rows = static_cast<double>(size.rows);
  const auto columns = static_cast<double>(size.columns);
  if (scale == MuonScale::kMatchRmsAdamW) return 0.2 * Sqrt(std::max(rows, columns));
  return Sqrt(std::max(1.0, rows / columns));
}

}  // namespace

std::size_t MuonScratch(MatrixSize size) {
  const std::size_t small = std::min(size.rows, size.columns);
  return 2 * size.rows * size.columns + 2 * small * small;
}

void MuonStep(std::span<float> w, std::span<const float> g, std::span<float> b, MatrixSize size,
              const MuonConfig& config, float lr, float grad_scale, std::span<float> scratch,
              Isa isa) {
  const std::size_t n = size.rows * size.columns;
  const std::size_t small = std::min(size.rows, size.columns);
  LOOM_CHECK(n > 0 && w.size() == n && g.size() == n && b.size() == n, "[{}, {}]: w {} g {} b {}",
             size.rows, size.columns, w.size(), g.size(), b.size());
  LOOM_CHECK(scratch.size() >= MuonScratch(size), "{} floats of scratch, [{}, {}] needs {}",
             scratch.size(), size.rows, size.columns, MuonScratch(size));
  const FpControlGuard guard;
  std::span<float> x = scratch.first(n);
  std::span<float> y = scratch.subspan(n, n);
  const std::span<float> gram = scratch.subspan(2 * n, small * small);
  const std::span<float> poly = scratch.subspan(2 * n + small * small, small * small);

  MuonMomentumPick(isa)(g.data(), b.data(), x.data(), config.momentum,
                        static_cast<float>(1.0 - double{config.momentum}), grad_scale,
                        config.nesterov, n);
  DividePick(isa)(x.data(), static_cast<float>(Sqrt(SumSquares(x, isa)) + kNormFloor), n);
  const bool turned = size.rows > size.columns;
  if (turned) {
    Transpose(x, size, y);
    std::swap(x, y);
  }
  const auto blend = BlendPick(isa);
  for (std::uint32_t i = 0; i < config.iterations; ++i) {
    const MatrixView x_view = RowMajor(x, small, n / small);
    const MatrixView gram_view = RowMajor(gram, small, small);
    MatmulSymmetric(x_view, x_view.Transposed(), gram, isa);
    MatmulSymmetric(gram_view, gram_view, poly, isa);
    blend(gram.data(), kB, kC, poly.data(), poly.size());
    Matmul(RowMajor(poly, small, small), x_view, y, isa);
    blend(x.data(), kA, 1.0F, y.data(), n);
    std::swap(x, y);
  }
  if (turned) {
    Transpose(x, {size.columns, size.rows}, y);
    std::swap(x, y);
  }
  const double rate = lr;
  ApplyPick(isa)(w.data(), x.data(), static_cast<float>(1.0 - rate * double{config.weight_decay}),
                 static_cast<float>(rate * UpdateScale(config.scale, size)), n);
}

}  // namespace loom::agreed
