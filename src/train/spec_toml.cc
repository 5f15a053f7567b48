// run.toml in and out: TOML values into the slots of the key table with errors that name file,
// line, key, value and limit; and the commented file and reference page made from the same table.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <set>

#include "base/file.h"
#include "base/nearest.h"
#include "base/toml.h"
#include "model/family.h"
#include "train/spec.h"
#include "train/spec_keys.h"
#include "train/start_model.h"

namespace loom::train {
namespace {

constexpr std::size_t kMaxPaths = 4096;

class RunParser {
 public:
  explicit RunParser(std::string_view file, const OpenStart& open = {})
      : file_(file), open_(open) {}

  /// Other values for a run that has begun.
  Result<RunSpec> Amend(const TomlTable& document, const RunSpec& before) {
    LOOM_RETURN_IF_ERROR(CheckNames(document));
    run_ = DefaultRun();
    run_.spec = before;
    for (const auto& [table, value] : document) {
      for (const auto& [name, entry] : *value.AsTable()) {
        const Key& key = *Find(table, name);
        if (!key.Amendable()) {
          return At(entry.line, Code::kInvalid,
                    fmt::format("{}.{} cannot be changed in a run that has begun", table, name),
                    "[optim] (but optimizer, batch, accumulation) and rounds, inner_steps, outer*, "
                    "max_norm of [sync] can be; for the rest begin a new run");
        }
        LOOM_RETURN_IF_ERROR(ApplyKey(key, entry));
      }
    }
    LOOM_RETURN_IF_ERROR(CheckOptimizerKeys(document));
    LOOM_RETURN_IF_ERROR(ResolveSpec(run_.spec));
    return run_.spec;
  }

  Result<RunFile> Parse(const TomlTable& document) {
    LOOM_RETURN_IF_ERROR(CheckNames(document));
    run_ = DefaultRun();
    LOOM_RETURN_IF_ERROR(ApplyStart(document));
    if (!start_) LOOM_RETURN_IF_ERROR(ApplyPreset(document, "model", ApplyModelPreset));
    // Warm-up of a preset is given in steps, so the size of a step has to be known before it.
    LOOM_RETURN_IF_ERROR(ApplyKeys(document, true));
    LOOM_RETURN_IF_ERROR(ApplyPreset(document, "sync", ApplySyncPreset));
    LOOM_RETURN_IF_ERROR(ApplyKeys(document, false));
    if (start_) {
      LOOM_RETURN_IF_ERROR(TakeStart(document));
    } else {
      DeriveModelSizes();
    }
    LOOM_RETURN_IF_ERROR(TakeAdapter(document));
    LOOM_RETURN_IF_ERROR(DeriveTuning(document));
    DeriveSync();
    DeriveMomentum();
    LOOM_RETURN_IF_ERROR(CheckOptimizerKeys(document));
    if (Status resolved = ResolveSpec(run_.spec); !resolved) {
      return std::move(resolved).error().Context(file_);
    }
    return std::move(run_);
  }

 private:
  Error At(std::uint32_t line, Code code, std::string message, std::string hint = {}) const {
    return MakeError(code, fmt::format("{}:{}: {}", file_, line, message), std::move(hint));
  }

  static const Key* Find(std::string_view table, std::string_view name) {
    for (const Key& key : Keys()) {
      if (key.table == table && key.name == name) return &key;
    }
    return nullptr;
  }

  Status CheckNames(const TomlTable& document) {
    for (const auto& [table, value] : document) {
      const auto tables = TableNames();
      if (std::find(tables.begin(), tables.end(), table) == tables.end()) {
        return UnknownTable(table, value);
      }
      const TomlTable* entries = value.AsTable();
      if (entries == nullptr) {
        return At(value.line, Code::kInvalid, fmt::format("{} is {}", table, value.KindName()),
                  fmt::format("it is a table: write [{}] on a line of its own", table));
      }
      for (const auto& [name, entry] : *entries) {
        if (Find(table, name) == nullptr) return UnknownKey(table, name, entry.line);
        set_.insert(table + "." + name);
      }
    }
    return {};
  }

