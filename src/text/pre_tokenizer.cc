#include "text/pre_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/utf8.h"
#include "text/json_parts.h"
#include "text/unicode.h"

namespace loom::text {
namespace {

/// A run of bytes, and whether it is a delimiter.
struct Span {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool matched = false;
};

/// The bytes between matches become spans of their own.
class SpanBuilder {
 public:
  explicit SpanBuilder(std::vector<Span>& spans) : spans_(spans) { spans_.clear(); }
  void Match(std::size_t begin, std::size_t end) {
    if (begin > last_) spans_.push_back({last_, begin, false});
    spans_.push_back({begin, end, true});
    last_ = end;
  }
  void End(std::size_t size) {
    if (size > last_) spans_.push_back({last_, size, false});
  }

 private:
  std::vector<Span>& spans_;
  std::size_t last_ = 0;
};

void MergeWithPrevious(std::vector<Span>& spans) {
  std::vector<Span> merged;
  bool previous = false;
  for (const Span& span : spans) {
    if (span.matched && !previous && !merged.empty()) {
      merged.back().end = span.end;
    } else {
      merged.push_back(span);
    }
    previous = span.matched;
  }
  spans = std::move(merged);
}

void MergeWithNext(std::vector<Span>& spans) {
  std::vector<Span> merged;
  bool next = false;
  for (std::size_t i = spans.size(); i-- > 0;) {
    if (spans[i].matched && !next && !merged.empty()) {
      merged.back().begin = spans[i].begin;
    } else {
      merged.push_back(spans[i]);
    }
    next = spans[i].matched;
  }
  spans.assign(merged.rbegin(), merged.rend());
}

void MergeAlike(std::vector<Span>& spans) {
  std::vector<Span> merged;
  for (const Span& span : spans) {
    if (!merged.empty() && merged.back().matched == span.matched) {
      merged.back().end = span.end;
    } else {
      merged.push_back(span);
    }
  }
  spans = std::move(merged);
}

void Apply(SplitBehavior behavior, std::vector<Span>& spans) {
  switch (behavior) {
    case SplitBehavior::kIsolated:
      return;
    case SplitBehavior::kRemoved:
      std::erase_if(spans, [](const Span& span) { return span.matched; });
      return;
    case SplitBehavior::kMergedWithPrevious:
      return MergeWithPrevious(spans);
    case SplitBehavior::kMergedWithNext:
      return MergeWithNext(spans);
    case SplitBehavior::kContiguous:
      return MergeAlike(spans);
  }
}

Result<SplitBehavior> ReadBehavior(const json::Value& value) {
  constexpr std::pair<std::string_view, SplitBehavior> kNames[] = {
      {"Isolated", SplitBehavior::kIsolated},
      {"Removed", SplitBehavior::kRemoved},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext},
      {"Contiguous", SplitBehavior::kContiguous}};
  const std::string name = StringOf(value, "behavior");
  for (const auto& [known, behavior] : kNames) {
    if (name == known) return behavior;
  }
  return Refuse(fmt::format("pre_tokenizer: the behavior '{}' is unknown", name));
}

}  // namespace

Status PreTokenizer::ReadByteLevel(const json::Value& value, std::vector<Step>& steps) {
  LOOM_RETURN_IF_ERROR(CheckKeys(value, "pre_tokenizer ByteLevel",
                                 {"type", "add_prefix_space", "trim_offsets", "use_regex"}));
  LOOM_ASSIGN(const bool prefix, BoolOf(value, "add_prefix_space", true));
  LOOM_ASSIGN(const bool regex, BoolOf(value, "use_regex", true));
  if (prefix) steps.emplace_back(PrefixSpace{});
  if (regex) {
    LOOM_ASSIGN(SplitPattern pattern, SplitPattern::Compile(kGpt2Pattern));
    steps.emplace_back(Regex{std::move(pattern), SplitBehavior::kIsolated, false});
  }
  return {};
}

Status PreTokenizer::ReadSplit(const json::Value& value, std::vector<Step>& steps) {
  LOOM_RETURN_IF_ERROR(
      CheckKeys(value, "pre_tokenizer Split", {"type", "pattern", "behavior", "invert"}));
  LOOM_ASSIGN(const SplitBehavior behavior, ReadBehavior(value));
  LOOM_ASSIGN(const bool invert, BoolOf(value, "invert", false));
  const json::Value* pattern = value.Find("pattern");
  const std::string regex = pattern == nullptr ? "" : StringOf(*pattern, "Regex");
  const std::string literal = pattern == nullptr ? "" : StringOf(*pattern, "String");
  if (regex.empty() == literal.empty()) {
    return Refuse("pre_tokenizer Split: the pattern must be one Regex or one String");
  }
  if (!literal.empty()) {
    steps.emplace_back(Literal{literal, behavior, invert});
    return {};
  }
  auto compiled = SplitPattern::Compile(regex);
  if (!compiled) return std::move(compiled).error().Context("tokenizer.json");
  steps.emplace_back(Regex{std::move(*compiled), behavior, invert});
  return {};
}

