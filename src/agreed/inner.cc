// Neighbouring tensors of one kind go in one call; Muon's matrices one by one.
#include "agreed/inner.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace loom::agreed {
namespace {

/// ok comes from comparisons, which are false for NaN.
Status Setting(std::string_view name, float value, bool ok, std::string_view allowed) {
  if (ok) return {};
  return MakeError(Code::kInvalid,
                   fmt::format("optim.{} is {}, allowed are {}", name, value, allowed));
}

InnerKind KindFor(const TensorShape& tensor, InnerKind kind) {
  return kind == InnerKind::kMuon && !MuonTakes(tensor) ? InnerKind::kAdamW : kind;
}

std::uint64_t PadToAlign(std::uint64_t n) {
  return (n + TileGrid::kAlign - 1) / TileGrid::kAlign * TileGrid::kAlign;
}

}  // namespace

std::string_view InnerKindName(InnerKind kind) {
  switch (kind) {
    case InnerKind::kAdamW:
      return "adamw";
    case InnerKind::kSgd:
      return "sgd";
    case InnerKind::kMuon:
      return "muon";
  }
  return "unknown";
}

Status Validate(const InnerConfig& config) {
  const AdamWConfig& adamw = config.adamw;
  const auto below_one = [](float x) { return x >= 0 && x < 1; };
  LOOM_RETURN_IF_ERROR(Setting("beta1", adamw.beta1, below_one(adamw.beta1), "0 to below 1"));
  LOOM_RETURN_IF_ERROR(Setting("beta2", adamw.beta2, below_one(adamw.beta2), "0 to below 1"));
  LOOM_RETURN_IF_ERROR(Setting("eps", adamw.eps, adamw.eps > 0 && adamw.eps <= 1, "above 0 to 1"));
  LOOM_RETURN_IF_ERROR(Setting("weight_decay", adamw.weight_decay,
                               adamw.weight_decay >= 0 && adamw.weight_decay <= 10, "0 to 10"));
  LOOM_RETURN_IF_ERROR(Setting("clip_norm", config.clip_norm,
                               config.clip_norm >= 0 && std::isfinite(config.clip_norm),
                               "0 (off) and above"));
  LOOM_RETURN_IF_ERROR(
      Setting("momentum", config.momentum, below_one(config.momentum), "0 to below 1"));
  LOOM_RETURN_IF_ERROR(Setting("newton_schulz", static_cast<float>(config.iterations),
                               config.iterations >= 1 && config.iterations <= 20, "1 to 20"));
  LOOM_RETURN_IF_ERROR(Setting("adamw_lr_ratio", config.adamw_lr_ratio,
                               config.adamw_lr_ratio >= 0 && config.adamw_lr_ratio <= 1000,
                               "0 to 1000"));
  if (config.kind == InnerKind::kAdamW && (config.momentum != 0 || config.nesterov)) {
    return MakeError(Code::kInvalid,
                     fmt::format("optim.momentum = {}, optim.nesterov = {}: adamw has neither",
                                 config.momentum, config.nesterov),
                     "set beta1 and beta2, or optimizer = \"sgd\" or \"muon\"");
  }
  if (config.nesterov && config.momentum == 0) {
    return MakeError(Code::kInvalid, "optim.nesterov = true with optim.momentum = 0",
                     "set momentum, or leave nesterov out");
  }
  return {};
}

bool MuonTakes(const TensorShape& tensor) {
  constexpr std::string_view kTables[] = {"embed_tokens.weight", "lm_head.weight", "wte.weight",
                                          "wpe.weight"};
  const auto named = [&](std::string_view end) { return tensor.name.ends_with(end); };
  return tensor.shape.size() == 2 && tensor.Numel() > 0 && std::ranges::none_of(kTables, named);
}

InnerPlan PlanInner(const TileGrid& grid, const InnerConfig& config) {
  InnerPlan plan;
  const auto& tensors = grid.tensors();
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const TensorShape& tensor = tensors[t];
    const InnerKind kind = KindFor(tensor, config.kind);
    const bool decay = tensor.shape.size() >= 2;
    const std::uint64_t end = grid.TensorOffset(t) + tensor.Numel();
    InnerPart* last = plan.parts.empty() ? nullptr : &plan.parts.back();
    if (kind != InnerKind::kMuon && last != nullptr && last->kind == kind && last->decay == decay) {
      last->count = end - last->begin;
      continue;
    }
    InnerPart part;
    part.kind = kind;
    part.decay = decay;
    part.begin = part.first = grid.TensorOffset(t);
    part.count = tensor.Numel();
    if (kind == InnerKind::kMuon) {
      part.matrix = {tensor.shape[0], tensor.shape[1]};
      plan.scratch = std::max<std::uint64_t>(plan.scratch, MuonScratch(part.matrix));
    }
    plan.parts.push_back(part);
  }
  if (config.kind != InnerKind::kSgd || config.momentum > 0) plan.first_size = grid.flat_size();
  for (InnerPart& part : plan.parts) {
    if (part.kind != InnerKind::kAdamW) continue;
    part.second = plan.state_size();
    plan.second_size += PadToAlign(part.count);
  }
  return plan;
}

void InnerStep(const InnerPlan& plan, const InnerConfig& config, std::span<float> w,
               std::span<const float> g, std::span<float> state, std::span<float> scratch, float lr,
               std::uint64_t step, float grad_scale, Isa isa) {
  LOOM_CHECK(w.size() == g.size() && state.size() == plan.state_size(), "w {} g {} state {}",
             w.size(), g.size(), state.size());
  for (const InnerPart& part : plan.parts) {
    const std::span<float> weights = w.subspan(part.begin, part.count);
    const std::span<const float> gradient = g.subspan(part.begin, part.count);
    const std::span<float> first =
        plan.first_size == 0 ? std::span<float>() : state.subspan(part.first, part.count);
    const float decay = part.decay ? config.adamw.weight_decay : 0.0F;
    switch (part.kind) {
      case InnerKind::kAdamW: {
        const float rate = config.kind == InnerKind::kMuon ? lr * config.adamw_lr_ratio : lr;
        AdamWStep(weights, gradient, first, state.subspan(part.second, part.count), config.adamw,
                  rate, step, grad_scale, part.decay, isa);
        break;
      }
      case InnerKind::kSgd:
        SgdStep(weights, gradient, first, {config.momentum, config.nesterov, decay}, lr, grad_scale,
                isa);
        break;
      case InnerKind::kMuon:
        MuonStep(weights, gradient, first, part.matrix,
                 {config.momentum, config.nesterov, config.iterations, config.muon_scale, decay},
                 lr, grad_scale, scratch, isa);
        break;
    }
  }
}

}  // namespace loom::agreed