  /// "preset belongs below [model] or [sync]"; empty when no table has such a key.
  static std::string PlaceOf(std::string_view name) {
    std::string tables;
    for (const Key& key : Keys()) {
      if (key.name == name)
        tables += fmt::format("{}[{}]", tables.empty() ? "" : " or ", key.table);
    }
    return tables.empty() ? tables : fmt::format("{} belongs below {}", name, tables);
  }

  Error UnknownTable(std::string_view table, const TomlValue& value) const {
    std::string hint = "the tables are";
    for (const auto known : TableNames()) hint += fmt::format(" [{}]", known);
    if (value.AsTable() == nullptr) {
      if (std::string place = PlaceOf(table); !place.empty()) hint = std::move(place);
    } else if (const auto nearest = Nearest(table, TableNames()); !nearest.empty()) {
      hint = fmt::format("did you mean [{}]?", nearest);
    }
    return At(value.line, Code::kInvalid, fmt::format("'{}' is not known", table), hint);
  }

  Error UnknownKey(std::string_view table, std::string_view name, std::uint32_t line) const {
    std::vector<std::string_view> known;
    std::string hint = PlaceOf(name);
    for (const Key& key : Keys()) {
      if (key.table == table) known.push_back(key.name);
    }
    if (hint.empty()) {
      const auto nearest = Nearest(name, known);
      hint = nearest.empty() ? fmt::format("`loom init --keys` lists every key of [{}]", table)
                             : fmt::format("did you mean {}?", nearest);
    }
    return At(line, Code::kInvalid, fmt::format("{}.{} is not known", table, name), hint);
  }

  Status ApplyPreset(const TomlTable& document, std::string_view table,
                     Status (*apply)(std::string_view, RunFile&)) {
    for (const auto& [name, value] : document) {
      if (name != table) continue;
      for (const auto& [key, entry] : *value.AsTable()) {
        if (key != "preset") continue;
        const auto* text = std::get_if<std::string>(&entry.value);
        if (text == nullptr) return WrongKind(*Find(table, "preset"), entry, "a string");
        if (Status applied = apply(*text, run_); !applied) {
          return std::move(applied).error().Context(fmt::format("{}:{}", file_, entry.line));
        }
        return {};
      }
    }
    return apply(table == "model" ? run_.model_preset : run_.sync_preset, run_);
  }

  /// The model that the run starts from, where [model] names one.
  Status ApplyStart(const TomlTable& document) {
    const TomlValue* from = Given(document, "model", "from");
    if (from == nullptr) return {};
    LOOM_RETURN_IF_ERROR(ApplyKey(*Find("model", "from"), *from));
    if (run_.model_from.empty()) return {};
    if (const TomlValue* preset = Given(document, "model", "preset")) {
      return At(preset->line, Code::kInvalid,
                "model.preset stands beside model.from, whose model has sizes of its own",
                "leave one of them out");
    }
    if (!open_.model) return CannotRead(*from, "model.from");
    if (const TomlValue* dir = Given(document, "local", "dir"))
      LOOM_RETURN_IF_ERROR(ApplyKey(*Find("local", "dir"), *dir));
    auto opened = open_.model(run_.model_from, run_.local);
    if (!opened) {
      return std::move(opened).error().Context(fmt::format("{}:{}: model.from", file_, from->line));
    }
    start_ = *std::move(opened);
    run_.spec.model = start_->config;
    for (const Key& key : Keys()) {
      if (key.table != "model") continue;
      if (Status checked = CheckValue(key, run_); !checked) {
        return std::move(checked).error().Context(
            fmt::format("{}:{}: the model of '{}'", file_, from->line, run_.model_from));
      }
    }
    return {};
  }