Status PreTokenizer::Read(const json::Value& value, std::vector<Step>& steps, bool& byte_level) {
  if (byte_level) return Refuse("pre_tokenizer: nothing may follow ByteLevel");
  if (steps.size() >= kMaxSteps) {
    return Refuse(fmt::format("pre_tokenizer: more than {} steps", kMaxSteps));
  }
  const std::string type = StringOf(value, "type");
  if (type == "Sequence") {
    const json::Value* parts = value.Find("pretokenizers");
    if (parts == nullptr || parts->AsArray() == nullptr) {
      return Refuse("pre_tokenizer Sequence: no pretokenizers");
    }
    for (const json::Value& part : *parts->AsArray()) {
      if (StringOf(part, "type") == "Sequence") return Refuse("pre_tokenizer: nested Sequence");
      LOOM_RETURN_IF_ERROR(Read(part, steps, byte_level));
    }
    return {};
  }
  if (type == "ByteLevel") {
    byte_level = true;
    return ReadByteLevel(value, steps);
  }
  if (type == "Split") return ReadSplit(value, steps);
  if (type == "Digits") {
    LOOM_RETURN_IF_ERROR(CheckKeys(value, "pre_tokenizer Digits", {"type", "individual_digits"}));
    LOOM_ASSIGN(const bool individual, BoolOf(value, "individual_digits", false));
    steps.emplace_back(Numbers{individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous});
    return {};
  }
  return Refuse(fmt::format("the pre_tokenizer '{}' is not supported", type.substr(0, 40)));
}

Result<PreTokenizer> PreTokenizer::FromJson(const json::Value& value) {
  PreTokenizer made;
  bool byte_level = false;
  LOOM_RETURN_IF_ERROR(Read(value, made.steps_, byte_level));
  if (!byte_level) return Refuse("pre_tokenizer: BPE is supported with ByteLevel as the last step");
  return made;
}

bool PreTokenizer::adds_space() const {
  return std::any_of(steps_.begin(), steps_.end(),
                     [](const Step& step) { return std::holds_alternative<PrefixSpace>(step); });
}

Status PreTokenizer::Split(std::string_view text, std::deque<std::string>& made,
                           std::vector<std::string_view>& pieces) const {
  pieces.clear();
  if (text.empty()) return {};
  pieces.push_back(text);
  std::vector<std::string_view> before;
  std::vector<Span> spans;
  for (const Step& step : steps_) {
    before.swap(pieces);
    pieces.clear();
    for (const std::string_view piece : before) {
      if (std::holds_alternative<PrefixSpace>(step)) {
        pieces.push_back(piece.starts_with(' ') ? piece : made.emplace_back(" ").append(piece));
        continue;
      }
      SpanBuilder builder(spans);
      SplitBehavior behavior{};
      bool invert = false;
      if (const auto* regex = std::get_if<Regex>(&step)) {
        LOOM_RETURN_IF_ERROR(regex->pattern.ForEach(
            piece, [&](std::size_t begin, std::size_t end) { builder.Match(begin, end); }));
        behavior = regex->behavior;
        invert = regex->invert;
      } else if (const auto* literal = std::get_if<Literal>(&step)) {
        const std::size_t size = literal->delimiter.size();
        for (std::size_t at = piece.find(literal->delimiter); at != std::string_view::npos;
             at = piece.find(literal->delimiter, at + size)) {
          builder.Match(at, at + size);
        }
        behavior = literal->behavior;
        invert = literal->invert;
      } else if (const auto* numbers = std::get_if<Numbers>(&step)) {
        for (std::size_t at = 0; at < piece.size();) {
          const Utf8Step character = DecodeUtf8(piece, at);
          if (IsNumeric(character.code_point)) builder.Match(at, at + character.size);
          at += character.size;
        }
        behavior = numbers->behavior;
      }
      builder.End(piece.size());
      if (invert) {
        for (Span& span : spans) span.matched = !span.matched;
      }
      Apply(behavior, spans);
      for (const Span& span : spans) {
        if (span.end > span.begin)
          pieces.push_back(piece.substr(span.begin, span.end - span.begin));
      }
    }
  }
  return {};
}

}  // namespace loom::text
