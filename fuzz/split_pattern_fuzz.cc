// A split pattern of a tokenizer.json and a text, with a zero byte between: every pattern is
// refused or translated to one that PCRE2 takes, and matches come in order, inside the text.
#include "base/utf8.h"
#include "fuzz/fuzz.h"
#include "text/pre_tokenizer.h"
#include "text/split_pattern.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace loom;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::string_view pattern = input.substr(0, input.find('\0'));
  const std::string text =
      ReplaceInvalidUtf8(input.substr(std::min(pattern.size() + 1, input.size())));
  const auto compiled = text::SplitPattern::Compile(pattern);
  if (!compiled.ok()) {
    fuzz::ExpectGoodError(compiled.error());
    return 0;
  }
  std::size_t last = 0;
  const Status done = compiled->ForEach(text, [&](std::size_t begin, std::size_t end) {
    fuzz::Expect(begin >= last && end > begin && end <= text.size(), "matches are in order");
    last = end;
  });
  if (!done.ok()) fuzz::ExpectGoodError(done.error());
  fuzz::Accept();
  return 0;
}

void loom::fuzz::MakeSeeds(Seeds& seeds) {
  const std::string text = std::string(1, '\0') + " I'll pay 42 caf\xc3\xa9s\n\n now";
  seeds.Add("gpt2", std::string(text::kGpt2Pattern) + text);
  seeds.Add("llama3", std::string(text::kLlama3Pattern) + text);
  seeds.Add("letters", "[^\\p{L}\\s]|\\P{N}+?$" + text);
}