  /// After the keys: none of them may say something else than the model, but for the context.
  Status TakeStart(const TomlTable& document) {
    const model::ModelConfig& own = start_->config;
    RunFile of_model;
    of_model.spec.model = own;
    of_model.spec.model.positions = own.context;
    model::ModelConfig& asked = run_.spec.model;
    if (asked.positions == 0) asked.positions = own.context;
    if (asked.vocab == 0) asked.vocab = own.vocab;
    for (const Key& key : Keys()) {
      const TomlValue* given = Given(document, "model", key.name);
      if (key.table != "model" || given == nullptr || key.name == "from") continue;
      const bool fits = key.name == "context"
                            ? asked.context <= own.context
                            : FormatValue(key, run_) == FormatValue(key, of_model);
      if (fits) continue;
      return At(given->line, Code::kInvalid,
                fmt::format("model.{} = {}, the model of model.from has {}", key.name,
                            FormatValue(key, run_), FormatValue(key, of_model)),
                key.name == "context" ? "choose one that is not larger"
                                      : "leave it out: it follows from model.from");
    }
    model::Tuning tuning = std::move(asked.tuning);
    asked = model::ForContext(own, asked.context);
    asked.tuning = std::move(tuning);
    if (!set_.contains("data.tokenizer")) run_.spec.data.tokenizer = start_->tokenizer;
    return {};
  }

  /// The adapter that is trained further, where [tune] names one: no other key of [tune] may say
  /// something else than it.
  Status TakeAdapter(const TomlTable& document) {
    const TomlValue* from = Given(document, "tune", "from");
    if (from == nullptr) return {};
    LOOM_RETURN_IF_ERROR(ApplyKey(*Find("tune", "from"), *from));
    if (run_.tune_from.empty()) return {};
    if (!start_) {
      return At(from->line, Code::kInvalid,
                "tune.from names an adapter, but the run starts from nothing",
                "name the folder of the model that it belongs to with [model] from");
    }
    if (!open_.adapter) return CannotRead(*from, "tune.from");
    const auto own = open_.adapter(run_.tune_from, run_.spec.model, run_.local);
    if (!own) {
      return Error(own.error()).Context(fmt::format("{}:{}: tune.from", file_, from->line));
    }
    RunFile of_adapter = run_;
    of_adapter.spec.model.tuning = *own;
    for (const Key& key : Keys()) {
      const TomlValue* given = Given(document, "tune", key.name);
      if (key.table != "tune" || given == nullptr || key.name == "from") continue;
      if (FormatValue(key, run_) == FormatValue(key, of_adapter)) continue;
      if (key.name == "lora_targets" && SameModules(of_adapter)) continue;
      return At(given->line, Code::kInvalid,
                fmt::format("tune.{} = {}, the adapter of tune.from has {}", key.name,
                            FormatValue(key, run_), FormatValue(key, of_adapter)),
                "leave it out: it follows from tune.from");
    }
    model::Tuning& asked = run_.spec.model.tuning;
    const std::vector<std::string> targets =
        set_.contains("tune.lora_targets") ? asked.lora_targets : own->lora_targets;
    asked = *own;
    asked.lora_targets = targets;
    return {};
  }

  /// Whether the targets here mean the modules of the adapter, whatever their order and form.
  bool SameModules(const RunFile& of_adapter) const {
    model::ModelConfig here = of_adapter.spec.model;
    here.tuning.lora_targets = run_.spec.model.tuning.lora_targets;
    return model::ParameterShapes(here) == model::ParameterShapes(of_adapter.spec.model);
  }

  Error CannotRead(const TomlValue& from, std::string_view key) const {
    return At(from.line, Code::kInvalid, fmt::format("{} cannot be read here", key),
              "it belongs into the run.toml of a new run");
  }

