// The agreed settings as peers send them: the canonical text of a run, that of an owner's order,
// and the TOML that an owner writes for one. The input is three chunks: before, after, TOML.
#include "train/spec.h"

#include "fuzz/fuzz.h"
#include "fuzz/seeds/samples.h"

namespace loom::fuzz {
namespace {

bool Good(const Result<train::RunSpec>& spec) {
  if (!spec.ok()) ExpectGoodError(spec.error());
  return spec.ok();
}

}  // namespace
}  // namespace loom::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace loom;
  fuzz::Input in(data, size);
  const std::string_view before = AsText(in.Chunk());
  const std::string_view after = AsText(in.Chunk());
  const std::string_view toml = AsText(in.Chunk());
  const auto first = train::ParseCanonicalSpec(before);
  if (!fuzz::Good(first)) return 0;
  fuzz::Expect(train::CanonicalSpec(first.value()) == before, "an accepted spec is canonical");
  fuzz::Expect(train::ChangesOf(before, before).empty(), "a spec does not differ from itself");
  (void)train::ChangesOf(before, after);
  (void)train::TokensPerStep(first.value());
  const auto amended = train::ReadAmended(before, after);
  const bool taken = fuzz::Good(amended);
  if (taken) {
    fuzz::Expect(train::CanonicalSpec(amended.value()) == after, "the order's settings are taken");
  }
  if (const auto made = train::Amend(first.value(), toml); fuzz::Good(made)) {
    const std::string text = train::CanonicalSpec(made.value());
    const auto read = train::ReadAmended(before, text);
    fuzz::Expect(read.ok(), "what an owner may order is taken by members",
                 read.ok() ? "" : read.error().message);
    if (taken) fuzz::Accept();
  }
  return 0;
}

void loom::fuzz::MakeSeeds(Seeds& seeds) {
  const std::string before = SampleSpec();
  const auto spec = train::ParseCanonicalSpec(before).value();
  const auto add = [&](std::string name, std::string_view toml) {
    const std::string after = train::CanonicalSpec(train::Amend(spec, toml).value());
    seeds.Add(std::move(name),
              Script().Chunk(AsBytes(before)).Chunk(AsBytes(after)).Chunk(AsBytes(toml)));
  };
  add("as-it-is", "");
  add("more-rounds", "[sync]\nrounds = 500\n");
}
