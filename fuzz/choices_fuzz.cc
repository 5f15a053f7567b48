// A line of multiple-choice questions: what is accepted has an answer among its choices, and each
// choice is encoded behind the query.
#include "base/utf8.h"
#include "data/choices.h"
#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace loom;
  const auto question = data::ParseQuestion(fuzz::Text(data, size));
  if (!question.ok()) {
    fuzz::ExpectGoodError(question.error());
    return 0;
  }
  const data::Question& asked = question.value();
  fuzz::Expect(asked.answer < asked.choices.size(), "the answer is one of the choices");
  const auto bytes = data::Tokenizer::Bytes();
  for (const std::string& choice : asked.choices) {
    const auto encoded = data::EncodeChoice(*bytes, asked.query, choice);
    if (!encoded.ok()) {
      fuzz::ExpectGoodError(encoded.error());
      continue;
    }
    fuzz::Expect(bytes->Decode(encoded.value().ids) == asked.query + choice, "no text is lost");
    fuzz::Expect(encoded.value().first > 0 && encoded.value().first < encoded.value().ids.size(),
                 "there are tokens before and in the choice");
  }
  fuzz::Accept();
  return 0;
}

void loom::fuzz::MakeSeeds(Seeds& seeds) {
  seeds.Add("two", R"({"query": "The sky is ", "choices": ["blue", "a door"], "answer": 0})");
  seeds.AddRefused("answer",
                   R"({"query": "The sky is", "choices": [" blue", " red"], "answer": 2})");
}