  static const TomlValue* Given(const TomlTable& document, std::string_view table,
                                std::string_view name) {
    for (const auto& [known, value] : document) {
      if (known != table) continue;
      for (const auto& [key, entry] : *value.AsTable()) {
        if (key == name) return &entry;
      }
    }
    return nullptr;
  }

  /// Every key but the presets; or only those that size a step.
  Status ApplyKeys(const TomlTable& document, bool sizes_only) {
    for (const auto& [table, value] : document) {
      for (const auto& [name, entry] : *value.AsTable()) {
        if (name == "preset" || name == "from") continue;
        const bool size = name == "context" || name == "batch" || name == "workers";
        if (sizes_only && !size) continue;
        LOOM_RETURN_IF_ERROR(ApplyKey(*Find(table, name), entry));
      }
    }
    return {};
  }

  Error WrongKind(const Key& key, const TomlValue& value, std::string_view wanted) const {
    const std::string limits = FormatLimits(key);
    return At(value.line, Code::kInvalid,
              fmt::format("{}.{} is {}, not {}", key.table, key.name, value.KindName(), wanted),
              limits.empty() ? "" : fmt::format("allowed: {}", limits));
  }

  Status ApplyKey(const Key& key, const TomlValue& value) {
    LOOM_RETURN_IF_ERROR(
        std::visit([&](auto slot) { return Store(key, value, slot); }, key.slot(run_)));
    if (Status checked = CheckValue(key, run_); !checked) {
      return std::move(checked).error().Context(fmt::format("{}:{}", file_, value.line));
    }
    return {};
  }

