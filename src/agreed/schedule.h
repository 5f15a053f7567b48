// Learning rates as pure functions of the tokens that the whole run has used. Made in double,
// rounded to fp32 once. Ask with the tokens after the coming step (tokens done + tokens of this
// step), so that the first step of a warm-up does not have rate 0.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace loom::agreed {

enum class ScheduleKind : std::uint8_t { kConstant, kCosine, kWsd, kLinear };
std::string_view ScheduleKindName(ScheduleKind kind);  ///< "constant", "cosine", "wsd", "linear"
Result<ScheduleKind> ParseScheduleKind(std::string_view name);

enum class DecayShape : std::uint8_t { kSqrt, kLinear };
std::string_view DecayShapeName(DecayShape shape);  ///< "sqrt", "linear"
Result<DecayShape> ParseDecayShape(std::string_view name);

/// Every kind warms up linearly from 0 to peak over warmup_tokens, and is final from total_tokens
/// on (constant: peak for ever). In between, with x the share of the way done:
///   cosine  final + (peak - final) * (1 + cos(pi x)) / 2      linear  peak + (final - peak) * x
///   wsd     peak until total - decay_tokens, then final + (peak - final) * (1 - sqrt(x)) or (1 -
///   x)
struct ScheduleConfig {
  ScheduleKind kind = ScheduleKind::kCosine;
  float peak = 1e-3F;
  float final = 1e-4F;
  std::uint64_t warmup_tokens = 0;
  std::uint64_t total_tokens = 0;
  std::uint64_t decay_tokens = 0;              ///< wsd only
  DecayShape decay_shape = DecayShape::kSqrt;  ///< wsd only
};

/// kInvalid, naming field and value: a rate that is negative or not finite, warm-up or decay that
/// do not fit into the total.
Status Validate(const ScheduleConfig& config);

/// config must be valid.
float LearningRate(const ScheduleConfig& config, std::uint64_t tokens_done);

}  // namespace loom::agreed
