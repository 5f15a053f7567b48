#include "train/hf_adapter.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/file.h"
#include "base/json.h"
#include "train/hf_fields.h"
#include "train/hf_folder.h"
#include "train/hf_weights.h"

namespace loom::train {

namespace fs = std::filesystem;

namespace {

using json::Value;

constexpr std::string_view kPrefix = "base_model.model.";
constexpr std::string_view kLoraA = ".lora_A.weight";
constexpr std::size_t kMaxConfigBytes = 1 << 20;
constexpr std::size_t kMaxTargets = 1024;

bool IsEmpty(const Value& value) {
  if (value.AsArray() != nullptr) return value.AsArray()->empty();
  return value.AsObject() != nullptr && value.AsObject()->empty();
}
bool IsLora(const Value& value) { return IsOneOf(value, {"LORA"}); }
bool IsCausal(const Value& value) { return IsOneOf(value, {"CAUSAL_LM"}); }
bool IsNone(const Value& value) { return IsOneOf(value, {"none"}); }

constexpr NeutralRule kRules[] = {
    {"peft_type", IsLora, "\"LORA\""},
    {"task_type", IsCausal, "\"CAUSAL_LM\""},
    {"bias", IsNone, "\"none\" (no trained biases)"},
    {"use_dora", IsFalse, "false"},
    {"use_rslora", IsFalse, "false (alpha / r)"},
    {"lora_bias", IsFalse, "false"},
    {"use_qalora", IsFalse, "false"},
    {"alora_invocation_tokens", IsNever, "null"},
    {"arrow_config", IsNever, "null"},
    {"trainable_token_indices", IsNever, "null"},
    {"target_parameters", IsEmpty, "null"},
    {"rank_pattern", IsEmpty, "one rank for all modules"},
    {"alpha_pattern", IsEmpty, "one alpha for all modules"},
    {"modules_to_save", IsEmpty, "null (LoRA alone)"},
    {"layers_to_transform", IsNever, "null (every layer)"},
    {"layer_replication", IsNever, "null"},
    {"exclude_modules", IsEmpty, "null"},
    {"megatron_config", IsNever, "null"},
};

/// The modules that a file has an A for, in its order: what a pattern in target_modules has meant.
std::vector<std::string> ModulesOf(const tensor::SafetensorsFile& file) {
  std::vector<std::string> out;
  for (const tensor::TensorView& view : file.content().tensors) {
    std::string_view name = view.name;
    if (!name.starts_with(kPrefix) || !name.ends_with(kLoraA)) continue;
    name.remove_prefix(kPrefix.size());
    out.emplace_back(name.substr(0, name.size() - kLoraA.size()));
  }
  return out;
}

Result<std::vector<std::string>> ReadTargets(const HfFields& fields,
                                             const tensor::SafetensorsFile& file) {
  const Value* value = fields.Find("target_modules");
  std::vector<std::string> out;
  if (value != nullptr && value->AsString() != nullptr) {
    out = ModulesOf(file);
  } else if (value != nullptr && value->AsArray() != nullptr) {
    for (const Value& one : *value->AsArray()) {
      if (one.AsString() == nullptr)
        return RefuseKey("target_modules", *value, "names", kAdapterConfig);
      out.push_back(*one.AsString());
    }
    std::ranges::sort(out);
  }
  if (out.empty() || out.size() > kMaxTargets) {
    return RefuseKey("target_modules", value == nullptr ? Value() : *value,
                     fmt::format("1 to {} names of modules", kMaxTargets), kAdapterConfig);
  }
  return out;
}

Result<model::Tuning> ReadTuning(const HfFields& fields, const tensor::SafetensorsFile& file) {
  LOOM_RETURN_IF_ERROR(CheckNeutral(fields, kRules));
  if (fields.Find("peft_type") == nullptr) {
    return MakeError(Code::kInvalid, fmt::format("{} has no 'peft_type'", kAdapterConfig),
                     "it is not an adapter's; Loom reads those of PEFT's LoRA");
  }
  model::Tuning tuning;
  LOOM_ASSIGN(tuning.lora_rank, fields.U32("r"));
  LOOM_ASSIGN(tuning.lora_alpha, fields.F32("lora_alpha"));
  LOOM_ASSIGN(tuning.lora_targets, ReadTargets(fields, file));
  if (tuning.lora_rank == 0)
    return RefuseKey("r", Value(std::uint64_t{0}), "ranks above 0", kAdapterConfig);
  return tuning;
}

Status CheckTensors(const agreed::TileGrid& grid, const tensor::SafetensorsFile& file) {
  std::vector<std::string> missing, unused;
  std::set<std::string_view> wanted;
  for (const agreed::TensorShape& shape : grid.tensors()) {
    wanted.insert(shape.name);
    if (file.Find(shape.name) == nullptr) missing.push_back(shape.name);
  }
  for (const tensor::TensorView& view : file.content().tensors) {
    if (!wanted.contains(view.name)) unused.push_back(view.name);
  }
  if (!missing.empty() || !unused.empty()) {
    return MakeError(Code::kInvalid,
                     fmt::format("{} {} {}", kAdapterWeights,
                                 missing.empty() ? "has no place in the network for" : "lacks",
                                 FirstFew(missing.empty() ? unused : missing)),
                     "the adapter belongs to another network, or its two files do not belong "
                     "together");
  }
  for (const agreed::TensorShape& shape : grid.tensors()) {
    const tensor::TensorView& view = *file.Find(shape.name);
    LOOM_RETURN_IF_ERROR(tensor::CheckWeightType(view));
    if (view.shape == shape.shape) continue;
    return MakeError(
        Code::kInvalid,
        fmt::format("tensor '{}' has shape [{}], the network asks for [{}]", shape.name,
                    fmt::join(view.shape, ", "), fmt::join(shape.shape, ", ")),
        "the adapter belongs to another network");
  }
  return {};
}

Error OfAdapter(Error error, const std::string& folder) {
  return std::move(error).Context(fmt::format("adapter '{}'", folder));
}

/// kConflict when the folder holds something else than an adapter.
Status CheckReplaceable(const std::string& folder) {
  std::error_code error;
  if (!fs::exists(fs::symlink_status(folder, error))) return {};
  if (!fs::is_directory(folder, error)) {
    return MakeError(Code::kConflict, fmt::format("'{}' is not a folder", folder),
                     "choose another name for the adapter");
  }
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name == kAdapterConfig || name == kAdapterWeights) continue;
    return MakeError(
        Code::kConflict,
        fmt::format("'{}' exists and holds '{}', which is no part of an adapter", folder, name),
        "choose another folder");
  }
  return {};
}

