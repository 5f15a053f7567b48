// Presets, the checks that need more than one key, and the canonical text of a spec.
#include "train/spec.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>

#include "base/nearest.h"
#include "crypto/hash.h"
#include "model/config.h"
#include "train/spec_keys.h"

namespace loom::train {
namespace {

constexpr std::string_view kMagic = "loom-spec 1\n";

/// A row of the cheat sheet of published settings; warm-up is given there in steps.
struct SyncPreset {
  std::string_view name;
  std::uint32_t inner_steps;
  collab::OuterKind outer;
  float outer_lr, outer_momentum;
  std::string_view codec;
  float lr, final_lr, beta2, weight_decay;
  agreed::ScheduleKind schedule;
  std::uint32_t warmup_steps;
  float z_loss = 0.0F;
  collab::Method method = collab::Method::kDiloco;
  std::uint32_t workers = 0;  ///< 0: as they were
  agreed::InnerKind optimizer = agreed::InnerKind::kAdamW;
  float adamw_lr_ratio = 1.0F;  ///< muon only
};

using agreed::ScheduleKind;
using collab::OuterKind;
constexpr std::array kSyncPresets = {
    SyncPreset{"loom-short", 30, OuterKind::kNesterov, 1.0F, 0.5F, "int8", 2e-3F, 2e-4F, 0.95F,
               0.1F, ScheduleKind::kCosine, 50},
    SyncPreset{"diloco", 500, OuterKind::kNesterov, 0.7F, 0.9F, "fp32", 4e-4F, 4e-5F, 0.95F, 0.1F,
               ScheduleKind::kCosine, 1000},
    SyncPreset{"intellect-1", 100, OuterKind::kNesterov, 0.7F, 0.9F, "int8", 7.5e-5F, 0.0F, 0.95F,
               0.1F, ScheduleKind::kWsd, 1000, 2e-4F},
    SyncPreset{"scaling-law", 30, OuterKind::kNesterov, 0.8F, 0.9F, "fp32", 4e-4F, 2e-5F, 0.99F,
               0.1F, ScheduleKind::kCosine, 1000},
    SyncPreset{"muloco", 30, OuterKind::kNesterov, 0.7F, 0.6F, "int8", 2e-2F, 2e-3F, 0.95F, 0.1F,
               ScheduleKind::kCosine, 1000, 0.0F, collab::Method::kDiloco, 0,
               agreed::InnerKind::kMuon, 0.3F},
    SyncPreset{"photon", 128, OuterKind::kSgd, 1.0F, 0.0F, "fp32", 4e-4F, 4e-5F, 0.95F, 0.1F,
               ScheduleKind::kCosine, 1000},
    SyncPreset{"allreduce", 1, OuterKind::kSgd, 1.0F, 0.0F, "fp32", 1e-3F, 1e-4F, 0.95F, 0.1F,
               ScheduleKind::kCosine, 100, 0.0F, collab::Method::kAllReduce, kExactWorkers},
};

std::uint64_t NumWorkers(const RunSpec& spec) {
  return std::max<std::uint64_t>(1, spec.sync.workers);
}

/// R24, R27: what exact mode needs, and what it cannot have.
Status CheckExact(RunSpec& spec) {
  if (!spec.sync.exact) return {};
  const auto refuse = [](std::string what, std::string hint) {
    return MakeError(Code::kInvalid, "sync.exact = true: " + std::move(what), std::move(hint));
  };
  if (spec.sync.method != collab::Method::kAllReduce) {
    return refuse("sync.method is diloco, whose local steps depend on who takes them",
                  "set method = \"allreduce\", or exact = false");
  }
  if (spec.sync.codec != "fp32") {
    return refuse(fmt::format("sync.codec is {}, which rounds what travels", spec.sync.codec),
                  "set codec = \"fp32\", or exact = false");
  }
  if (spec.sync.workers == 0) {
    return refuse("sync.workers is \"per-peer\": the units of a step may not depend on the peers",
                  "set workers = N, or exact = false");
  }
  if (spec.sync.max_norm > 0) {
    return refuse("sync.max_norm would leave units out", "set max_norm = 0, or exact = false");
  }
  if (!spec.determinism.deterministic) {
    return refuse("determinism.deterministic is false", "set it true, or exact = false");
  }
  if (spec.determinism.threads == 0) spec.determinism.threads = 1;
  return {};
}

/// The inverse of TomlQuote, for one line.
bool Unquote(std::string_view text, std::string& out) {
  if (text.size() < 2 || text.front() != '"' || text.back() != '"') return false;
  text = text.substr(1, text.size() - 2);
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      if (text[i] == '"') return false;
      out += text[i];
      continue;
    }
    if (++i == text.size()) return false;
    switch (text[i]) {
      case '"':
      case '\\':
        out += text[i];
        break;
      case 'n':
        out += '\n';
        break;
      case 't':
        out += '\t';
        break;
      default:
        return false;
    }
  }
  return true;
}

