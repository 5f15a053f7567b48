// A line of a jsonl corpus: what is accepted is text that both tokenizers take and give back.
#include "base/utf8.h"
#include "data/corpus.h"
#include "data/tokenizer.h"
#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace loom;
  const Result<std::string> text = data::ParseJsonlText(fuzz::Text(data, size));
  if (!text.ok()) {
    fuzz::ExpectGoodError(text.error());
    return 0;
  }
  fuzz::Expect(!text.value().empty(), "an accepted line has text");
  fuzz::Expect(FindInvalidUtf8(text.value()) == std::string::npos, "text is valid UTF-8");
  const std::string_view texts[] = {text.value()};
  const auto chars = data::Tokenizer::TrainChars(texts);
  fuzz::Expect(chars.ok(), "valid text has a vocabulary");
  const auto ids = chars.value()->Encode(text.value());
  fuzz::Expect(ids.ok() && chars.value()->Decode(ids.value()) == text.value(), "chars round trip");
  fuzz::Accept();
  return 0;
}

void loom::fuzz::MakeSeeds(Seeds& seeds) {
  seeds.Add("text",
            R"({"id": 7, "text": "It is a truth universally acknowledged \u2014 \ud83d\ude00"})");
  seeds.AddRefused("no-text", R"({"id": 7})");
}
