#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/split_pattern.h"

#include <fmt/format.h>
#include <pcre2.h>

#include <algorithm>
#include <array>

#include "text/unicode_tables.h"

namespace loom::text {
namespace {

// PCRE2 counts U+180E as `\s`, Unicode since 6.3 does not.
constexpr std::string_view kSpaces =
    R"(\x09-\x0d\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::uint32_t kMatchLimit = 10'000'000;
constexpr std::array kCategories{"L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc", "Me",
                                 "N",  "Nd", "Nl", "No", "P",  "Pc", "Pd", "Ps", "Pe", "Pi",
                                 "Pf", "Po", "S",  "Sm", "Sc", "Sk", "So", "Z",  "Zs", "Zl",
                                 "Zp", "C",  "Cc", "Cf", "Cs", "Co", "Cn"};

Error Refused(std::string_view what, std::size_t at) {
  return MakeError(
      Code::kInvalid,
      fmt::format("the split pattern has {} at byte {}, which is not supported", what, at),
      "supported is what the patterns of GPT-2, Llama 3, Qwen2 and SmolLM are made of");
}

/// What PCRE2's own table may lack of a category, as ranges of a class.
std::string NewCharacters(std::string_view category) {
  std::string ranges;
  for (const CategoryRun& run : kNewCharacters) {
    if (!std::string_view(run.category).starts_with(category)) continue;
    ranges += fmt::format("\\x{{{:x}}}-\\x{{{:x}}}", run.first, run.last);
  }
  return ranges;
}

/// Walks over a pattern once; every construct is copied, rewritten or refused.
class Translator {
 public:
  explicit Translator(std::string_view pattern) : in_(pattern) {}

  Result<std::string> Run() {
    while (at_ < in_.size()) {
      LOOM_RETURN_IF_ERROR(in_class_ ? InClass() : Outside());
    }
    if (in_class_) return Refused("a class that does not end", in_.size());
    return std::move(out_);
  }

 private:
  bool Next(std::string_view word) const { return in_.substr(at_).starts_with(word); }
  void Copy(std::size_t n) {
    out_ += in_.substr(at_, n);
    at_ += n;
  }

  Status Outside() {
    if (in_[at_] == '\\') return Escape();
    if (in_[at_] == '[') {
      in_class_ = true;
      Copy(1);
      if (Next("^")) Copy(1);
      if (Next("]")) return Refused("']' as the first of a class", at_);
      return {};
    }
    if (Next("(?")) {
      for (const std::string_view group :
           {"(?:", "(?!", "(?=", "(?<!", "(?<=", "(?>", "(?i:", "(?i)"}) {
        if (!Next(group)) continue;
        Copy(group.size());
        return {};
      }
      return Refused(fmt::format("the group '{}'", in_.substr(at_, 4)), at_);
    }
    if (Next("(*")) return Refused("'(*'", at_);
    if (Next("}+")) return Refused("'}+'", at_);  // possessive here, repeated there
    Copy(1);
    return {};
  }

  Status InClass() {
    if (in_[at_] == '\\') return Escape();
    if (in_[at_] == '[' || Next("&&")) {
      return Refused(fmt::format("'{}' inside a class", in_.substr(at_, 2)), at_);
    }
    if (in_[at_] == ']') in_class_ = false;
    Copy(1);
    return {};
  }

  Status Escape() {
    if (at_ + 1 >= in_.size()) return Refused("a '\\' at its end", at_);
    const char c = in_[at_ + 1];
    switch (c) {
      case 's':
        out_ += in_class_ ? std::string(kSpaces) : fmt::format("[{}]", kSpaces);
        at_ += 2;
        return {};
      case 'S':
        if (in_class_) return Refused("'\\S' inside a class", at_);
        out_ += fmt::format("[^{}]", kSpaces);
        at_ += 2;
        return {};
      case 'v':
        out_ += "\\x0b";
        at_ += 2;
        return {};
      case 'd':
      case 'D':
      case 'r':
      case 'n':
      case 't':
      case 'f':
        Copy(2);
        return {};
      case 'p':
      case 'P': {
        const std::size_t end = in_.find('}', at_);
        const std::string_view name = end == std::string_view::npos || in_[at_ + 2] != '{'
                                          ? std::string_view()
                                          : in_.substr(at_ + 3, end - at_ - 3);
        if (std::find(kCategories.begin(), kCategories.end(), name) == kCategories.end()) {
          return Refused(fmt::format("the property '{}'", in_.substr(at_, 12)), at_);
        }
        const std::string all = fmt::format("\\p{{{}}}{}", name, NewCharacters(name));
        if (c == 'P' && in_class_) return Refused("'\\P' inside a class", at_);
        out_ += in_class_ ? all : fmt::format("[{}{}]", c == 'P' ? "^" : "", all);
        at_ = end + 1;
        return {};
      }
      default:
        break;
    }
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (letter || static_cast<unsigned char>(c) >= 0x80) {
      return Refused(fmt::format("'\\{}'", c), at_);
    }
    Copy(2);
    return {};
  }