template <class T>
bool ParseNumber(std::string_view text, T& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size();
}

/// Sets the slot from its canonical form; false when the text has another form.
struct Assign {
  const Key& key;
  std::string_view text;

  bool operator()(bool* v) const {
    *v = text == "true";
    return text == "true" || text == "false";
  }
  bool operator()(std::uint32_t* v) const { return ParseNumber(text, *v); }
  bool operator()(std::uint64_t* v) const { return ParseNumber(text, *v); }
  bool operator()(float* v) const { return ParseNumber(text, *v); }
  bool operator()(double* v) const { return ParseNumber(text, *v); }
  bool operator()(std::string* v) const {
    v->clear();
    return Unquote(text, *v);
  }
  bool operator()(std::vector<std::string>* v) const {
    v->clear();
    if (!text.starts_with('[') || !text.ends_with(']') || text.size() < 2) return false;
    std::string_view rest = text.substr(1, text.size() - 2);
    while (!rest.empty()) {  // what is agreed has neither commas nor quotes in it
      const std::size_t end = std::min(rest.find(", "), rest.size());
      if (!Unquote(rest.substr(0, end), v->emplace_back())) return false;
      rest.remove_prefix(std::min(end + 2, rest.size()));
    }
    return true;
  }
  bool operator()(std::vector<double>*) const { return false; }
  bool operator()(SizeSlot v) const { return ParseNumber(text, *v.value); }
  bool operator()(ChoiceSlot v) const {
    std::string word;
    if (!Unquote(text, word)) return false;
    const auto found = std::find(key.choices.begin(), key.choices.end(), word);
    *v.value = static_cast<std::uint8_t>(found - key.choices.begin());
    return found != key.choices.end();
  }
  bool operator()(WorkersSlot v) const {
    if (text == "\"per-peer\"") {
      *v.value = 0;
      return true;
    }
    return ParseNumber(text, *v.value) && *v.value > 0;
  }
};

std::vector<std::string_view> Lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

/// Calls take(key, value) for each line of a canonical text.
template <class Take>
void ForEachSetting(std::string_view text, Take&& take) {
  for (const std::string_view line : Lines(text)) {
    const std::size_t equals = line.find(" = ");
    if (equals != std::string_view::npos) take(line.substr(0, equals), line.substr(equals + 3));
  }
}

}  // namespace

bool MayBeExact(const collab::SyncConfig& sync) {
  return sync.method == collab::Method::kAllReduce && sync.codec == "fp32" && sync.workers > 0;
}

std::vector<std::string> SyncPresetNames() {
  std::vector<std::string> names;
  names.reserve(std::size(kSyncPresets));
  for (const auto& preset : kSyncPresets) names.emplace_back(preset.name);
  return names;
}

Status ApplyModelPreset(std::string_view name, RunFile& run) {
  LOOM_ASSIGN(run.spec.model, model::Preset(name));
  run.spec.model.vocab = 0;
  run.model_preset = name;
  return {};
}

void SetOptimizer(agreed::InnerKind kind, agreed::InnerConfig& inner) {
  inner.kind = kind;
  inner.momentum = kind == agreed::InnerKind::kMuon ? agreed::MuonConfig().momentum : 0.0F;
  inner.nesterov = kind == agreed::InnerKind::kMuon && agreed::MuonConfig().nesterov;
}

Status ApplySyncPreset(std::string_view name, RunFile& run) {
  const auto* preset = std::find_if(kSyncPresets.begin(), kSyncPresets.end(),
                                    [&](const SyncPreset& p) { return p.name == name; });
  if (preset == kSyncPresets.end()) {
    std::string known;
    std::vector<std::string_view> names;
    for (const auto& p : kSyncPresets) {
      known += fmt::format("{}{}", known.empty() ? "" : ", ", p.name);
      names.push_back(p.name);
    }
    const std::string_view nearest = Nearest(name, names);
    return MakeError(
        Code::kNotFound,
        fmt::format("no sync preset is called '{}'; known: {}", name.substr(0, 40), known),
        nearest.empty() ? "loom init --sync takes one of them, docs/run-toml.md has their settings"
                        : fmt::format("did you mean {}?", nearest));
  }
  RunSpec& spec = run.spec;
  spec.sync.method = preset->method;
  if (preset->workers > 0 && spec.sync.workers == 0) spec.sync.workers = preset->workers;
  spec.sync.inner_steps = preset->inner_steps;
  spec.sync.outer = preset->outer;
  spec.sync.outer_lr = preset->outer_lr;
  spec.sync.outer_momentum = preset->outer_momentum;
  spec.sync.codec = preset->codec;
  SetOptimizer(preset->optimizer, spec.optim.inner);
  spec.optim.inner.adamw_lr_ratio = preset->adamw_lr_ratio;
  spec.optim.inner.adamw.beta1 = 0.9F;
  spec.optim.inner.adamw.beta2 = preset->beta2;
  spec.optim.inner.adamw.weight_decay = preset->weight_decay;
  spec.optim.inner.clip_norm = 1.0F;
  spec.optim.z_loss = preset->z_loss;
  spec.optim.schedule.kind = preset->schedule;
  spec.optim.schedule.peak = preset->lr;
  spec.optim.schedule.final = preset->final_lr;
  spec.optim.schedule.warmup_tokens = preset->warmup_steps * TokensPerStep(spec) * NumWorkers(spec);
  spec.sync.exact = MayBeExact(spec.sync);
  run.sync_preset = name;
  return {};
}

