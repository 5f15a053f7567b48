// The inner optimizers over a whole model: which tensor takes which step, where its state lies, and
// one step of all of them as a pure function on flat buffers. Used by the workers' inner steps and
// by methods that step after the reduce.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "agreed/adamw.h"
#include "agreed/isa.h"
#include "agreed/muon.h"
#include "agreed/sgd.h"
#include "agreed/tile_grid.h"
#include "base/result.h"

namespace loom::agreed {

enum class InnerKind : std::uint8_t { kAdamW, kSgd, kMuon };
std::string_view InnerKindName(InnerKind kind);  ///< "adamw", "sgd", "muon"

/// One inner optimizer. Weight decay (adamw.weight_decay, of every kind) is of tensors with two or
/// more dimensions only.
struct InnerConfig {
  InnerKind kind = InnerKind::kAdamW;
  AdamWConfig adamw;             ///< of all tensors, or of those that Muon leaves
  float momentum = 0.0F;         ///< sgd, muon
  bool nesterov = false;         ///< sgd, muon
  std::uint32_t iterations = 5;  ///< muon: of Newton-Schulz
  MuonScale muon_scale = MuonScale::kOriginal;
  float adamw_lr_ratio = 1.0F;  ///< muon: AdamW's learning rate over Muon's
  float clip_norm = 1.0F;       ///< largest global norm of a gradient; 0 = no clipping
};

/// kInvalid, naming the setting, its value and what is allowed.
Status Validate(const InnerConfig& config);

/// Whether Muon steps this tensor: a matrix, and neither an embedding nor the head. By name, as at
/// Hugging Face: *embed_tokens.weight (tied, both), *wte.weight, *wpe.weight, *lm_head.weight.
bool MuonTakes(const TensorShape& tensor);

/// Neighbours in the flat buffer that take the same step. The padding between them is zero and
/// stays zero.
struct InnerPart {
  InnerKind kind = InnerKind::kAdamW;
  bool decay = false;
  std::uint64_t begin = 0, count = 0;  ///< in the flat buffer
  std::uint64_t first = 0;             ///< momentum or first moment, in the state
  std::uint64_t second = 0;            ///< AdamW's second moment, in the state
  MatrixSize matrix;                   ///< muon: the one tensor of the part
};

struct InnerPlan {
  std::vector<InnerPart> parts;
  std::uint64_t first_size = 0;   ///< floats of the first plane, which lies like the flat buffer
  std::uint64_t second_size = 0;  ///< of the second, behind it: second moments only, never negative
  std::uint64_t scratch = 0;      ///< floats that a step needs for itself
  std::uint64_t state_size() const { return first_size + second_size; }
};

/// Requires: config is valid.
InnerPlan PlanInner(const TileGrid& grid, const InnerConfig& config);

/// One step in place. w and g are flat buffers of the plan's grid; state (zero before the first
/// step) has state_size() and scratch plan.scratch floats. step counts from 1. Finite gradients are
/// the caller's duty.
void InnerStep(const InnerPlan& plan, const InnerConfig& config, std::span<float> w,
               std::span<const float> g, std::span<float> state, std::span<float> scratch, float lr,
               std::uint64_t step, float grad_scale, Isa isa = BestIsa());

}  // namespace loom::agreed
