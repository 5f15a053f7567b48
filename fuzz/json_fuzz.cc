// JSON from files and people: what is accepted can be written and read again as the same document.
#include "base/json.h"

#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace loom;
  const json::Limits limits{.max_bytes = 1 << 16, .max_depth = 16, .max_values = 1 << 14};
  const Result<json::Value> first = json::Parse(fuzz::Text(data, size), limits);
  if (!first.ok()) {
    fuzz::ExpectGoodError(first.error());
    return 0;
  }
  const std::string written = json::Dump(first.value());
  const Result<json::Value> second = json::Parse(written);
  fuzz::Expect(second.ok(), "what Dump writes can be parsed");
  fuzz::Expect(json::Dump(second.value()) == written, "writing is stable");
  fuzz::Accept();
  return 0;
}

void loom::fuzz::MakeSeeds(Seeds& seeds) {
  seeds.Add("kinds",
            R"({"a": [1, -2, 3.5e-7, true, false, null], "b": {"c": "\u00e9\ud83d\ude00\n"}})");
  seeds.Add("numbers", "[18446744073709551615, -9223372036854775808, 1e308, 0.1]");
  seeds.AddRefused("twice", R"({"a": 1, "a": 2})");
  seeds.AddRefused("deep", std::string(40, '[') + std::string(40, ']'));
}
