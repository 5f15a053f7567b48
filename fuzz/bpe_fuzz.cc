// A published tokenizer.json and a text through it: what is accepted encodes any valid text, its
// ids are of its vocabulary, and where it says that it is lossless the text comes back. The
// tokenizer with a u16 length, then the text.
#include "text/bpe_tokenizer.h"

#include "base/json.h"
#include "base/utf8.h"
#include "fuzz/fuzz.h"
#include "text/bpe_trainer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace loom;
  fuzz::Input in(data, size);
  const auto root = json::Parse(AsText(in.Chunk()), {.max_bytes = 1 << 16});
  if (!root.ok()) return 0;
  const auto tokenizer = text::BpeTokenizer::FromJson(root.value());
  if (!tokenizer.ok()) {
    fuzz::ExpectGoodError(tokenizer.error());
    return 0;
  }
  const std::string_view text = AsText(in.Rest());
  text::Lost lost;
  const auto ids = tokenizer.value()->Encode(text, text::SpecialTokens::kNone, &lost);
  (void)tokenizer.value()->Encode(text, text::SpecialTokens::kAdd);
  if (!ids.ok()) {
    fuzz::ExpectGoodError(ids.error());
    return 0;
  }
  fuzz::Expect(FindInvalidUtf8(text) == std::string::npos, "only valid text is encoded");
  for (const std::int32_t id : ids.value()) {
    fuzz::Expect(id >= 0 && static_cast<std::uint32_t>(id) < tokenizer.value()->vocab_size(),
                 "every id is of the vocabulary");
  }
  const std::string back = tokenizer.value()->Decode(ids.value());
  if (tokenizer.value()->lossless()) {
    fuzz::Expect(lost.bytes == 0, "a lossless tokenizer spells every byte");
    fuzz::Expect(back == text, "a lossless tokenizer gives the text back");
  }
  fuzz::Accept();
  return 0;
}

void loom::fuzz::MakeSeeds(Seeds& seeds) {
  const std::string_view words = "the cat and the hat, the bat and the rat; 12 mats 345 \xc3\xa9\n";
  text::BpeTrainOptions options;
  options.vocab_size = 280;
  options.special_tokens = {"<|end|>"};
  const auto made = text::TrainBpe(
      [&](const text::TakeText& take) {
        take(std::string(words));
        return Status{};
      },
      options);
  Expect(made.ok(), "a seed can be trained");
  seeds.Add("gpt2", Script().Chunk(AsBytes(made.value())).Raw(AsBytes(words)));
  seeds.Add("special",
            Script().Chunk(AsBytes(made.value())).Raw(AsBytes("the<|end|> cat  <|end|>\n")));
  seeds.Add("small", Script()
                         .Chunk(AsBytes(
                             R"({"version": "1.0", "added_tokens": [], "normalizer": null,
 "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
 "post_processor": null, "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
 "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
 "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
 "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]}})"))
                         .Raw(AsBytes("abba")));
}