RunFile DefaultRun() {
  RunFile run;
  run.spec.data.tokenizer = "chars";
  run.spec.sync.rounds = 20;
  const Status model = ApplyModelPreset(run.model_preset, run);
  LOOM_CHECK(model.ok(), "{}", model.error().ToString());
  run.spec.sync.context = run.spec.model.context;
  const Status sync = ApplySyncPreset(run.sync_preset, run);
  LOOM_CHECK(sync.ok(), "{}", sync.error().ToString());
  return run;
}

std::uint64_t TokensPerStep(const RunSpec& spec) {
  return std::uint64_t{spec.sync.batch} * spec.model.context;
}

Status FitVocab(RunSpec& spec, std::uint32_t tokenizer_vocab) {
  if (spec.model.vocab != 0 && spec.model.vocab != tokenizer_vocab) {
    return MakeError(Code::kInvalid,
                     fmt::format("model.vocab is {}, the tokenizer has {} tokens", spec.model.vocab,
                                 tokenizer_vocab),
                     "leave vocab out: it follows from the tokenizer");
  }
  if (tokenizer_vocab < 2) {
    return MakeError(Code::kInvalid, "the corpus has a single distinct character",
                     "there is nothing to learn from it: give another text");
  }
  spec.model.vocab = tokenizer_vocab;
  return {};
}

Status CheckTrainTokens(const RunSpec& spec, std::uint64_t tokens, std::string_view how) {
  const std::uint64_t needed = 2ULL * spec.model.context;
  if (tokens >= needed) return {};
  return MakeError(
      Code::kInvalid,
      fmt::format("the corpus has {} training tokens{}; with a context of {} it needs {} at least",
                  tokens, how, spec.model.context, needed),
      "use more text or a smaller context");
}

Status ResolveSpec(RunSpec& spec) {
  model::ModelConfig sized = spec.model;
  if (sized.vocab == 0) sized.vocab = 256;
  LOOM_RETURN_IF_ERROR(model::Validate(sized));
  spec.sync.context = spec.model.context;
  spec.sync.accumulation = spec.optim.accumulation;
  if (spec.sync.method == collab::Method::kAllReduce && spec.sync.inner_steps != 1) {
    return MakeError(Code::kInvalid,
                     fmt::format("sync.inner_steps = {}: a round of allreduce is one step",
                                 spec.sync.inner_steps),
                     "leave inner_steps out, or set method = \"diloco\"");
  }
  if (spec.sync.method == collab::Method::kAllReduce &&
      spec.optim.inner.kind == agreed::InnerKind::kMuon) {
    return MakeError(Code::kInvalid,
                     "optim.optimizer = muon: allreduce steps tile by tile after the reduce, and "
                     "Muon's steps are of whole matrices",
                     "use optimizer = \"adamw\" or \"sgd\", or method = \"diloco\"");
  }
  LOOM_RETURN_IF_ERROR(CheckExact(spec));
  if (spec.sync.batch % spec.optim.accumulation != 0) {
    return MakeError(Code::kInvalid,
                     fmt::format("optim.accumulation = {} does not divide optim.batch = {}",
                                 spec.optim.accumulation, spec.sync.batch));
  }
  if (spec.sync.tile_elements % 256 != 0) {
    return MakeError(Code::kInvalid, fmt::format("sync.tile_elements = {} is no multiple of 256",
                                                 spec.sync.tile_elements));
  }
  LOOM_RETURN_IF_ERROR(agreed::Validate(spec.optim.inner));
  agreed::ScheduleConfig& schedule = spec.optim.schedule;
  if (schedule.total_tokens == 0 && schedule.kind != agreed::ScheduleKind::kConstant) {
    if (spec.sync.rounds == 0) {
      return MakeError(
          Code::kInvalid,
          "the learning rate's schedule has no end: optim.total_tokens and sync.rounds are 0",
          "set one of them, or schedule = \"constant\"");
    }
    schedule.total_tokens =
        spec.sync.rounds * spec.sync.inner_steps * TokensPerStep(spec) * NumWorkers(spec);
    // A short run keeps the shape of a long one: at most a tenth of it warms up.
    schedule.warmup_tokens = std::min(schedule.warmup_tokens, schedule.total_tokens / 10);
    if (schedule.kind == agreed::ScheduleKind::kWsd && schedule.decay_tokens == 0) {
      schedule.decay_tokens = schedule.total_tokens / 5;
    }
  }
  LOOM_RETURN_IF_ERROR(agreed::Validate(schedule));
  spec.sync.optimizer = {spec.optim.inner, schedule};
  return {};
}

