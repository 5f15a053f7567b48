// The key table of run.toml: one row a key, beside nothing else that would have to be kept in step.
// Parsing, range checks, nearest-key hints, the file `loom init` writes, the canonical spec and the
// reference page all walk this table.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "train/spec.h"

namespace loom::train {

/// A byte count that people may write as "2M" (powers of 1000).
struct SizeSlot {
  std::uint64_t* value;
};
/// An enumeration; the value is the index into Key::choices.
struct ChoiceSlot {
  std::uint8_t* value;
};
/// A number, or the word "per-peer" for 0.
struct WorkersSlot {
  std::uint32_t* value;
};

/// Where a key's value lives.
using Slot = std::variant<bool*, std::uint32_t*, std::uint64_t*, float*, double*, std::string*,
                          std::vector<std::string>*, std::vector<double>*, SizeSlot, ChoiceSlot,
                          WorkersSlot>;

struct Key {
  std::string_view table;
  std::string_view name;
  Slot (*slot)(RunFile&);
  bool agreed;            ///< part of the canonical spec
  std::string_view text;  ///< one sentence for people, unit included
  double min = 0;         ///< numbers only, inclusive
  double max = 0;
  std::vector<std::string_view> choices = {};  ///< words that the key takes; empty = any
  /// Whether a living run can change it: what is on disk and on its way fits before and after.
  bool Amendable() const;
  std::vector<agreed::InnerKind> of = {};  ///< inner optimizers that have it; empty = all
  /// Stands in the canonical spec only with another value than the default, so that runs which
  /// began before there was such a key keep their hash.
  bool optional = false;

  bool Belongs(agreed::InnerKind kind) const;
};

inline constexpr std::string_view kKeysHint = "`loom init --keys` lists every key with its limits";

/// All keys, grouped by table in the order of the file.
std::span<const Key> Keys();
/// Heading comment of a table, by name.
std::string_view TableText(std::string_view table);
std::vector<std::string_view> TableNames();

/// The value as it stands in TOML and in the canonical spec.
std::string FormatValue(const Key& key, const RunFile& run);
/// "1 .. 512", "a | b", or "" when anything goes.
std::string FormatLimits(const Key& key);
/// "adamw, muon": the optimizers of Key::of.
std::string FormatOptimizers(const Key& key);
/// Checks range and choices of the value that the slot holds; the error names value and limit.
Status CheckValue(const Key& key, const RunFile& run);
/// Bytes from "2M", "512k", "1.5G" or "1000".
Result<std::uint64_t> ParseSize(std::string_view text);

}  // namespace loom::train
