// tokenizer.json from a Hugging Face folder: what is accepted is written back in a form that is
// accepted and stable, and decodes every one of its ids.
#include "data/tokenizer.h"

#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace loom;
  const auto first = data::Tokenizer::FromJson(fuzz::View(data, size));
  if (!first.ok()) {
    fuzz::ExpectGoodError(first.error());
    return 0;
  }
  const std::string written = first.value()->ToJson();
  const auto second = data::Tokenizer::FromJson(AsBytes(written));
  fuzz::Expect(second.ok(), "what ToJson writes can be read");
  fuzz::Expect(second.value()->ToJson() == written, "writing is stable");
  const std::uint32_t vocab = first.value()->vocab_size();
  for (std::uint32_t id = 0; id < vocab && id < 1024; ++id) {
    const std::int32_t one[] = {static_cast<std::int32_t>(id)};
    fuzz::Expect(!first.value()->Decode(one).empty(), "every id decodes to something");
  }
  fuzz::Accept();
  return 0;
}

void loom::fuzz::MakeSeeds(Seeds& seeds) {
  const std::string_view texts[] = {"Emma \n\xc3\xa9\xf0\x9f\x98\x80"};
  seeds.Add("chars.json", data::Tokenizer::TrainChars(texts).value()->ToJson());
  seeds.Add("bytes.json", data::Tokenizer::Bytes()->ToJson());
}
