// Muon (Jordan et al. 2024, github.com/KellerJordan/Muon; torch.optim.Muon): momentum, made nearly
// orthogonal by Newton-Schulz, for the matrices within a network. Order of operations per element,
// each rounded to fp32, with rest = 1 - momentum:
//   g' = grad_scale * g
//   b  = momentum * b + rest * g'
//   u  = momentum * b + rest * g'       nesterov; else u = b
//   X  = u / (|u| + 1e-7)               |u| summed in double (SumSquares)
//   X  = X^T when rows > columns, then `iterations` times, (a, b, c) = (3.4445, -4.7750, 2.0315):
//          A = X X^T;  P = b * A + c * (A A);  X = a * X + P X      (products: see matmul.h)
//   w  = w * shrink - step_size * X     X as it was turned at first
// with scalars made in double and rounded once: shrink = 1 - lr * weight_decay, step_size = lr *
// sqrt(max(1, rows / columns)), or lr * .2 * sqrt(max(rows, columns)) to match AdamW's update.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "agreed/isa.h"

namespace loom::agreed {

enum class MuonScale : std::uint8_t { kOriginal, kMatchRmsAdamW };

struct MuonConfig {
  float momentum = 0.95F;
  bool nesterov = true;
  std::uint32_t iterations = 5;  ///< of Newton-Schulz
  MuonScale scale = MuonScale::kOriginal;
  float weight_decay = 0.1F;
};

struct MatrixSize {
  std::size_t rows = 0, columns = 0;
};

/// Floats of scratch memory that a step on a matrix needs.
std::size_t MuonScratch(MatrixSize size);

/// One step in place on a row-major matrix: w, g and b have rows * columns elements, none 0, b
/// starts at zero. grad_scale is the clip factor (1 = none). scratch has MuonScratch(size) elements
/// or more; its values do not matter. No overlap. Finite gradients are the caller's duty.
void MuonStep(std::span<float> w, std::span<const float> g, std::span<float> b, MatrixSize size,
              const MuonConfig& config, float lr, float grad_scale, std::span<float> scratch,
              Isa isa = BestIsa());

}  // namespace loom::agreed
