// Records from peers and from the own disk, one after the other on a run's chain: those that are
// taken leave a chain that can be walked, worked on and read back; those that are refused leave it
// as it was. Signatures may be forged here, so that bodies and certificates are reached; a body may
// be made to follow the head, so that the rules of rounds are. The input: mode, then records, each
// with a byte of how it comes and a u16 length.
#include "collab/chain.h"

#include "fuzz/fuzz.h"
#include "fuzz/harness/machine.h"
#include "fuzz/seeds/samples.h"

namespace loom::fuzz {
namespace {

const TinyRun& RunOf(bool exact) {
  static const TinyRun lossy(false);
  static const TinyRun all_reduce(true);
  return exact ? all_reduce : lossy;
}

collab::Record Following(collab::Record record, const collab::Chain& chain, std::size_t how) {
  collab::Body body = record.body;
  const collab::Record& head = chain.head();
  body.run = chain.run();
  body.round = head.body.round + 1;
  body.parent = head.hash;
  if (how & 2U) body.era = head.body.era;
  if (how & 4U) body.members = head.body.members;
  if (how & 8U) body.orders = head.body.orders + (body.order ? 1 : 0);
  auto made = collab::Record::FromBody(MakeBlob(body.Encode()));
  if (!made) return record;
  made->term = record.term;
  made->votes = record.votes;
  made->parts = record.parts;
  made->owner = record.owner;
  for (collab::Vote& vote : made->votes) {
    vote.body = made->hash;
    vote.term = made->term;
    vote.signature = ForgedSignature();
  }
  for (collab::PartSignature& part : made->parts) part.signature = ForgedSignature();
  if (made->owner) made->owner = ForgedSignature();
  return std::move(*made);
}

void Walk(const collab::Chain& chain, const collab::SyncConfig& config) {
  const collab::Body& body = chain.head().body;
  Expect(!chain.Ancestors(chain.rounds()).empty(), "every state came from somewhere");
  for (const collab::WorkerEntry& worker : body.workers) {
    const auto order = collab::OrderOf(body, worker.worker, config);
    if (order) Expect(collab::CountSamples(order->ranges) > 0, "an order has samples");
  }
  (void)collab::Finished(body, config);
  (void)collab::SlowestWork(chain.head());
  (void)collab::ClockOf(body);
  (void)chain.last_reset();
  const auto again = collab::Record::Decode(chain.head().Encode());
  Expect(again.ok() && again->hash == chain.head().hash, "a record that was taken reads back");
}

}  // namespace
}  // namespace loom::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace loom;
  fuzz::Input in(data, size);
  const fuzz::TinyRun& run = fuzz::RunOf(in.Byte() % 2 == 1);
  const fuzz::ForgeableSigner signer(run.keys[3]);
  collab::Chain chain(run.genesis, run.config, 2, signer,
                      [&](ByteView, ByteView) { return Result<collab::SyncConfig>(run.config); });
  bool took = false;
  for (std::size_t records = 0; records < 32 && !in.empty(); ++records) {
    const std::size_t how = in.Byte();
    auto record = collab::Record::Decode(in.Chunk());
    if (!record) {
      fuzz::ExpectGoodError(record.error());
      continue;
    }
    if (how & 1U) record = fuzz::Following(std::move(*record), chain, how);
    if (record->body.order) {
      if (const Status order = chain.CheckOrder(*record->body.order); !order)
        fuzz::ExpectGoodError(order.error());
    }
    const Round before = chain.rounds();
    const Status kept =
        how & 16U ? chain.AppendOwn(std::move(*record)) : chain.Append(std::move(*record));
    if (kept) {
      took = true;
      fuzz::Expect(chain.rounds() == before + 1, "a chain grows by one");
      fuzz::Walk(chain, run.config);
    } else {
      fuzz::ExpectGoodError(kept.error());
      fuzz::Expect(chain.rounds() == before, "a refused record changes nothing");
    }
  }
  if (took) fuzz::Accept();
  return 0;
}

void loom::fuzz::MakeSeeds(Seeds& seeds) {
  for (const std::size_t exact : {0U, 1U}) {
    const std::string mode = exact == 1 ? "exact" : "lossy";
    const TinyRun& run = RunOf(exact == 1);
    Machine machine(run, 0);
    Time now{std::chrono::hours(1)};
    Expect(machine.Start(now).ok(), "a new folder can be opened");
    for (std::size_t step = 0; step < 2000 && machine.peer().chain().rounds() < 3; ++step) {
      if (machine.FinishWrite(now) || machine.FinishJob(now)) continue;
      now += 250ms;
      machine.Call(now, [&](collab::Peer& p, collab::Effects& out) { p.OnTick(now, out); });
    }
    Script peers, own, following;
    peers.Byte(exact);
    own.Byte(exact);
    following.Byte(exact);
    for (Round r = 1; r <= machine.peer().chain().rounds(); ++r) {
      const Bytes record = machine.peer().chain().At(r).Encode();
      peers.Byte(0).Chunk(record);
      own.Byte(16).Chunk(record);
      following.Byte(11).Chunk(record);
    }
    seeds.Add(mode + "-from-peers", peers);
    seeds.Add(mode + "-own", own);
    seeds.Add(mode + "-following", following);
    Script sample;
    sample.Byte(exact).Byte(15).Chunk(SampleRecord().Encode());
    seeds.AddRefused(mode + "-sample", sample.bytes());
  }
}