std::string CanonicalSpec(const RunSpec& spec) {
  RunFile run;
  run.spec = spec;
  const RunFile plain;
  std::string out(kMagic);
  for (const Key& key : Keys()) {
    if (!key.agreed) continue;
    const std::string value = FormatValue(key, run);
    if (key.optional && value == FormatValue(key, plain)) continue;
    out += fmt::format("{}.{} = {}\n", key.table, key.name, value);
  }
  return out;
}

Result<RunSpec> ParseCanonicalSpec(std::string_view text) {
  if (text.size() > kMaxSpecBytes) {
    return MakeError(Code::kLimit,
                     fmt::format("spec: {} bytes, the limit is {}", text.size(), kMaxSpecBytes));
  }
  if (!text.starts_with(kMagic)) {
    return MakeError(Code::kInvalid, "spec: it does not start with 'loom-spec 1'",
                     "the run was made by another version of loom");
  }
  RunFile run;
  const std::vector<std::string_view> lines = Lines(text.substr(kMagic.size()));
  std::size_t line = 0;
  for (const Key& key : Keys()) {
    if (!key.agreed) continue;
    const std::string start = fmt::format("{}.{} = ", key.table, key.name);
    if (key.optional && (line == lines.size() || !lines[line].starts_with(start))) continue;
    if (line == lines.size() || !lines[line].starts_with(start) ||
        !std::visit(Assign{key, lines[line].substr(start.size())}, key.slot(run))) {
      return MakeError(
          Code::kInvalid,
          fmt::format("spec line {}: '{}' where a value of {}.{} belongs", line + 2,
                      line == lines.size() ? "" : lines[line].substr(0, 80), key.table, key.name),
          "the run was made by another version of loom");
    }
    LOOM_RETURN_IF_ERROR(CheckValue(key, run));
    ++line;
  }
  run.spec.sync.context = run.spec.model.context;
  if (CanonicalSpec(run.spec) != text) {
    return MakeError(Code::kInvalid, "spec: it is not in canonical form");
  }
  LOOM_RETURN_IF_ERROR(ResolveSpec(run.spec));
  return run.spec;
}

Result<RunSpec> ReadAmended(std::string_view before, std::string_view after) {
  LOOM_ASSIGN(const RunSpec old_spec, ParseCanonicalSpec(before));
  LOOM_ASSIGN(const RunSpec new_spec, ParseCanonicalSpec(after));
  RunFile old_run, new_run;
  old_run.spec = old_spec;
  new_run.spec = new_spec;
  for (const Key& key : Keys()) {
    if (!key.agreed || key.Amendable()) continue;
    const std::string was = FormatValue(key, old_run);
    const std::string is = FormatValue(key, new_run);
    if (was != is) {
      return MakeError(Code::kInvalid,
                       fmt::format("{}.{} cannot be changed from {} to {} in a run that has begun",
                                   key.table, key.name, was, is));
    }
  }
  return new_spec;
}

Hash SpecHash(const RunSpec& spec) { return crypto::Sha256(AsBytes(CanonicalSpec(spec))); }

std::vector<SettingChange> ChangesOf(std::string_view before, std::string_view after) {
  constexpr std::string_view kDefault = "its default";
  std::map<std::string_view, std::string_view> was;
  ForEachSetting(before, [&](std::string_view key, std::string_view value) { was[key] = value; });
  std::vector<SettingChange> changes;
  const auto changed = [&](std::string_view key, std::string_view old, std::string_view value) {
    changes.push_back({std::string(key), std::string(old), std::string(value)});
  };
  ForEachSetting(after, [&](std::string_view key, std::string_view value) {
    const auto old = was.find(key);
    if (old == was.end()) {
      changed(key, kDefault, value);
      return;
    }
    if (old->second != value) changed(key, old->second, value);
    was.erase(old);
  });
  for (const auto& [key, value] : was) changed(key, value, kDefault);
  return changes;
}

}  // namespace loom::train
