// manifest.json of a checkpoint: its text is canonical, so what is accepted is what would be
// written.
#include "store/manifest.h"

#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace loom;
  const std::string_view text = fuzz::Text(data, size);
  const Result<store::Manifest> manifest = store::FromJson(text);
  if (!manifest.ok()) return 0;
  fuzz::Expect(store::ToJson(manifest.value()) == text, "an accepted manifest is canonical");
  return 0;
}
