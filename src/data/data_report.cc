// What `loom data check` prints of a corpus, and what a run says of it when it starts.
#include <fmt/format.h>

#include "base/json.h"
#include "base/utf8.h"
#include "data/dataset.h"

namespace loom::data {

std::string DataReport::Complaints() const {
  std::string out = corpus.Complaints();
  if (doubled_begins > 0) {
    out += fmt::format("{}{} begin-of-text tokens right behind another one",
                       out.empty() ? "" : ", ", doubled_begins);
  }
  return out;
}

std::string DataReport::ToText() const {
  std::string out = fmt::format("files      {}\ndocuments  {}\nbytes      {}\ncharacters {}\n",
                                corpus.files.size(), corpus.documents, corpus.bytes, characters);
  out += fmt::format("tokenizer  {}, vocabulary {}, chat template {}\n",
                     TokenizerKindName(tokenizer), vocab_size, chat == "auto" ? "none" : chat);
  out += fmt::format("tokens     {} train, {} validation", train_tokens, val_tokens);
  if (no_loss > 0) {
    const std::uint64_t all = train_tokens + val_tokens;
    out += fmt::format("; a loss on {} of them ({:.1f} %)", all - no_loss,
                       100 * static_cast<double>(all - no_loss) / static_cast<double>(all));
  }
  out += fmt::format("\nunigram entropy {:.4f} nats a token\n", unigram_entropy);
  out += fmt::format(
      "duplicates {}{}\ndoubled begin-of-text {}\nbad lines  {}\n", corpus.duplicates,
      corpus.duplicates == 0 ? "" : fmt::format(" (the first: {})", corpus.first_duplicate),
      doubled_begins, corpus.bad_count);
  for (std::size_t i = 0; i < kNumFaults; ++i) {
    if (corpus.faults[i] == 0) continue;
    out += fmt::format("  {} of them {}\n", corpus.faults[i], FaultName(static_cast<Fault>(i)));
  }
  out += corpus.BadLinesText();
  for (std::size_t i = 0; i < samples.size(); ++i) {
    out +=
        fmt::format("--- sample {}{} ---\n{}\n", i, no_loss > 0 ? ", no loss between ⟦ and ⟧" : "",
                    ReplaceInvalidUtf8(samples[i]));
  }
  return out;
}

std::string DataReport::ToJson() const {
  json::Array bad, decoded, files;
  for (const BadLine& line : corpus.bad_lines) {
    bad.emplace_back(
        json::Object{{"file", line.file}, {"line", line.line}, {"reason", line.reason}});
  }
  for (const std::string& sample : samples) decoded.emplace_back(sample);
  for (const std::string& file : corpus.files) files.emplace_back(file);
  const auto faults = [&](Fault fault) { return corpus.faults[static_cast<std::size_t>(fault)]; };
  return json::Dump(json::Object{{"files", std::move(files)},
                                 {"documents", corpus.documents},
                                 {"bytes", corpus.bytes},
                                 {"characters", characters},
                                 {"tokenizer", TokenizerKindName(tokenizer)},
                                 {"vocab", vocab_size},
                                 {"chat", chat},
                                 {"train_tokens", train_tokens},
                                 {"val_tokens", val_tokens},
                                 {"no_loss", no_loss},
                                 {"unigram_entropy", unigram_entropy},
                                 {"duplicates", corpus.duplicates},
                                 {"doubled_begins", doubled_begins},
                                 {"bad_count", corpus.bad_count},
                                 {"empty", faults(Fault::kEmpty)},
                                 {"over_long", faults(Fault::kTooLong)},
                                 {"not_utf8", faults(Fault::kNotUtf8)},
                                 {"malformed", faults(Fault::kMalformed)},
                                 {"bad_lines", std::move(bad)},
                                 {"samples", std::move(decoded)}});
}

}  // namespace loom::data