  Status Store(const Key& key, const TomlValue& value, bool* out) {
    const auto* flag = std::get_if<bool>(&value.value);
    if (flag == nullptr) return WrongKind(key, value, "true or false");
    *out = *flag;
    return {};
  }
  template <class T>
    requires(std::is_same_v<T, std::uint32_t> || std::is_same_v<T, std::uint64_t>)
  Status Store(const Key& key, const TomlValue& value, T* out) {
    double number = 0;
    if (const auto* integer = std::get_if<std::int64_t>(&value.value)) {
      number = static_cast<double>(*integer);
    } else if (const auto* real = std::get_if<double>(&value.value);
               real != nullptr && *real == std::floor(*real)) {
      number = *real;  // 1e6 is a fine way to write a million
    } else {
      return WrongKind(key, value, "an integer");
    }
    if (!(number >= key.min && number <= key.max)) {
      return At(value.line, Code::kInvalid,
                fmt::format("{}.{} = {} is outside of {}", key.table, key.name, number,
                            FormatLimits(key)),
                std::string(kKeysHint));
    }
    *out = static_cast<T>(number);
    return {};
  }
  template <class T>
    requires(std::is_floating_point_v<T>)
  Status Store(const Key& key, const TomlValue& value, T* out) {
    if (const auto* real = std::get_if<double>(&value.value)) {
      *out = static_cast<T>(*real);
    } else if (const auto* integer = std::get_if<std::int64_t>(&value.value)) {
      *out = static_cast<T>(*integer);
    } else {
      return WrongKind(key, value, "a number");
    }
    return {};
  }
  Status Store(const Key& key, const TomlValue& value, std::string* out) {
    const auto* text = std::get_if<std::string>(&value.value);
    if (text == nullptr) return WrongKind(key, value, "a string");
    *out = *text;
    return {};
  }
  Status Store(const Key& key, const TomlValue& value, std::vector<std::string>* out) {
    out->clear();
    if (const auto* text = std::get_if<std::string>(&value.value)) {
      out->push_back(*text);
      return {};
    }
    const auto* items = std::get_if<TomlArray>(&value.value);
    if (items == nullptr) return WrongKind(key, value, "a string or an array of strings");
    if (items->size() > kMaxPaths) {
      return At(value.line, Code::kLimit,
                fmt::format("{}.{} has {} items, the limit is {}", key.table, key.name,
                            items->size(), kMaxPaths));
    }
    for (const TomlValue& item : *items) {
      const auto* text = std::get_if<std::string>(&item.value);
      if (text == nullptr) return WrongKind(key, item, "a string");
      out->push_back(*text);
    }
    return {};
  }
  Status Store(const Key& key, const TomlValue& value, std::vector<double>* out) {
    const auto* items = std::get_if<TomlArray>(&value.value);
    if (items == nullptr) return WrongKind(key, value, "an array of numbers");
    if (items->size() > kMaxPaths) {
      return At(value.line, Code::kLimit,
                fmt::format("{}.{} has {} items, the limit is {}", key.table, key.name,
                            items->size(), kMaxPaths));
    }
    out->resize(items->size());
    for (std::size_t i = 0; i < items->size(); ++i) {
      LOOM_RETURN_IF_ERROR(Store(key, (*items)[i], &(*out)[i]));
    }
    return {};
  }
  Status Store(const Key& key, const TomlValue& value, SizeSlot out) {
    if (const auto* text = std::get_if<std::string>(&value.value)) {
      auto size = ParseSize(*text);
      if (!size) {
        return std::move(size).error().Context(
            fmt::format("{}:{}: {}.{}", file_, value.line, key.table, key.name));
      }
      *out.value = *size;
      return {};
    }
    return Store(key, value, out.value);
  }
  Status Store(const Key& key, const TomlValue& value, ChoiceSlot out) {
    const auto* text = std::get_if<std::string>(&value.value);
    if (text == nullptr) return WrongKind(key, value, "a string");
    const auto found = std::find(key.choices.begin(), key.choices.end(), *text);
    if (found == key.choices.end()) {
      const auto nearest = Nearest(*text, key.choices);
      return At(value.line, Code::kInvalid,
                fmt::format("{}.{} = \"{}\" is none of {}", key.table, key.name,
                            text->substr(0, 40), FormatLimits(key)),
                nearest.empty() ? "" : fmt::format("did you mean \"{}\"?", nearest));
    }
    *out.value = static_cast<std::uint8_t>(found - key.choices.begin());
    return {};
  }
  Status Store(const Key& key, const TomlValue& value, WorkersSlot out) {
    if (const auto* text = std::get_if<std::string>(&value.value)) {
      if (*text == "per-peer") {
        *out.value = 0;
        return {};
      }
      return At(value.line, Code::kInvalid,
                fmt::format("{}.{} = \"{}\" is neither a number nor \"per-peer\"", key.table,
                            key.name, text->substr(0, 40)));
    }
    LOOM_RETURN_IF_ERROR(Store(key, value, out.value));
    if (*out.value == 0) {
      return At(value.line, Code::kInvalid, "sync.workers = 0: nobody would work",
                "write \"per-peer\" for one worker on each peer");
    }
    return {};
  }

  /// Sizes that follow from others unless they are given.
  void DeriveModelSizes() {
    model::ModelConfig& config = run_.spec.model;
    const auto given = [&](const char* name) {
      return set_.contains(std::string("model.") + name);
    };
    if ((given("width") || given("heads")) && !given("head_dim") && config.heads > 0) {
      config.head_dim = config.width / config.heads;
    }
    if (given("heads") && !given("kv_heads")) config.kv_heads = config.heads;
    const bool gated = model::Traits(config.family).rotary;
    if ((given("width") || !gated) && !given("ffn")) {
      config.ffn = gated ? (config.width * 8 / 3 + 7) / 8 * 8 : 4 * config.width;
    }
  }