std::string ConfigJson(const AdapterExport& content) {
  const model::Tuning& tuning = content.config.tuning;
  json::Array targets;
  for (const std::string& target : tuning.lora_targets) targets.emplace_back(target);
  const json::Object out{
      {"base_model_name_or_path", content.base},
      {"bias", "none"},
      {"fan_in_fan_out", content.config.family == model::Family::kGpt2},
      {"inference_mode", true},
      {"init_lora_weights", true},
      {"lora_alpha", ShortestDecimal(tuning.lora_alpha)},
      {"lora_dropout", 0.0},
      {"modules_to_save", Value()},
      {"peft_type", "LORA"},
      {"r", tuning.lora_rank},
      {"target_modules", std::move(targets)},
      {"task_type", "CAUSAL_LM"},
      {"use_dora", false},
      {"use_rslora", false},
  };
  return json::Dump(Value(out), 2) + "\n";
}

}  // namespace

bool IsAdapterFolder(const std::string& folder) {
  std::error_code ignored;
  return fs::exists(InFolder(folder, kAdapterConfig), ignored);
}

Result<AdapterFolder> AdapterFolder::Open(const std::string& folder) {
  const auto open = [&]() -> Result<AdapterFolder> {
    LOOM_ASSIGN(const std::string text,
                ReadFile(InFolder(folder, kAdapterConfig), kMaxConfigBytes));
    auto parsed = json::Parse(text, {.max_bytes = kMaxConfigBytes, .max_values = 1 << 14});
    if (!parsed) return std::move(parsed).error().Context(kAdapterConfig);
    if (parsed->AsObject() == nullptr) {
      return MakeError(Code::kInvalid, fmt::format("{} is not an object", kAdapterConfig),
                       "fetch the file again from where the adapter came");
    }
    const HfFields fields(*parsed, kAdapterConfig);
    LOOM_ASSIGN(auto file, tensor::SafetensorsFile::Open(InFolder(folder, kAdapterWeights)));
    AdapterFolder out(folder, std::move(file));
    LOOM_ASSIGN(out.tuning, ReadTuning(fields, out.file_));
    out.base = std::string(fields.Text("base_model_name_or_path"));
    if (fields.Find("fan_in_fan_out") != nullptr) {
      LOOM_ASSIGN(out.fan_in_fan_out_, fields.Bool("fan_in_fan_out", false));
    }
    return out;
  };
  auto opened = open();
  if (!opened) return OfAdapter(std::move(opened).error(), folder);
  return opened;
}

