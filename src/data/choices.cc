#include "data/choices.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "text/unicode.h"

namespace loom::data {
namespace {

Error Bad(std::string what) { return MakeError(Code::kInvalid, std::move(what)); }

}  // namespace

Result<Question> ParseQuestion(std::string_view line) {
  LOOM_ASSIGN(
      const auto value,
      json::Parse(line, {.max_bytes = line.size(), .max_depth = 32, .max_values = 1 << 16}));
  const json::Value* query = value.Find("query");
  const json::Value* choices = value.Find("choices");
  const json::Value* answer = value.Find("answer");
  if (query == nullptr || query->AsString() == nullptr || query->AsString()->empty()) {
    return Bad("no text 'query'");
  }
  if (choices == nullptr || choices->AsArray() == nullptr || choices->AsArray()->size() < 2 ||
      choices->AsArray()->size() > kMaxChoices) {
    return Bad(fmt::format("no list 'choices' of 2 to {} texts", kMaxChoices));
  }
  Question question;
  question.query = *query->AsString();
  question.choices.reserve(choices->AsArray()->size());
  for (const json::Value& choice : *choices->AsArray()) {
    if (choice.AsString() == nullptr || choice.AsString()->empty()) {
      return Bad(fmt::format("choice {} is no text", question.choices.size()));
    }
    question.choices.push_back(*choice.AsString());
  }
  if (answer == nullptr || answer->AsUnsigned() == nullptr ||
      *answer->AsUnsigned() >= question.choices.size()) {
    return Bad(fmt::format("'answer' is no index below {}", question.choices.size()));
  }
  question.answer = static_cast<std::size_t>(*answer->AsUnsigned());
  return question;
}

Result<Continuation> EncodeChoice(const Tokenizer& tokenizer, std::string_view query,
                                  std::string_view choice) {
  const std::string whole = std::string(query) + std::string(choice);
  LOOM_ASSIGN(const std::vector<std::int32_t> before,
              tokenizer.Encode(query.substr(0, text::TrailingWhitespace(query))));
  Continuation out;
  LOOM_ASSIGN(out.ids, tokenizer.Encode(whole));
  out.first = before.size();
  if (before.empty()) return Bad("the query has no token before the choice");
  if (out.first >= out.ids.size()) return Bad("the choice adds no token to the query");
  return out;
}

}  // namespace loom::data
