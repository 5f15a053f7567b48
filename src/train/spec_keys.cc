// The rows of the key table, and how one value is checked and printed.
#include "train/spec_keys.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/toml.h"

namespace loom::train {
namespace {

constexpr double kBig = 9.0e15;  // integers up to here are exact in TOML, JSON and double

template <class Enum>
ChoiceSlot Choice(Enum& value) {
  static_assert(sizeof(Enum) == 1);
  return {reinterpret_cast<std::uint8_t*>(&value)};
}

using agreed::InnerKind;
const std::vector<std::string_view> kAnyWord;
const std::vector<InnerKind> kOfAdamW = {InnerKind::kAdamW, InnerKind::kMuon};
const std::vector<InnerKind> kOfMomentum = {InnerKind::kSgd, InnerKind::kMuon};
const std::vector<InnerKind> kOfMuon = {InnerKind::kMuon};

#define SLOT(field) [](RunFile& run) -> Slot { return &run.field; }

const std::vector<Key>& Table() {
  static const std::vector<Key> kKeys = {
      {"model", "preset", SLOT(model_preset), false,
       "Sizes to start from; the keys below change them"},
      {"model", "from", SLOT(model_from), false,
       "Folder of a model in Hugging Face's format to start from: weights, tokenizer and sizes are "
       "its own, only context can be chosen, and smaller (docs/models.md). \"\" = new weights"},
      {"model", "layers", SLOT(spec.model.layers), true, "Transformer blocks", 1, 512},
      {"model", "width", SLOT(spec.model.width), true, "Size of the residual stream", 8, 65536},
      {"model", "heads", SLOT(spec.model.heads), true, "Query heads", 1, 1024},
      {"model", "kv_heads", SLOT(spec.model.kv_heads), true,
       "Key and value heads; divides heads. Not given: as many as heads", 1, 1024},
      {"model", "head_dim", SLOT(spec.model.head_dim), true,
       "Size of a head, even. Not given: width / heads", 2, 1024},
      {"model", "ffn", SLOT(spec.model.ffn), true,
       "Inner size of the feed-forward network. Not given: 8/3 of width, rounded up to 8; of gpt2 "
       "4 "
       "times width",
       8, 524288},
      {"model", "context", SLOT(spec.model.context), true, "Tokens of a training sample", 2,
       1048576},
      {"model", "vocab", SLOT(spec.model.vocab), true,
       "Token ids; 0 = as many as the tokenizer has", 0, 4194304},
      {"model", "rope_theta", SLOT(spec.model.rope_theta), true, "Base of the rotary frequencies",
       1, 1e9},
      {"model", "norm_eps", SLOT(spec.model.norm_eps), true, "Added to the variance in the norms",
       1e-12, 1e-2},
      {"model", "tie_embeddings", SLOT(spec.model.tie_embeddings), true,
       "The output matrix is the embedding"},
      {"model", "init_std", SLOT(spec.model.init_std), true,
       "Standard deviation of the first matrices", 1e-6, 1},
      {.table = "model",
       .name = "family",
       .slot = [](RunFile& run) -> Slot { return Choice(run.spec.model.family); },
       .agreed = true,
       .text = "The kind of transformer (docs/models.md)",
       .choices = {"llama", "mistral", "qwen2", "qwen3", "gpt2"},
       .optional = true},
      {.table = "model",
       .name = "positions",
       .slot = SLOT(spec.model.positions),
       .agreed = true,
       .text = "Longest sequence that the model is made for, at least context; 0 = context",
       .max = 16777216,
       .optional = true},
      {.table = "model",
       .name = "window",
       .slot = SLOT(spec.model.window),
       .agreed = true,
       .text = "mistral: how many tokens a token sees, itself included; 0 = all before it",
       .max = 16777216,
       .optional = true},
      {.table = "model",
       .name = "attention_bias",
       .slot = SLOT(spec.model.attention_bias),
       .agreed = true,
       .text = "llama, qwen3: biases on the q, k, v and o projections",
       .optional = true},
      {.table = "model",
       .name = "mlp_bias",
       .slot = SLOT(spec.model.mlp_bias),
       .agreed = true,
       .text = "llama: biases on the gate, up and down projections",
       .optional = true},
      {.table = "model",
       .name = "rope_scaling",
       .slot = [](RunFile& run) -> Slot { return Choice(run.spec.model.rope_scaling.kind); },
       .agreed = true,
       .text = "How rotary frequencies are stretched for longer sequences",
       .choices = {"none", "linear", "llama3"},
       .optional = true},
      {.table = "model",
       .name = "rope_factor",
       .slot = SLOT(spec.model.rope_scaling.factor),
       .agreed = true,
       .text = "linear, llama3: what (low) frequencies are divided by",
       .min = 1,
       .max = 1e6,
       .optional = true},
      {.table = "model",
       .name = "rope_low_freq_factor",
       .slot = SLOT(spec.model.rope_scaling.low_freq_factor),
       .agreed = true,
       .text = "llama3: wavelengths above rope_original_context over this are stretched whole",
       .min = 1e-6,
       .max = 1e6,
       .optional = true},
      {.table = "model",
       .name = "rope_high_freq_factor",
       .slot = SLOT(spec.model.rope_scaling.high_freq_factor),
       .agreed = true,
       .text = "llama3: wavelengths below rope_original_context over this are kept",
       .min = 1e-6,
       .max = 1e6,
       .optional = true},
      {.table = "model",
       .name = "rope_original_context",
       .slot = SLOT(spec.model.rope_scaling.original_context),
       .agreed = true,
       .text = "llama3: the context in tokens before the stretch",
       .max = 16777216,
       .optional = true},

      {"tune", "from", SLOT(tune_from), false,
       "Folder of a LoRA adapter in PEFT's format that is trained further: rank, alpha and modules "
       "are its own (docs/models.md). \"\" = new additions"},
      {.table = "tune",
       .name = "freeze",
       .slot = SLOT(spec.model.tuning.freeze),
       .agreed = true,
       .text = "Patterns (*, ?, [...]) of parameters that keep their values, e.g. "
               "\"model.embed_tokens.*\"",
       .optional = true},
      {.table = "tune",
       .name = "lora_rank",
       .slot = SLOT(spec.model.tuning.lora_rank),
       .agreed = true,
       .text = "Train low-rank additions (LoRA) of this rank instead of the parameters; 0 = no",
       .max = 4096,
       .optional = true},
      {.table = "tune",
       .name = "lora_alpha",
       .slot = SLOT(spec.model.tuning.lora_alpha),
       .agreed = true,
       .text = "The additions count alpha / rank times. Not given: twice the rank",
       .max = 1e6,
       .optional = true},
      {.table = "tune",
       .name = "lora_targets",
       .slot = SLOT(spec.model.tuning.lora_targets),
       .agreed = true,
       .text =
           "Modules that get additions, e.g. [\"q_proj\", \"v_proj\"]. Not given: every matrix of "
           "a layer",
       .optional = true},

      {"data", "paths", SLOT(spec.data.paths), false,
       "Text files, jsonl files, folders or patterns (*.txt) of these, also packed (.gz, .zst); "
       "read "
       "when the run begins, later only to repair its data"},
      {"data", "weights", SLOT(spec.data.weights), false,
       "One number for each of paths: how often samples of it are drawn beside those of the "
       "others. None: the paths are one text",
       1e-6, 1e6},
      {"data",
       "format",
       SLOT(spec.data.format),
       false,
       "How files are read; auto goes by the ending; nanogpt and llmc are token files",
       0,
       0,
       {"auto", "txt", "jsonl", "nanogpt", "llmc"}},
      {"data", "tokenizer", SLOT(spec.data.tokenizer), false,
       "\"chars\" (the characters of the corpus), \"bytes\", or the path of a tokenizer.json "
       "(chars, bytes or byte-level BPE)"},
      {"data",
       "chat",
       SLOT(spec.data.chat),
       false,
       "Template that makes text of messages; auto goes by the tokenizer's special tokens",
       0,
       0,
       {"auto", "chatml", "llama3", "smollm"}},
      {"data",
       "loss",
       SLOT(spec.data.loss),
       false,
       "What of prompts and messages a loss is taken on: completions and turns of the assistant, "
       "or all",
       0,
       0,
       {"answers", "all"}},
      {"data", "separator", SLOT(spec.data.separator), false,
       "Text between two documents; none stands behind messages"},
      {"data", "val_fraction", SLOT(spec.data.val_fraction), true,
       "Share of the corpus, from its end, kept for validation", 0, 0.5},
      {"data", "seed", SLOT(spec.data.seed), true, "Seed of the order of samples", 0, kBig},
      {"data", "skip_bad", SLOT(spec.data.skip_bad), false,
       "Leave out lines that cannot be read, instead of stopping"},
      {"data", "max_line_bytes", SLOT(spec.data.max_line_bytes), false,
       "Longest jsonl line in bytes", 1024, 1 << 30},
      {"data", "shard_tokens", SLOT(spec.data.shard_tokens), false, "Tokens of one shard file",
       1024, 4294967296.0},

      {"optim",
       "optimizer",
       [](RunFile& run) -> Slot { return Choice(run.spec.optim.inner.kind); },
       true,
       "What steps the weights; muon leaves vectors, embedding and head to AdamW",
       0,
       0,
       {"adamw", "sgd", "muon"}},
      {"optim", "lr", SLOT(spec.optim.schedule.peak), true, "Highest learning rate", 0, 10},
      {"optim", "final_lr", SLOT(spec.optim.schedule.final), true, "Learning rate at the end", 0,
       10},
      {"optim",
       "schedule",
       [](RunFile& run) -> Slot { return Choice(run.spec.optim.schedule.kind); },
       true,
       "Shape of the learning rate over the tokens of the whole run",
       0,
       0,
       {"constant", "cosine", "wsd", "linear"}},
      {"optim", "warmup_tokens", SLOT(spec.optim.schedule.warmup_tokens), true,
       "Tokens of linear warm-up", 0, kBig},
      {"optim", "total_tokens", SLOT(spec.optim.schedule.total_tokens), true,
       "Tokens over which the schedule runs; 0 = what sync.rounds come to", 0, kBig},
      {"optim", "decay_tokens", SLOT(spec.optim.schedule.decay_tokens), true,
       "Tokens of the last part of wsd", 0, kBig},
      {"optim",
       "decay_shape",
       [](RunFile& run) -> Slot { return Choice(run.spec.optim.schedule.decay_shape); },
       true,
       "Shape of the last part of wsd",
       0,
       0,
       {"sqrt", "linear"}},
      {"optim", "beta1", SLOT(spec.optim.inner.adamw.beta1), true, "Decay of the first moment", 0,
       0.99999, kAnyWord, kOfAdamW},
      {"optim", "beta2", SLOT(spec.optim.inner.adamw.beta2), true, "Decay of the second moment", 0,
       0.99999, kAnyWord, kOfAdamW},
      {"optim", "eps", SLOT(spec.optim.inner.adamw.eps), true, "Added to the root", 1e-16, 1,
       kAnyWord, kOfAdamW},
      {"optim", "momentum", SLOT(spec.optim.inner.momentum), true,
       "Momentum. Not given: 0.95 of muon, else 0", 0, 0.9999, kAnyWord, kOfMomentum},
      {"optim", "nesterov", SLOT(spec.optim.inner.nesterov), true,
       "Nesterov's momentum. Not given: only of muon", 0, 0, kAnyWord, kOfMomentum},
      {"optim", "newton_schulz", SLOT(spec.optim.inner.iterations), true,
       "Newton-Schulz iterations", 1, 20, kAnyWord, kOfMuon},
      {"optim",
       "muon_scale",
       [](RunFile& run) -> Slot { return Choice(run.spec.optim.inner.muon_scale); },
       true,
       "Size of a step: by the matrix's shape, or as large as one of AdamW would be",
       0,
       0,
       {"original", "match_rms_adamw"},
       kOfMuon},
      {"optim", "adamw_lr_ratio", SLOT(spec.optim.inner.adamw_lr_ratio), true,
       "AdamW's learning rate over muon's", 0, 1000, kAnyWord, kOfMuon},
      {"optim", "weight_decay", SLOT(spec.optim.inner.adamw.weight_decay), true,
       "Of matrices only; in the gradient of sgd, apart from it else", 0, 10},
      {"optim", "clip_norm", SLOT(spec.optim.inner.clip_norm), true,
       "Largest global norm of a gradient; 0 = no clipping", 0, 1e6},
      {"optim", "z_loss", SLOT(spec.optim.z_loss), true,
       "Weight of the squared log-sum-exp of the logits in what is trained on; no loss shown has "
       "it",
       0, 1},
      {"optim", "batch", SLOT(spec.sync.batch), true, "Samples of one inner step of one worker", 1,
       65536},
      {"optim", "accumulation", SLOT(spec.optim.accumulation), true,
       "Micro-batches that make one step; divides batch, saves memory", 1, 65536},

      {"sync", "preset", SLOT(sync_preset), false,
       "Settings of rounds and inner optimizer to start from; explicit keys win"},
      {"sync",
       "method",
       [](RunFile& run) -> Slot { return Choice(run.spec.sync.method); },
       true,
       "How peers train together: rounds of local steps, or one common step a round",
       0,
       0,
       {"diloco", "allreduce"}},
      {"sync", "exact", SLOT(spec.sync.exact), true,
       "allreduce: the weights are those of the one-process run, bit for bit, whoever comes and "
       "goes. Not given: true with codec fp32 and a fixed number of workers"},
      {"sync", "rounds", SLOT(spec.sync.rounds), true,
       "The run ends after this round (exact: after so many steps); 0 = without end", 0, 1e9},
      {"sync", "inner_steps", SLOT(spec.sync.inner_steps), true,
       "Inner steps of a full-speed worker in a round (H)", 1, 100000},
      {"sync",
       "outer",
       [](RunFile& run) -> Slot { return Choice(run.spec.sync.outer); },
       true,
       "Outer optimizer",
       0,
       0,
       {"sgd", "nesterov", "heavy_ball"}},
      {"sync", "outer_lr", SLOT(spec.sync.outer_lr), true, "Outer learning rate", 0, 10},
      {"sync", "outer_momentum", SLOT(spec.sync.outer_momentum), true, "Outer momentum", 0, 0.9999},
      {"sync",
       "codec",
       SLOT(spec.sync.codec),
       true,
       "How contributions travel",
       0,
       0,
       {"fp32", "bf16", "int8"}},
      {"sync", "workers", [](RunFile& run) -> Slot { return WorkersSlot{&run.spec.sync.workers}; },
       true, "Logical workers: \"per-peer\", or a fixed number", 0, 1024},
      {"sync",
       "quorum",
       [](RunFile& run) -> Slot { return Choice(run.spec.sync.quorum); },
       true,
       "Votes that make a record: majority survives crashes, two-thirds survives liars",
       0,
       0,
       {"majority", "two-thirds"}},
      {"sync",
       "inner_state",
       [](RunFile& run) -> Slot { return Choice(run.spec.sync.inner_state); },
       true,
       "A worker's moments after its host was away: kept if the host returns, or always zero",
       0,
       0,
       {"local", "reset"}},
      {"sync", "max_norm", SLOT(spec.sync.max_norm), true,
       "Largest norm of one contribution; above it is left out. 0 = no limit", 0, 1e12},
      {"sync", "tile_elements", SLOT(spec.sync.tile_elements), true,
       "Values of a tile, a multiple of 256", 256, 65536},
      {"sync", "seed", SLOT(spec.sync.seed), true, "Seed of the first weights", 0, kBig},

      {"determinism", "deterministic", SLOT(spec.determinism.deterministic), true,
       "Use only operators that give the same bits every time"},
      {"determinism", "threads", SLOT(spec.determinism.threads), true,
       "Threads of tensor operators on every peer; 0 = each peer's own choice", 0, 256},

      {"local", "dir", SLOT(local.dir), false,
       "This peer's folder; \"\" = the first free ./loom-RUN-k"},
      {"local",
       "device",
       SLOT(local.device),
       false,
       "Where to compute",
       0,
       0,
       {"auto", "cpu", "cuda"}},
      {"local",
       "compute",
       SLOT(local.compute),
       false,
       "Number format of activations",
       0,
       0,
       {"fp32", "bf16"}},
      {"local", "checkpointing", SLOT(local.checkpointing), false,
       "Recompute activations in the backward pass: less memory, a third more time"},
      {"local", "threads", SLOT(local.threads), false,
       "Threads of tensor operators; 0 = half of the processors", 0, 256},
      {"local", "listen", SLOT(local.listen), false,
       "HOST:PORT to listen on; \"\" = chosen once and kept"},
      {"local", "announce", SLOT(local.announce), false,
       "HOST:PORT that others dial, when it is not the one listened on"},
      {"local", "max_up", [](RunFile& run) -> Slot { return SizeSlot{&run.local.max_up}; }, false,
       "Bytes a second to send at most, e.g. \"2M\" (16k or more); 0 = no limit", 0, kBig},
      {"local", "max_down", [](RunFile& run) -> Slot { return SizeSlot{&run.local.max_down}; },
       false, "Bytes a second to receive at most (16k or more); 0 = no limit", 0, kBig},
      {"local", "checkpoint_every", SLOT(local.checkpoint_every), false,
       "Rounds between two checkpoints", 1, 100000},
      {"local", "keep_checkpoints", SLOT(local.keep_checkpoints), false, "Checkpoints kept on disk",
       1, 1000},
  };
  return kKeys;
}
#undef SLOT

template <class... Fs>
struct Overload : Fs... {
  using Fs::operator()...;
};
template <class... Fs>
Overload(Fs...) -> Overload<Fs...>;

/// The slot of a const run: the table hands out pointers to non-const, which are only read here.
Slot ReadSlot(const Key& key, const RunFile& run) { return key.slot(const_cast<RunFile&>(run)); }

Status OutOfRange(const Key& key, const std::string& value) {
  return MakeError(
      Code::kInvalid,
      fmt::format("{}.{} = {} is outside of {}", key.table, key.name, value, FormatLimits(key)),
      std::string(kKeysHint));
}

}  // namespace

std::span<const Key> Keys() { return Table(); }

bool Key::Amendable() const {
  if (table == "sync") {
    return name == "rounds" || name == "inner_steps" || name.starts_with("outer") ||
           name == "inner_state" || name == "max_norm";
  }
  return table == "optim" && name != "optimizer" && name != "batch" && name != "accumulation";
}

std::vector<std::string_view> TableNames() {
  return {"model", "tune", "data", "optim", "sync", "determinism", "local"};
}

std::string_view TableText(std::string_view table) {
  if (table == "model") return "The transformer that is trained.";
  if (table == "tune")
    return "What of a model that a run starts from is trained; leave it out for all of it.";
  if (table == "data") return "What it learns from.";
  if (table == "optim") return "The inner optimizer of every worker.";
  if (table == "sync") return "How peers train together.";
  if (table == "determinism") return "What must be equal so that results repeat bit for bit.";
  return "This machine's own settings; other peers do not see them.";
}

std::string FormatValue(const Key& key, const RunFile& run) {
  return std::visit(Overload{[](const bool* v) { return std::string(*v ? "true" : "false"); },
                             [](const std::uint32_t* v) { return fmt::format("{}", *v); },
                             [](const std::uint64_t* v) { return fmt::format("{}", *v); },
                             [](const float* v) { return fmt::format("{}", *v); },
                             [](const double* v) { return fmt::format("{}", *v); },
                             [](const std::string* v) { return TomlQuote(*v); },
                             [](const std::vector<std::string>* v) {
                               std::string out = "[";
                               for (const auto& item : *v)
                                 out += (out.size() > 1 ? ", " : "") + TomlQuote(item);
                               return out + "]";
                             },
                             [](const std::vector<double>* v) {
                               return fmt::format("[{}]", fmt::join(*v, ", "));
                             },
                             [](const SizeSlot& v) { return fmt::format("{}", *v.value); },
                             [&](const ChoiceSlot& v) { return TomlQuote(key.choices[*v.value]); },
                             [](const WorkersSlot& v) {
                               return *v.value == 0 ? "\"per-peer\"" : fmt::format("{}", *v.value);
                             }},
                    ReadSlot(key, run));
}

std::string FormatLimits(const Key& key) {
  if (!key.choices.empty()) {
    std::string out;
    for (const auto choice : key.choices)
      out += fmt::format("{}{}", out.empty() ? "" : " | ", choice);
    return out;
  }
  if (key.min == 0 && key.max == 0) return "";
  return fmt::format("{} .. {}", key.min, key.max);
}

bool Key::Belongs(agreed::InnerKind kind) const {
  return of.empty() || std::ranges::find(of, kind) != of.end();
}

std::string FormatOptimizers(const Key& key) {
  std::string out;
  for (const InnerKind kind : key.of)
    out += fmt::format("{}{}", out.empty() ? "" : ", ", agreed::InnerKindName(kind));
  return out;
}

Status CheckValue(const Key& key, const RunFile& run) {
  const auto in_range = [&](double value) { return value >= key.min && value <= key.max; };
  const Slot slot = ReadSlot(key, run);
  const bool good = std::visit(
      Overload{[](const bool*) { return true; },
               [](const std::vector<std::string>*) { return true; },
               [&](const std::vector<double>* v) { return std::ranges::all_of(*v, in_range); },
               [&](const std::uint32_t* v) { return in_range(*v); },
               [&](const std::uint64_t* v) { return in_range(static_cast<double>(*v)); },
               // A float is compared as it was written: 0.1F is a little more than 0.1.
               [&](const float* v) {
                 return std::isfinite(*v) && *v >= static_cast<float>(key.min) &&
                        *v <= static_cast<float>(key.max);
               },
               [&](const double* v) { return std::isfinite(*v) && in_range(*v); },
               [&](const std::string* v) {
                 bool known = key.choices.empty();
                 for (const auto choice : key.choices) known = known || *v == choice;
                 return known;
               },
               [&](const SizeSlot& v) { return in_range(static_cast<double>(*v.value)); },
               [&](const ChoiceSlot& v) { return *v.value < key.choices.size(); },
               [&](const WorkersSlot& v) { return in_range(*v.value); }},
      slot);
  return good ? Status() : OutOfRange(key, FormatValue(key, run));
}

Result<std::uint64_t> ParseSize(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  double scale = 0;
  if (unit.empty()) scale = 1;
  if (unit == "k" || unit == "K") scale = 1e3;
  if (unit == "M") scale = 1e6;
  if (unit == "G") scale = 1e9;
  if (unit == "T") scale = 1e12;
  if (error != std::errc() || scale == 0 || !(value >= 0) || value * scale > kBig) {
    return MakeError(Code::kInvalid, fmt::format("'{}' is not a size", text.substr(0, 40)),
                     "write a number with k, M, G or T, e.g. 2M for 2 million bytes");
  }
  return static_cast<std::uint64_t>(value * scale);
}

}  // namespace loom::train
