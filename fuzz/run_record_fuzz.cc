// The genesis record of a run, from a member that a joiner asks or from the own folder. The input
// is its payload, which this target puts into a first body and signs, so that everything behind the
// signature is reached: contents, settings, files. An owner's program is no reason to crash.
#include <algorithm>

#include "collab/chain.h"
#include "collab/ledger.h"
#include "fuzz/fuzz.h"
#include "fuzz/seeds/samples.h"
#include "node/run_data.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace loom;
  static const crypto::SigningKey owner = fuzz::SampleKey(1);
  const ByteView payload = fuzz::View(data, size);
  const auto content = collab::Genesis::Decode(payload);
  if (!content.ok()) {
    fuzz::ExpectGoodError(content.error());
    return 0;
  }
  fuzz::Expect(std::ranges::equal(content.value().Encode(), payload),
               "an accepted genesis is written back byte for byte");
  const collab::Body body =
      collab::GenesisBody(ToBytes(payload), owner.public_key(), Hash{}, collab::SyncConfig{});
  auto record = collab::Record::FromBody(MakeBlob(body.Encode())).value();
  record.owner = owner.Sign(collab::Chain::kGenesisDomain, record.hash.View());
  const Result<node::Run> run = node::ReadRun(record.Encode());
  if (!run.ok()) {
    fuzz::ExpectGoodError(run.error());
    return 0;
  }
  fuzz::Expect(node::DataFilesOf(run.value().content).size() ==
                   1 + content.value().train_shards.size() + content.value().val_shards.size() +
                       content.value().start.size(),
               "every file has a name");
  fuzz::Expect(train::CanonicalSpec(run.value().spec) == AsText(content.value().spec),
               "the settings are those of the record");
  fuzz::Accept();
  return 0;
}

void loom::fuzz::MakeSeeds(Seeds& seeds) {
  seeds.Add("austen", SampleGenesis().Encode());
  collab::Genesis bare = SampleGenesis();
  bare.train_shards.clear();
  bare.val_shards.clear();
  bare.dataset.clear();
  bare.name.clear();
  bare.owners.resize(1);
  seeds.Add("bare", bare.Encode());
  collab::Genesis started = SampleGenesis();
  started.start = {{"config.json", {SampleHash(6), 700}},
                   {"generation_config.json", {SampleHash(7), 60}},
                   {"model.safetensors", {SampleHash(8), 2'500'000}}};
  seeds.Add("started", started.Encode());
  started.start.front().name = "../keys/peer";
  seeds.AddRefused("start-elsewhere", started.Encode());
}
