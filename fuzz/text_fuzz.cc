// Text and short values at the edges: UTF-8 made fit to be shown, a peer's text made fit for a log,
// hex, and the names of choices.
#include "agreed/isa.h"
#include "agreed/outer.h"
#include "agreed/schedule.h"
#include "base/nearest.h"
#include "base/utf8.h"
#include "codec/codec.h"
#include "crypto/keys.h"
#include "fuzz/fuzz.h"
#include "net/hello.h"
#include "train/spec_keys.h"

namespace loom::fuzz {
namespace {

template <class T>
void Refused(const Result<T>& result) {
  if (!result.ok()) ExpectGoodError(result.error());
}

void Utf8(std::string_view text) {
  const std::string shown = ReplaceInvalidUtf8(text);
  Expect(FindInvalidUtf8(shown) == std::string::npos, "what is shown is valid UTF-8");
  const bool valid = FindInvalidUtf8(text) == std::string::npos;
  Expect(valid == (shown == text), "only invalid text is changed");
  if (!valid) return;
  std::uint64_t characters = 0;
  std::string back;
  for (std::size_t at = 0; at < text.size(); ++characters) {
    const Utf8Step step = DecodeUtf8(text, at);
    Expect(step.valid && step.size > 0, "every step of valid text is valid");
    AppendUtf8(step.code_point, back);
    ExpectPrintable(DescribeCodePoint(step.code_point), "a described character");
    at += step.size;
  }
  Expect(back == text, "characters give their text back");
  Expect(characters == CountCodePoints(text), "characters are counted");
}

}  // namespace
}  // namespace loom::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace loom;
  const std::string_view text = fuzz::Text(data, size);
  fuzz::Utf8(text);
  fuzz::ExpectPrintable(net::CleanText(text), "a cleaned text");
  const auto hash = Hash::FromHex(text);
  fuzz::Refused(hash);
  if (hash.ok()) fuzz::Expect(hash.value().Hex().size() == text.size(), "hex keeps its size");
  fuzz::Refused(crypto::PublicKey::FromHex(text));
  fuzz::Refused(crypto::PublicKey::FromBytes(AsBytes(text)));
  fuzz::Refused(crypto::SigningKey::FromSeedBytes(AsBytes(text)));
  fuzz::Refused(agreed::ParseIsa(text));
  fuzz::Refused(agreed::ParseOuterKind(text));
  fuzz::Refused(agreed::ParseScheduleKind(text));
  fuzz::Refused(agreed::ParseDecayShape(text));
  fuzz::Refused(codec::ParseCodec(text));
  const auto bytes = train::ParseSize(text);
  fuzz::Refused(bytes);
  const std::vector<std::string_view> words = {"rounds", "batch", "context"};
  (void)Nearest(text, words);
  fuzz::Accept();
  return 0;
}

void loom::fuzz::MakeSeeds(Seeds& seeds) {
  seeds.Add("utf8", "Emma \xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80");
  seeds.Add("not-utf8", "a\xc3(\xed\xa0\x80\xf4\x90\x80\x80\xff");
  seeds.Add("hash", std::string(64, 'a'));
  seeds.Add("size", "1.5G");
  seeds.Add("word", "nesterov");
}
