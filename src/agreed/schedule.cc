// Schedules: three phases (warm-up, body, end) with one expression each.
#include "agreed/schedule.h"

#include <fmt/core.h>

#include <array>
#include <limits>
#include <utility>

#include "agreed/fp_control.h"
#include "agreed/math.h"

namespace loom::agreed {
namespace {

constexpr std::array kKinds = {
    std::pair{ScheduleKind::kConstant, std::string_view("constant")},
    std::pair{ScheduleKind::kCosine, std::string_view("cosine")},
    std::pair{ScheduleKind::kWsd, std::string_view("wsd")},
    std::pair{ScheduleKind::kLinear, std::string_view("linear")},
};

bool IsRate(float x) { return x >= 0.0F && x <= std::numeric_limits<float>::max(); }

// Share of the way from `from` to `to`; from < to.
double Share(std::uint64_t at, std::uint64_t from, std::uint64_t to) {
  return static_cast<double>(at - from) / static_cast<double>(to - from);
}

double Between(const ScheduleConfig& config, double part_of_peak) {
  const double peak = config.peak;
  const double final = config.final;
  return final + (peak - final) * part_of_peak;
}

double Rate(const ScheduleConfig& config, std::uint64_t tokens) {
  const double peak = config.peak;
  if (tokens < config.warmup_tokens) return peak * Share(tokens, 0, config.warmup_tokens);
  if (config.kind == ScheduleKind::kConstant) return peak;
  if (tokens >= config.total_tokens) return config.final;
  switch (config.kind) {
    case ScheduleKind::kConstant:
      break;
    case ScheduleKind::kCosine: {
      const double x = Share(tokens, config.warmup_tokens, config.total_tokens);
      return Between(config, 0.5 * (1.0 + CosPi(x)));
    }
    case ScheduleKind::kLinear:
      return Between(config, 1.0 - Share(tokens, config.warmup_tokens, config.total_tokens));
    case ScheduleKind::kWsd: {
      const std::uint64_t start = config.total_tokens - config.decay_tokens;
      if (tokens < start) return peak;
      const double x = Share(tokens, start, config.total_tokens);
      return Between(config, 1.0 - (config.decay_shape == DecayShape::kSqrt ? Sqrt(x) : x));
    }
  }
  return peak;
}

}  // namespace

std::string_view ScheduleKindName(ScheduleKind kind) {
  for (const auto& [k, name] : kKinds) {
    if (k == kind) return name;
  }
  return "unknown";
}

Result<ScheduleKind> ParseScheduleKind(std::string_view name) {
  for (const auto& [kind, known] : kKinds) {
    if (name == known) return kind;
  }
  return MakeError(
      Code::kInvalid,
      fmt::format("schedule '{}' is not one of constant, cosine, wsd, linear", name.substr(0, 40)));
}

std::string_view DecayShapeName(DecayShape shape) {
  return shape == DecayShape::kSqrt ? "sqrt" : "linear";
}

Result<DecayShape> ParseDecayShape(std::string_view name) {
  if (name == "sqrt") return DecayShape::kSqrt;
  if (name == "linear") return DecayShape::kLinear;
  return MakeError(Code::kInvalid,
                   fmt::format("decay shape '{}' is not one of sqrt, linear", name.substr(0, 40)));
}

Status Validate(const ScheduleConfig& config) {
  if (!IsRate(config.peak)) {
    return MakeError(Code::kInvalid, fmt::format("peak rate {} is not >= 0", config.peak));
  }
  if (!IsRate(config.final)) {
    return MakeError(Code::kInvalid, fmt::format("final rate {} is not >= 0", config.final));
  }
  if (config.kind == ScheduleKind::kConstant) return {};
  if (config.warmup_tokens > config.total_tokens) {
    return MakeError(Code::kInvalid,
                     fmt::format("warm-up of {} tokens is longer than the run of {}",
                                 config.warmup_tokens, config.total_tokens));
  }
  if (config.kind == ScheduleKind::kWsd &&
      config.decay_tokens > config.total_tokens - config.warmup_tokens) {
    return MakeError(Code::kInvalid,
                     fmt::format("decay of {} tokens does not fit between warm-up {} and total {}",
                                 config.decay_tokens, config.warmup_tokens, config.total_tokens));
  }
  return {};
}

float LearningRate(const ScheduleConfig& config, std::uint64_t tokens_done) {
  const FpControlGuard guard;
  return static_cast<float>(Rate(config, tokens_done));
}

}  // namespace loom::agreed
