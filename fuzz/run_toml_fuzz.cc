// run.toml as a person writes it: what is accepted is written back as a file that gives the same
// run.
#include "fuzz/fuzz.h"
#include "train/spec.h"
#include "train/spec_keys.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace loom;
  const std::string_view text = fuzz::Text(data, size);
  (void)train::ParseSize(text);
  Result<train::RunFile> run = train::ParseRun(text, "run.toml");
  if (!run.ok()) {
    fuzz::ExpectGoodError(run.error());
    return 0;
  }
  const std::string written = train::WriteRun(run.value());
  Result<train::RunFile> again = train::ParseRun(written, "written.toml");
  fuzz::Expect(again.ok(), "what WriteRun writes can be read",
               again.ok() ? "" : again.error().message);
  fuzz::Expect(train::WriteRun(again.value()) == written, "writing is stable");
  fuzz::Expect(train::CanonicalSpec(again.value().spec) == train::CanonicalSpec(run.value().spec),
               "what was written gives the same run");
  const std::string local = train::WriteLocal(run.value().local);
  const auto back = train::ParseRun(local, "local.toml");
  fuzz::Expect(back.ok() && train::WriteLocal(back.value().local) == local,
               "a peer's own settings come back");
  train::RunSpec& spec = run.value().spec;
  if (!train::FitVocab(spec, 96).ok() || !train::ResolveSpec(spec).ok()) return 0;
  const auto canonical = train::ParseCanonicalSpec(train::CanonicalSpec(spec));
  fuzz::Expect(canonical.ok(), "a run that can begin can be joined",
               canonical.ok() ? "" : canonical.error().message);
  fuzz::Accept();
  return 0;
}

void loom::fuzz::MakeSeeds(Seeds& seeds) {
  seeds.Add(
      "small.toml",
      "[data]\npaths = [\"corpus.txt\"]\ntokenizer = \"chars\"\n[optim]\nbatch = 8\nlr = 3e-4\n"
      "[sync]\nrounds = 12\nworkers = \"per-peer\"\n[local]\nmax_up = \"2M\"\nthreads = 2\n");
  for (const std::string& preset : train::SyncPresetNames())
    seeds.Add(preset + ".toml", "[sync]\npreset = \"" + preset + "\"\n");
  seeds.AddRefused("unknown-key.toml", "[model]\ndepht = 3\n");
}
