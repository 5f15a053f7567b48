// What a run trains on: the [data] table of run.toml, one field per key.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace loom::data {

struct DataConfig {
  /// Files, folders and patterns (*, ?, [a-z]), as ListCorpus reads them; .gz and .zst are
  /// unpacked.
  std::vector<std::string> paths;
  /// "auto" (by file ending), "txt" (a file is a document) or "jsonl" (a line is a document, its
  /// text under the key `text`).
  std::string format = "auto";
  /// "bytes", "chars" (the characters of the corpus), or the path of a tokenizer.json of one of
  /// these kinds or of a byte-level BPE.
  std::string tokenizer = "bytes";
  /// Text put between two documents; it is counted and trained on like any other text.
  std::string separator = "\n\n";
  /// The last part of the corpus, counted in characters, is the validation split; in [0, 0.5].
  double val_fraction = 0.1;
  /// Seed of the order in which samples are drawn.
  std::uint64_t seed = 1;
  /// Leave out lines and files that cannot be read as text, instead of stopping at the first.
  bool skip_bad = false;
  /// The longest jsonl line in bytes.
  std::uint64_t max_line_bytes = 16 << 20;
  /// The most tokens in one shard file.
  std::uint64_t shard_tokens = 16 << 20;
};

}  // namespace loom::data
