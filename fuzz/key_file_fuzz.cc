// A key as it lies in a folder or as a user brings it: PEM, hex or raw bytes. What is accepted is
// saved in a form that gives the same key.
#include "base/file.h"
#include "crypto/keys.h"
#include "fuzz/fuzz.h"
#include "fuzz/harness/temp_folder.h"
#include "fuzz/seeds/samples.h"

#include <filesystem>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace loom;
  static const fuzz::TempFolder folder;
  folder.Put("key", fuzz::View(data, size));
  std::filesystem::permissions(folder.path(), std::filesystem::perms::owner_all);
  if (size > 0)
    std::filesystem::permissions(folder.Path("key"), std::filesystem::perms::owner_read |
                                                         std::filesystem::perms::owner_write);
  const auto key = crypto::SigningKey::Load(folder.Path("key"));
  if (!key.ok()) {
    fuzz::ExpectGoodError(key.error());
    return 0;
  }
  folder.Put("again", {});
  fuzz::Expect(key.value().Save(folder.Path("again")).ok(), "a key can be saved");
  const auto again = crypto::SigningKey::Load(folder.Path("again"));
  fuzz::Expect(again.ok() && again.value().public_key() == key.value().public_key(),
               "a saved key is the same key");
  fuzz::Accept();
  return 0;
}

void loom::fuzz::MakeSeeds(Seeds& seeds) {
  const TempFolder folder;
  const auto key = SampleKey(7);
  Expect(key.Save(folder.Path("key")).ok(), "a seed can be saved");
  seeds.Add("pem", ReadFile(folder.Path("key"), 1 << 16).value());
  seeds.Add("hex", key.seed().Hex() + "\n");
  seeds.Add("raw", key.seed().View());
}