  /// LoRA's usual settings where they are not given.
  Status DeriveTuning(const TomlTable& document) {
    model::Tuning& tuning = run_.spec.model.tuning;
    for (const auto& [table, value] : document) {
      if (table != "tune" || start_ || tuning.trains_all()) continue;
      return At(value.line, Code::kInvalid, "[tune] stands there, but the run starts from nothing",
                "name a model's folder with [model] from, or leave [tune] out");
    }
    if (tuning.lora_rank == 0 || !run_.tune_from.empty()) return {};
    if (!set_.contains("tune.lora_alpha"))
      tuning.lora_alpha = 2 * static_cast<float>(tuning.lora_rank);
    if (!set_.contains("tune.lora_targets"))
      tuning.lora_targets = model::LayerMatrices(run_.spec.model);
    return {};
  }

  /// What method = "allreduce" means unless it is said otherwise.
  void DeriveSync() {
    collab::SyncConfig& sync = run_.spec.sync;
    const auto given = [&](const char* name) { return set_.contains(std::string("sync.") + name); };
    if (sync.method == collab::Method::kAllReduce) {
      if (!given("inner_steps")) sync.inner_steps = 1;
      if (!given("codec")) sync.codec = "fp32";
      if (!given("workers") && sync.workers == 0 && sync.codec == "fp32" &&
          (sync.exact || !given("exact"))) {
        sync.workers = kExactWorkers;
      }
    }
    if (!given("exact")) sync.exact = MayBeExact(sync);
  }

  void DeriveMomentum() {
    agreed::InnerConfig& inner = run_.spec.optim.inner;
    agreed::InnerConfig implied = inner;
    SetOptimizer(inner.kind, implied);
    if (!set_.contains("optim.momentum")) inner.momentum = implied.momentum;
    if (!set_.contains("optim.nesterov")) inner.nesterov = implied.nesterov && inner.momentum > 0;
  }

  /// A setting of another optimizer would be without effect.
  Status CheckOptimizerKeys(const TomlTable& document) const {
    const agreed::InnerKind kind = run_.spec.optim.inner.kind;
    for (const auto& [table, value] : document) {
      for (const auto& [name, entry] : *value.AsTable()) {
        const Key& key = *Find(table, name);
        if (key.Belongs(kind)) continue;
        return At(entry.line, Code::kInvalid,
                  fmt::format("{}.{} is a setting of {}; the optimizer is {}", table, name,
                              FormatOptimizers(key), agreed::InnerKindName(kind)),
                  "leave it out, or change optim.optimizer");
      }
    }
    return {};
  }

