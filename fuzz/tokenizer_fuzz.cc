// tokenizer.json from a Hugging Face folder: what is accepted is written back in a form that is
// accepted and stable, encodes any text into ids that it has, and decodes every one of its ids (of
// a BPE those that are no gaps).
#include "data/tokenizer.h"

#include "fuzz/fuzz.h"
#include "text/bpe_trainer.h"
#include "text/pre_tokenizer.h"

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
    const bool gap = first.value()->Decode(one).empty();
    fuzz::Expect(!gap || first.value()->kind() == data::TokenizerKind::kBpe,
                 "every id decodes to something");
  }
  const auto ids =
      first.value()->EncodeWhole(" It's caf\xc3\xa9 42\n\n e\xcc\x81<s> \xf0\x9f\x98\x80");
  if (!ids.ok()) fuzz::ExpectGoodError(ids.error());
  for (const std::int32_t id : ids.ok() ? *ids : std::vector<std::int32_t>{}) {
    fuzz::Expect(id >= 0 && static_cast<std::uint32_t>(id) < vocab, "an id of the vocabulary");
  }
  fuzz::Accept();
  return 0;
}

void loom::fuzz::MakeSeeds(Seeds& seeds) {
  const std::string_view texts[] = {"Emma \n\xc3\xa9\xf0\x9f\x98\x80"};
  seeds.Add("chars.json", data::Tokenizer::TrainChars(texts).value()->ToJson());
  seeds.Add("bytes.json", data::Tokenizer::Bytes()->ToJson());
  text::BpeTrainOptions options;
  options.vocab_size = 262;
  options.special_tokens = {"<s>"};
  options.pattern = text::kQwen2Pattern;
  const auto bpe = text::TrainBpe(
      [](const text::TakeText& take) -> Status {
        take("the cat, the hat, the mat\n");
        return {};
      },
      options);
  seeds.Add("bpe.json", *bpe);
}
