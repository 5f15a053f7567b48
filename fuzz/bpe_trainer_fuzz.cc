// Learning a byte-level BPE from any text: what comes of it is a tokenizer.json that reads back and
// gives every text that it learned from back. Three bytes of choices, then the text.
#include "text/bpe_trainer.h"

#include "base/json.h"
#include "fuzz/fuzz.h"
#include "text/bpe_tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace loom;
  fuzz::Input in(data, size);
  text::BpeTrainOptions options;
  options.vocab_size = 250U + in.Byte();
  options.min_frequency = in.Byte() % 4;
  const std::size_t how = in.Byte();
  if (how & 1U) options.special_tokens = {"<s>", "</s>"};
  if (how & 2U) options.pattern = R"(\p{N}{1,3}|[^\s\p{N}]+|\s+)";
  options.threads = how & 4U ? 2 : 1;
  const std::string text(AsText(in.Rest()));
  const auto made = text::TrainBpe(
      [&](const text::TakeText& take) {
        take(text);
        return Status{};
      },
      options);
  if (!made.ok()) {
    fuzz::ExpectGoodError(made.error());
    return 0;
  }
  const auto root = json::Parse(made.value());
  fuzz::Expect(root.ok(), "what is made is JSON");
  const auto tokenizer = text::BpeTokenizer::FromJson(root.value());
  fuzz::Expect(tokenizer.ok(), "what is made is a tokenizer",
               tokenizer.ok() ? "" : tokenizer.error().message);
  fuzz::Expect(tokenizer.value()->vocab_size() <= options.vocab_size, "it is no larger than asked");
  const auto ids = tokenizer.value()->Encode(text, text::SpecialTokens::kNone);
  fuzz::Expect(ids.ok() && tokenizer.value()->Decode(ids.value()) == text,
               "the text that it learned from comes back");
  fuzz::Accept();
  return 0;
}

void loom::fuzz::MakeSeeds(Seeds& seeds) {
  const std::string_view words = "low lower lowest new newer newest wide wider widest 2024\n";
  for (const std::size_t how : {0U, 3U, 4U})
    seeds.Add(fmt::format("words-{}", how),
              Script().Byte(30).Byte(0).Byte(how).Raw(AsBytes(words)));
  seeds.AddRefused("small-vocab", Script().Byte(0).Byte(0).Byte(0).Raw(AsBytes(words)).bytes());
}
