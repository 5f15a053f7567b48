// Cutting a text into the pieces that BPE merges within: the pre_tokenizer of a tokenizer.json, as
// a sequence of steps each of which cuts every piece further.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "text/split_pattern.h"

namespace loom::text {

/// The pattern of GPT-2, which ByteLevel splits by.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
/// Those of Llama 3 and of Qwen2.
inline constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

/// What becomes of the matches of a delimiter.
enum class SplitBehavior : std::uint8_t {
  kIsolated,
  kRemoved,
  kMergedWithPrevious,
  kMergedWithNext,
  kContiguous,
};

/// Immutable and safe to share between threads.
class PreTokenizer {
 public:
  static constexpr std::size_t kMaxSteps = 16;

  /// From the value of `pre_tokenizer`; its last step must be ByteLevel. Errors name the kind or
  /// the setting that is not supported.
  static Result<PreTokenizer> FromJson(const json::Value& value);

  /// Whether a piece may get a space that the text does not have.
  bool adds_space() const;

  /// Views of `text`, or of strings put into `made` where a space was added; in order, none empty.
  /// Requires valid UTF-8.
  Status Split(std::string_view text, std::deque<std::string>& made,
               std::vector<std::string_view>& pieces) const;

 private:
  struct Regex {
    SplitPattern pattern;
    SplitBehavior behavior;
    bool invert;
  };
  struct Literal {
    std::string delimiter;
    SplitBehavior behavior;
    bool invert;
  };
  struct Numbers {  ///< each character of category N
    SplitBehavior behavior;
  };
  struct PrefixSpace {};
  using Step = std::variant<Regex, Literal, Numbers, PrefixSpace>;

  static Status Read(const json::Value& value, std::vector<Step>& steps, bool& byte_level);
  static Status ReadByteLevel(const json::Value& value, std::vector<Step>& steps);
  static Status ReadSplit(const json::Value& value, std::vector<Step>& steps);

  std::vector<Step> steps_;
};

}  // namespace loom::text
