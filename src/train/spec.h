// What a run is: the agreed tables of run.toml ([model] [data] [optim] [sync] [determinism]) as one
// struct, and each peer's own [local] table. Every key stands once in the key table (spec_keys.h),
// which reads, checks, writes and documents it. The canonical text of the agreed keys is what peers
// compare; its SHA-256 is the spec hash.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "agreed/schedule.h"
#include "base/bytes.h"
#include "base/id.h"
#include "base/result.h"
#include "collab/sync_config.h"
#include "data/config.h"
#include "model/config.h"
#include "optim/inner_optimizer.h"

namespace loom::train {

/// The inner optimizer of every logical worker. The batch size is SyncConfig::batch.
struct OptimConfig {
  optim::InnerConfig inner;
  agreed::ScheduleConfig schedule;  ///< keyed to the tokens of the whole run
  std::uint32_t accumulation = 1;   ///< micro-batches that make one inner step; divides the batch
  float z_loss = 0;                 ///< model::ModelOptions::z_loss
};

struct DeterminismConfig {
  bool deterministic = true;  ///< same inputs and thread count, same bits
  std::uint32_t threads = 0;  ///< of tensor operators on every peer; 0 = each peer's own choice
};

/// One peer's own settings; no other peer sees them.
struct LocalConfig {
  std::string dir;  ///< the peer's folder; empty = the first free ./loom-RUN-k
  std::string device = "auto";
  std::string compute = "fp32";
  bool checkpointing = false;
  std::uint32_t threads = 0;   ///< 0 = half of the logical processors
  std::string listen;          ///< HOST:PORT; empty = decided by the invite, port chosen once
  std::string announce;        ///< HOST:PORT that others dial
  std::uint64_t max_up = 0;    ///< bytes a second over all connections; 0 = no limit
  std::uint64_t max_down = 0;  ///< the same for receiving
  std::uint32_t checkpoint_every = 10;  ///< rounds
  std::uint32_t keep_checkpoints = 2;
};

struct RunSpec {
  model::ModelConfig model;
  data::DataConfig data;
  OptimConfig optim;
  collab::SyncConfig sync;
  DeterminismConfig determinism;
};

/// run.toml as a whole.
struct RunFile {
  std::string model_preset = "nano";
  std::string model_from;  ///< folder of the model that the run starts from; empty = drawn weights
  std::string tune_from;   ///< folder of the adapter that is trained further; empty = a new one
  std::string sync_preset = "loom-short";
  RunSpec spec;
  LocalConfig local;
};

/// Workers of exact mode when nothing says how many.
inline constexpr std::uint32_t kExactWorkers = 4;
/// Exact mode is on by default where it can be: allreduce, fp32, a fixed number of workers.
bool MayBeExact(const collab::SyncConfig& sync);

inline constexpr std::size_t kMaxSpecBytes = 64 << 10;

/// Every default, presets applied: what an empty run.toml means.
RunFile DefaultRun();
/// Model sizes of a named preset; vocab 0, the tokenizer's size.
Status ApplyModelPreset(std::string_view name, RunFile& run);
/// The kind of optimizer with the momentum that is its default.
void SetOptimizer(agreed::InnerKind kind, agreed::InnerConfig& inner);
/// Settings of the rounds, and the inner optimizer that belongs to them.
Status ApplySyncPreset(std::string_view name, RunFile& run);
std::vector<std::string> SyncPresetNames();

/// What a run.toml takes from the model folder that it names.
struct StartModel {
  model::ModelConfig config;  ///< context is the longest one; positions 0; no tuning
  std::string tokenizer;      ///< path of its tokenizer.json
};
/// What folders say that a run.toml names; [local] of the same file tells where the run's own
/// copies may be.
struct OpenStart {
  std::function<Result<StartModel>(const std::string& from, const LocalConfig& local)> model;
  /// The tuning of an adapter, which has to belong to the network.
  std::function<Result<model::Tuning>(const std::string& from, const model::ModelConfig& network,
                                      const LocalConfig& local)>
      adapter;
};

/// Parses run.toml; file_name only names it in errors. Relative data paths and local.dir are left
/// as they are. The vocabulary may still be 0 (the tokenizer decides). Of a run that starts from a
/// model or an adapter, `open` gives what its folder says (start_model.h); without it such a run
/// is refused.
Result<RunFile> ParseRun(std::string_view toml, std::string_view file_name,
                         const OpenStart& open = {});
/// The same of a file. Relative paths of the corpus and of a tokenizer.json are meant from the
/// folder that holds the file, and come back as seen from the current one; model.from and tune.from
/// come back absolute. `open` is OpenStartModel and OpenStartAdapter unless given.
Result<RunFile> LoadRun(const std::string& path, const OpenStart& open = {});

/// Checks what no single key can: sizes that must fit each other. Fills what follows from others:
/// sync.context, and schedule.total_tokens from the rounds when it is 0.
Status ResolveSpec(RunSpec& spec);
/// The tokenizer decides the vocabulary; another size in run.toml is an error that shows both.
Status FitVocab(RunSpec& spec, std::uint32_t tokenizer_vocab);

/// kInvalid unless the corpus gives two contexts of training tokens; `how` says how exact the
/// number is, in words.
Status CheckTrainTokens(const RunSpec& spec, std::uint64_t tokens, std::string_view how = "");

/// The commented run.toml that `loom init` writes: every key with its meaning, those at their
/// default commented out. Parsing it gives the same run.
std::string WriteRun(const RunFile& run);
/// The keys of [local] that are not at their default, as TOML; ParseRun reads it back.
std::string WriteLocal(const LocalConfig& local);
/// docs/run-toml.md.
std::string RunTomlReference();

/// Agreed keys, one "table.key = value" a line, in the order of the keys; optional ones if changed.
std::string CanonicalSpec(const RunSpec& spec);
/// Reads exactly what CanonicalSpec writes; anything else is an error that names the line.
Result<RunSpec> ParseCanonicalSpec(std::string_view text);
Hash SpecHash(const RunSpec& spec);
/// One key whose values differ, both as canonical texts write them.
struct SettingChange {
  std::string key;  ///< "optim.lr"
  std::string before;
  std::string after;
  bool operator==(const SettingChange&) const = default;
};
/// What differs between two canonical texts, in the order of `after`; then what only `before` has.
/// A key that one of them lacks has its default there.
std::vector<SettingChange> ChangesOf(std::string_view before, std::string_view after);

/// The spec with other values, given as run.toml gives them ("[sync]\nrounds = 500"). Errors: keys
/// that a living run cannot change, and what ParseRun says.
Result<RunSpec> Amend(const RunSpec& before, std::string_view toml);
/// The same change as two canonical texts: checked, and read.
Result<RunSpec> ReadAmended(std::string_view before, std::string_view after);

/// Tokens that one worker uses in an inner step.
std::uint64_t TokensPerStep(const RunSpec& spec);

}  // namespace loom::train
