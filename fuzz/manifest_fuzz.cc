// manifest.json of a checkpoint: its text is canonical, so what is accepted is what would be
// written.
#include "store/manifest.h"

#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace loom;
  const std::string_view text = fuzz::Text(data, size);
  const Result<store::Manifest> manifest = store::FromJson(text);
  if (!manifest.ok()) {
    fuzz::ExpectGoodError(manifest.error());
    return 0;
  }
  fuzz::Expect(store::ToJson(manifest.value()) == text, "an accepted manifest is canonical");
  fuzz::Accept();
  return 0;
}

void loom::fuzz::MakeSeeds(Seeds& seeds) {
  store::Manifest manifest;
  manifest.round = 12;
  manifest.root.bytes[3] = std::byte{7};
  manifest.files = {
      {"state.bin", 4096, {}}, {"leaves.bin", 32, {}}, {"extra/worker-0.bin", 16, {}}};
  seeds.Add("three-files", store::ToJson(manifest));
  seeds.Add("no-files", store::ToJson({}));
}
