// Which parameters of a network a run trains: the sets of names that freezing and LoRA make.
#include "model/tuning.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>

namespace loom::model {
namespace {

using Shapes = std::vector<agreed::TensorShape>;

constexpr std::size_t kMaxPatterns = 1024;
constexpr std::size_t kMaxPatternLength = 200;
constexpr std::uint32_t kMaxLoraRank = 4096;
constexpr std::string_view kPeftPrefix = "base_model.model.";
constexpr std::string_view kWeight = ".weight";

bool Matches(const std::string& pattern, const std::string& name) {
  return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

bool IsFrozen(const Tuning& tuning, const std::string& name) {
  return tuning.lora_rank > 0 ||
         std::ranges::any_of(tuning.freeze,
                             [&](const std::string& pattern) { return Matches(pattern, name); });
}

/// "model.layers.0.mlp.up_proj" of its weight; empty for what is no matrix of a layer.
std::string_view LayerModule(std::string_view name) {
  const bool of_layer = name.starts_with("model.layers.") || name.starts_with("transformer.h.");
  if (!of_layer || !name.ends_with(kWeight)) return {};
  return name.substr(0, name.size() - kWeight.size());
}

bool IsTarget(const Tuning& tuning, std::string_view module) {
  return std::ranges::any_of(tuning.lora_targets, [&](std::string_view target) {
    return module == target || (module.ends_with(target) && module.size() > target.size() &&
                                module[module.size() - target.size() - 1] == '.');
  });
}

Status ValidateList(std::string_view key, const std::vector<std::string>& list) {
  if (list.size() > kMaxPatterns) {
    return MakeError(Code::kLimit, fmt::format("tune.{} has {} entries, the limit is {}", key,
                                               list.size(), kMaxPatterns));
  }
  for (const std::string& entry : list) {
    if (entry.empty() || entry.size() > kMaxPatternLength) {
      return MakeError(Code::kInvalid,
                       fmt::format("tune.{} has an entry of {} characters, allowed are 1 to {}",
                                   key, entry.size(), kMaxPatternLength));
    }
    constexpr std::string_view kSigns = "_-.*?[]!";
    const auto plain = [&](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
             kSigns.find(c) != std::string_view::npos;
    };
    if (!std::ranges::all_of(entry, plain)) {
      return MakeError(Code::kInvalid,
                       fmt::format("tune.{}: \"{}\" has a sign that no name has", key, entry),
                       fmt::format("letters, digits and {} are allowed", kSigns));
    }
  }
  return {};
}

std::string PossibleTargets(const ModelConfig& config) {
  return fmt::format("{}", fmt::join(LayerMatrices(config), ", "));
}

Status ValidateLora(const ModelConfig& config) {
  const Tuning& tuning = config.tuning;
  if (!tuning.freeze.empty()) {
    return MakeError(Code::kInvalid, "tune.freeze stands beside tune.lora_rank",
                     "LoRA freezes every parameter of the network by itself: leave freeze out");
  }
  if (tuning.lora_rank > kMaxLoraRank) {
    return MakeError(Code::kInvalid, fmt::format("tune.lora_rank is {}, allowed are 0 to {}",
                                                 tuning.lora_rank, kMaxLoraRank));
  }
  if (!(tuning.lora_alpha > 0 && tuning.lora_alpha <= 1e6f)) {
    return MakeError(Code::kInvalid,
                     fmt::format("tune.lora_alpha is {}, it must be above 0 and at most 1000000",
                                 tuning.lora_alpha));
  }
  if (tuning.lora_targets.empty()) {
    return MakeError(Code::kInvalid, "tune.lora_targets is empty",
                     "name modules of a layer: " + PossibleTargets(config));
  }
  LOOM_RETURN_IF_ERROR(ValidateList("lora_targets", tuning.lora_targets));
  const Shapes network = NetworkShapes(config);
  for (const std::string& target : tuning.lora_targets) {
    const Tuning one{{}, 1, 1, {target}};
    const auto hit = [&](const agreed::TensorShape& shape) {
      return shape.shape.size() == 2 && FindLora(one, shape.name).has_value();
    };
    if (std::ranges::none_of(network, hit)) {
      return MakeError(
          Code::kInvalid,
          fmt::format("tune.lora_targets: no matrix of a layer is called \"{}\"", target),
          "its layers have " + PossibleTargets(config));
    }
  }
  return {};
}

}  // namespace

std::vector<std::string> LayerMatrices(const ModelConfig& config) {
  std::vector<std::string> names;
  for (const agreed::TensorShape& shape : NetworkShapes(config)) {
    const std::string_view module = LayerModule(shape.name);
    if (module.empty() || shape.shape.size() != 2) continue;
    std::string last(module.substr(module.rfind('.') + 1));
    if (std::ranges::find(names, last) == names.end()) names.push_back(std::move(last));
  }
  return names;
}

std::optional<LoraNames> FindLora(const Tuning& tuning, std::string_view matrix) {
  const std::string_view module = LayerModule(matrix);
  if (tuning.lora_rank == 0 || module.empty() || !IsTarget(tuning, module)) return std::nullopt;
  const std::string start = fmt::format("{}{}.lora_", kPeftPrefix, module);
  return LoraNames{start + "A.weight", start + "B.weight"};
}

Shapes ParameterShapes(const ModelConfig& config) {
  Shapes network = NetworkShapes(config);
  const Tuning& tuning = config.tuning;
  if (tuning.lora_rank == 0) {
    std::erase_if(network, [&](const auto& shape) { return IsFrozen(tuning, shape.name); });
    return network;
  }
  Shapes pairs;
  for (const agreed::TensorShape& shape : network) {
    const auto lora = shape.shape.size() == 2 ? FindLora(tuning, shape.name) : std::nullopt;
    if (!lora) continue;
    const bool input_major = config.family == Family::kGpt2;
    const std::uint64_t in = shape.shape[input_major ? 0 : 1];
    const std::uint64_t out = shape.shape[input_major ? 1 : 0];
    pairs.push_back({lora->a, {tuning.lora_rank, in}});
    pairs.push_back({lora->b, {out, tuning.lora_rank}});
  }
  return pairs;
}

Shapes FrozenShapes(const ModelConfig& config) {
  Shapes network = NetworkShapes(config);
  std::erase_if(network, [&](const auto& shape) { return !IsFrozen(config.tuning, shape.name); });
  return network;
}

Status ValidateTuning(const ModelConfig& config) {
  const Tuning& tuning = config.tuning;
  if (tuning.lora_rank > 0) return ValidateLora(config);
  if (tuning.lora_alpha != 0 || !tuning.lora_targets.empty()) {
    return MakeError(Code::kInvalid,
                     fmt::format("tune.{} is set, but not tune.lora_rank",
                                 tuning.lora_targets.empty() ? "lora_alpha" : "lora_targets"),
                     "set lora_rank (8 is common), or leave the other keys of LoRA out");
  }
  LOOM_RETURN_IF_ERROR(ValidateList("freeze", tuning.freeze));
  const Shapes network = NetworkShapes(config);
  for (const std::string& pattern : tuning.freeze) {
    if (std::ranges::none_of(network,
                             [&](const auto& shape) { return Matches(pattern, shape.name); })) {
      return MakeError(Code::kInvalid,
                       fmt::format("tune.freeze: no parameter matches \"{}\"", pattern),
                       fmt::format("the first of them is {}, the last {}", network.front().name,
                                   network.back().name));
    }
  }
  if (!tuning.freeze.empty() && FrozenShapes(config).size() == network.size()) {
    return MakeError(Code::kInvalid, "tune.freeze leaves nothing to train",
                     "take patterns away, or add LoRA with tune.lora_rank instead");
  }
  return {};
}

}  // namespace loom::model