  std::string file_;
  OpenStart open_;
  std::optional<StartModel> start_;
  RunFile run_;
  std::set<std::string> set_;
};

std::string Comment(const Key& key) {
  std::string limits = FormatLimits(key);
  if (key.table == "model" && key.name == "preset") {
    for (const auto& name : model::PresetNames()) limits += (limits.empty() ? "" : " | ") + name;
  } else if (key.table == "sync" && key.name == "preset") {
    for (const auto& name : SyncPresetNames()) limits += (limits.empty() ? "" : " | ") + name;
  }
  if (!key.of.empty())
    limits += fmt::format("{}{}", limits.empty() ? "" : "; ", FormatOptimizers(key));
  return limits.empty() ? std::string(key.text) : fmt::format("{} ({})", key.text, limits);
}

}  // namespace

Result<RunFile> ParseRun(std::string_view toml, std::string_view file_name, const OpenStart& open) {
  LOOM_ASSIGN(const TomlTable document, ParseToml(toml, file_name));
  return RunParser(file_name, open).Parse(document);
}

Result<RunSpec> Amend(const RunSpec& before, std::string_view toml) {
  LOOM_ASSIGN(const TomlTable document, ParseToml(toml, "the change"));
  return RunParser("the change").Amend(document, before);
}

Result<RunFile> LoadRun(const std::string& path, const OpenStart& open) {
  LOOM_ASSIGN(const std::string text, ReadFile(path, kMaxTomlBytes));
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  const auto absolute = [&](const std::string& given) {
    return std::filesystem::absolute(folder / given).lexically_normal().string();
  };
  OpenStart there;
  there.model = [&](const std::string& from, const LocalConfig& local) {
    return open.model ? open.model(absolute(from), local) : OpenStartModel(absolute(from));
  };
  there.adapter = [&](const std::string& from, const model::ModelConfig& network,
                      const LocalConfig& local) {
    return open.adapter ? open.adapter(absolute(from), network, local)
                        : OpenStartAdapter(absolute(from), network);
  };
  LOOM_ASSIGN(RunFile run, ParseRun(text, path, there));
  for (std::string* from : {&run.model_from, &run.tune_from})
    if (!from->empty()) *from = absolute(*from);
  const auto resolve = [&](std::string& given) {
    if (std::filesystem::path(given).is_relative()) given = (folder / given).string();
  };
  for (std::string& data : run.spec.data.paths) resolve(data);
  if (run.spec.data.tokenizer.ends_with(".json")) resolve(run.spec.data.tokenizer);
  return run;
}

std::string WriteRun(const RunFile& run) {
  // What the file would mean without the keys that are written out.
  RunFile base = DefaultRun();
  const bool presets =
      ApplyModelPreset(run.model_preset, base) && ApplySyncPreset(run.sync_preset, base);
  LOOM_CHECK(presets, "presets {} and {}", run.model_preset, run.sync_preset);
  const bool started = !run.model_from.empty();
  if (started) {
    base.spec.model = model::ForContext(run.spec.model, model::NumPositions(run.spec.model));
    base.spec.model.tuning = {};
  }
  std::string out =
      "# A run of loom. Lines that start with # show a key at its default. The tables [model], "
      "[data],\n"
      "# [optim], [sync] and [determinism] are the same on every peer; [local] is this machine's "
      "own.\n";
  std::string_view table;
  for (const Key& key : Keys()) {
    if (key.table != table) {
      table = key.table;
      out += fmt::format("\n# {}\n[{}]\n", TableText(table), table);
    }
    const std::string value = FormatValue(key, run);
    const bool fixed = key.name == "preset" ? !(started && table == "model") : key.name == "paths";
    const bool implied = started && key.name == "positions";
    const bool active = fixed || (!implied && value != FormatValue(key, base) &&
                                  key.Belongs(run.spec.optim.inner.kind));
    out += fmt::format("# {}\n{}{} = {}\n", Comment(key), active ? "" : "# ", key.name, value);
  }
  return out;
}

std::string WriteLocal(const LocalConfig& local) {
  const RunFile base = DefaultRun();
  RunFile run = base;
  run.local = local;
  std::string out = "[local]\n";
  for (const Key& key : Keys()) {
    if (key.table != "local") continue;
    const std::string value = FormatValue(key, run);
    if (value != FormatValue(key, base)) out += fmt::format("{} = {}\n", key.name, value);
  }
  return out;
}

std::string RunTomlReference() {
  const RunFile defaults = DefaultRun();
  std::string out =
      "# run.toml\n\nEvery key of a run, made from the table in `src/train/spec_keys.cc` by `loom "
      "init --keys`.\n"
      "Keys marked *agreed* are part of the spec: peers with another value are refused. Defaults "
      "are those\n"
      "of the presets `nano` and `loom-short`.\n";
  std::string_view table;
  for (const Key& key : Keys()) {
    if (key.table != table) {
      table = key.table;
      out += fmt::format("\n## [{}]\n\n{}\n\n| key | default | meaning |\n|---|---|---|\n", table,
                         TableText(table));
    }
    std::string comment = Comment(key);
    for (std::size_t at = 0; (at = comment.find(" | ", at)) != std::string::npos;) {
      comment.replace(at, 3, ", ");
    }
    out += fmt::format("| `{}`{} | `{}` | {} |\n", key.name, key.agreed ? " *agreed*" : "",
                       FormatValue(key, defaults), comment);
  }
  return out;
}

}  // namespace loom::train
