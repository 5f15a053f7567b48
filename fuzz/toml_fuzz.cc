// TOML from people, and the quoting of strings that Loom writes into it.
#include "base/toml.h"

#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace loom;
  const std::string_view text = fuzz::Text(data, size);
  const Result<TomlTable> table = ParseToml(text, "fuzz.toml");
  if (!table.ok()) {
    fuzz::ExpectGoodError(table.error());
    return 0;
  }
  // An accepted document is valid UTF-8, so it must survive being quoted.
  const Result<TomlTable> quoted = ParseToml("key = " + TomlQuote(text) + "\n", "quoted.toml");
  fuzz::Expect(quoted.ok() && quoted.value().size() == 1, "a quoted text is one key");
  const auto* back = std::get_if<std::string>(&quoted.value().front().second.value);
  fuzz::Expect(back != nullptr && *back == text, "a quoted text comes back");
  fuzz::Accept();
  return 0;
}

void loom::fuzz::MakeSeeds(Seeds& seeds) {
  seeds.Add(
      "kinds",
      "a = 1\nb = -2.5e3\nc = true\nd = \"text\"\n[table]\nlist = [\"x\", \"y\"]\ninf = inf\n");
  seeds.Add("strings", "a = 'raw'\nb = \"\"\"\nmore\nlines\"\"\"\nc = \"\\u00e9\\t\"\n");
  seeds.AddRefused("not-ascii-after-stray-quote", "a = 1\n\" \xc3\xa9\n");
}
