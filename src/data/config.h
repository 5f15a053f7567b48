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
  /// One for each of paths, above 0: how often its samples are drawn beside those of the others.
  /// Empty: the paths are one text, one after the other.
  std::vector<double> weights;
  /// "auto" (by file ending), "txt" (a file is a document), "jsonl" (a line is a document, see
  /// jsonl_line.h), "nanogpt" or "llmc" (token ids, see token_file.h).
  std::string format = "auto";
  /// "bytes", "chars" (the characters of the corpus), or the path of a tokenizer.json of one of
  /// these kinds or of a byte-level BPE.
  std::string tokenizer = "bytes";
  /// How messages become text: "chatml", "llama3", "smollm", or "auto", by the tokenizer's special
  /// tokens.
  std::string chat = "auto";
  /// Of prompts and messages: "answers" (completions, turns of the assistant) or "all".
  std::string loss = "answers";
  /// Text put between two documents, but not behind messages, which end themselves. A loss is taken
  /// on it where one is taken on what it follows: so a completion learns to end.
  std::string separator = "\n\n";
  /// The last part of the corpus, counted in characters (of token files: in tokens), is the
  /// validation split; with weights the last part of each path. In [0, 0.5].
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