  std::string_view in_;
  std::size_t at_ = 0;
  bool in_class_ = false;
  std::string out_;
};

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct FreeMatch {
  void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
};
struct FreeContext {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
struct FreeCompile {
  void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
};

std::string MessageOf(int code) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

}  // namespace

struct SplitPattern::State {
  std::unique_ptr<pcre2_code, FreeCode> code;
  std::unique_ptr<pcre2_match_context, FreeContext> context;
};

SplitPattern::SplitPattern(std::unique_ptr<State> state) : state_(std::move(state)) {}
SplitPattern::SplitPattern(SplitPattern&&) noexcept = default;
SplitPattern& SplitPattern::operator=(SplitPattern&&) noexcept = default;
SplitPattern::~SplitPattern() = default;

Result<std::string> SplitPattern::Translate(std::string_view pattern) {
  if (pattern.size() > kMaxPattern) {
    return MakeError(Code::kLimit, fmt::format("a split pattern of {} bytes, allowed are {}",
                                               pattern.size(), kMaxPattern));
  }
  return Translator(pattern).Run();
}

Result<SplitPattern> SplitPattern::Compile(std::string_view pattern) {
  LOOM_ASSIGN(const std::string translated, Translate(pattern));
  const std::unique_ptr<pcre2_compile_context, FreeCompile> compile(
      pcre2_compile_context_create(nullptr));
  auto state = std::make_unique<State>();
  state->context.reset(pcre2_match_context_create(nullptr));
  if (compile == nullptr || state->context == nullptr) {
    return MakeError(Code::kInternal, "PCRE2 has no memory");
  }
  pcre2_set_newline(compile.get(), PCRE2_NEWLINE_LF);
  pcre2_set_match_limit(state->context.get(), kMatchLimit);
  int error = 0;
  PCRE2_SIZE where = 0;
  // Ruby's ^ and $ are those of lines.
  state->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()),
                                  translated.size(), PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE,
                                  &error, &where, compile.get()));
  if (state->code == nullptr) {
    return MakeError(Code::kInvalid, fmt::format("the split pattern '{}': {}",
                                                 pattern.substr(0, 60), MessageOf(error)));
  }
  // A system may refuse memory that is code; the interpreter gives the same matches, slower.
  (void)pcre2_jit_compile(state->code.get(), PCRE2_JIT_COMPLETE);
  return SplitPattern(std::move(state));
}

Status SplitPattern::ForEach(std::string_view text,
                             const std::function<void(std::size_t, std::size_t)>& found) const {
  const std::unique_ptr<pcre2_match_data, FreeMatch> match(
      pcre2_match_data_create_from_pattern(state_->code.get(), nullptr));
  if (match == nullptr) return MakeError(Code::kInternal, "PCRE2 has no memory");
  const PCRE2_SIZE* const span = pcre2_get_ovector_pointer(match.get());
  std::size_t at = 0;
  while (at < text.size()) {
    const auto run = [&](std::uint32_t options) {
      return pcre2_match(state_->code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                         at, PCRE2_NO_UTF_CHECK | options, match.get(), state_->context.get());
    };
    int code = run(0);
    if (code == PCRE2_ERROR_JIT_STACKLIMIT) code = run(PCRE2_NO_JIT);
    if (code == PCRE2_ERROR_NOMATCH) return {};
    if (code < 0) {
      return MakeError(Code::kLimit,
                       fmt::format("splitting the text at byte {}: {}", at, MessageOf(code)));
    }
    if (span[1] > span[0]) {
      found(span[0], span[1]);
      at = span[1];
      continue;
    }
    at = span[0] + 1;  // an empty match: on behind the next character
    while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) ++at;
  }
  return {};
}

}  // namespace loom::text