Result<model::ModelConfig> AdapterFolder::For(const model::ModelConfig& network) const {
  const auto fit = [&]() -> Result<model::ModelConfig> {
    model::ModelConfig config = network;
    config.tuning = tuning;
    const bool input_major = config.family == model::Family::kGpt2;
    if (fan_in_fan_out_.value_or(input_major) != input_major) {
      return RefuseKey("fan_in_fan_out", Value(*fan_in_fan_out_),
                       fmt::format("{} for this family", input_major), kAdapterConfig);
    }
    if (auto valid = model::Validate(config); !valid)
      return std::move(valid).error().Context(kAdapterConfig);
    LOOM_ASSIGN(const agreed::TileGrid grid, model::MakeGrid(config));
    LOOM_RETURN_IF_ERROR(CheckTensors(grid, file_));
    return config;
  };
  auto config = fit();
  if (!config) return OfAdapter(std::move(config).error(), path_);
  return config;
}

Status AdapterFolder::ReadWeights(const agreed::TileGrid& grid, std::span<float> weights) const {
  Status read = ReadTensors(grid, tensors(), weights);
  if (!read) return OfAdapter(std::move(read).error(), path_);
  return read;
}

Result<Adapter> ReadAdapter(const std::string& folder, const model::ModelConfig& network) {
  LOOM_ASSIGN(const AdapterFolder opened, AdapterFolder::Open(folder));
  Adapter out;
  LOOM_ASSIGN(out.config, opened.For(network));
  out.base = opened.base;
  LOOM_ASSIGN(out.grid, model::MakeGrid(out.config));
  LOOM_ASSIGN(out.weights, agreed::FlatBuffer::Allocate(out.grid.flat_size(), "the adapter"));
  LOOM_RETURN_IF_ERROR(opened.ReadWeights(out.grid, out.weights.span()));
  return out;
}

Status ExportAdapter(const std::string& folder, const AdapterExport& content) {
  LOOM_CHECK(content.config.tuning.lora_rank > 0);
  LOOM_RETURN_IF_ERROR(CheckReplaceable(folder));
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    return MakeError(Code::kIo, fmt::format("cannot make '{}': {}", folder, error.message()));
  }
  const std::pair<std::string, std::string> metadata[] = {{"format", "pt"}};
  const auto tensors = WeightViews(content.grid, content.weights);
  LOOM_RETURN_IF_ERROR(
      tensor::WriteWeights(InFolder(folder, kAdapterWeights), tensors, content.dtype, metadata));
  const std::string config = ConfigJson(content);
  return WriteFileAtomic(InFolder(folder, kAdapterConfig), AsBytes(config));
}

std::optional<std::uint64_t> MostBytesOfAdapter(std::string_view name,
                                                const model::ModelConfig& config) {
  if (name == kAdapterConfig) return kMaxConfigBytes;
  if (name != kAdapterWeights) return std::nullopt;
  std::uint64_t values = 0;
  for (const agreed::TensorShape& shape : model::ParameterShapes(config)) values += shape.Numel();
  return sizeof(float) * values + tensor::kMaxSafetensorsHeader;
}

Status MergeAdapter(const model::ModelConfig& config, const agreed::TileGrid& grid,
                    std::span<const float> weights, std::span<float> network) {
  model::ModelConfig whole = config;
  whole.tuning = {};
  LOOM_ASSIGN(const agreed::TileGrid network_grid, model::MakeGrid(whole));
  LOOM_CHECK(weights.size() == grid.flat_size() && network.size() == network_grid.flat_size());
  std::map<std::string_view, std::size_t> index;
  for (std::size_t t = 0; t < grid.tensors().size(); ++t) index[grid.tensors()[t].name] = t;
  const std::size_t rank = config.tuning.lora_rank;
  const double scale = static_cast<double>(config.tuning.lora_alpha) / static_cast<double>(rank);
  const bool input_major = config.family == model::Family::kGpt2;
  for (std::size_t t = 0; t < network_grid.tensors().size(); ++t) {
    const agreed::TensorShape& shape = network_grid.tensors()[t];
    const auto lora = model::FindLora(config.tuning, shape.name);
    if (shape.shape.size() != 2 || !lora) continue;
    const std::size_t in = shape.shape[input_major ? 0 : 1];
    const std::size_t out = shape.shape[input_major ? 1 : 0];
    const auto a = weights.subspan(grid.TensorOffset(index.at(lora->a)), rank * in);
    const auto b = weights.subspan(grid.TensorOffset(index.at(lora->b)), out * rank);
    const auto w = network.subspan(network_grid.TensorOffset(t), in * out);
    std::vector<double> row(in);
    for (std::size_t o = 0; o < out; ++o) {
      std::ranges::fill(row, 0.0);
      for (std::size_t n = 0; n < rank; ++n) {
        const double factor = scale * static_cast<double>(b[o * rank + n]);
        for (std::size_t i = 0; i < in; ++i) row[i] += factor * static_cast<double>(a[n * in + i]);
      }
      for (std::size_t i = 0; i < in; ++i) {
        float& x = w[input_major ? i * out + o : o * in + i];
        x = static_cast<float>(static_cast<double>(x) + row[i]);
      }
    }
  }
  return {};
}

}  // namespace loom::train
