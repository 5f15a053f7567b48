// Bytes of numbers from peers and disks: encoded tiles, reduced tiles, state tiles and inner
// states, on a real engine in both modes. What is refused changes nothing, what is taken is finite,
// and the root is the one that was said before. The first byte chooses the mode; then steps.
#include <algorithm>
#include <cmath>

#include "agreed/combine.h"
#include "crypto/hash.h"
#include "fuzz/fuzz.h"
#include "fuzz/harness/machine.h"

namespace loom::fuzz {
namespace {

const TinyRun& RunOf(bool exact) {
  static const TinyRun lossy(false);
  static const TinyRun all_reduce(true);
  return exact ? all_reduce : lossy;
}

class Session {
 public:
  explicit Session(bool exact)
      : run_(RunOf(exact)),
        engine_(collab::Engine::Make(run_.grid, run_.config, run_.codec, agreed::BestIsa(),
                                     [this](WorkerIndex) {
                                       return Result<std::unique_ptr<collab::Worker>>(
                                           std::make_unique<sim::PlainWorker>(
                                               run_.grid, sim::PlainModel{}, &limit_));
                                     })
                    .value()) {
    std::ranges::copy(run_.first_weights, engine_.weights().begin());
  }

  void Step(Input& in) {
    switch (in.Below(6)) {
      case 0:
        LoadTile(in);
        break;
      case 1:
        Check(in);
        break;
      case 2:
        Reduce(in);
        break;
      case 3:
        TakeStep(in);
        break;
      case 4:
        RestoreInner(in);
        break;
      default: {
        Hash salt;
        salt.bytes[0] = static_cast<std::byte>(in.Byte());
        (void)engine_.Possession({}, salt);
      }
    }
    for (const float x : engine_.weights()) Expect(std::isfinite(x), "every weight is finite");
  }
  bool took() const { return took_; }

 private:
  void RestoreInner(Input& in) {
    const WorkerIndex worker = in.Byte() % 4U;
    ViewSource source(in.Chunk());
    const Status restored = engine_.RestoreInner(worker, source);
    if (!restored) ExpectGoodError(restored.error());
    took_ = took_ || restored.ok();
    for (const WorkerIndex kept : engine_.InnerWorkers()) {
      BytesSink sink;
      Expect(engine_.SaveInner(kept, sink).ok(), "an inner state can be saved");
    }
  }

  void LoadTile(Input& in) {
    const std::size_t tile = in.Below(engine_.layout().num_tiles());
    const ByteView bytes = in.Chunk();
    const Bytes before = engine_.StateTile(tile);
    const Status loaded = engine_.LoadStateTile(tile, bytes);
    const Bytes after = engine_.StateTile(tile);
    if (!loaded) {
      ExpectGoodError(loaded.error());
      Expect(before == after, "a refused tile changes nothing");
    } else {
      Expect(std::ranges::equal(after, bytes), "a tile that was loaded is there");
      took_ = true;
    }
  }

  bool Check(const collab::TileClaim& claim, ByteView bytes) {
    const Status good = engine_.CheckPart(claim, bytes);
    if (!good) ExpectGoodError(good.error());
    took_ = took_ || good.ok();
    return good.ok();
  }

  /// What a contributor would say of a run of tiles, with right hashes.
  collab::TileClaim ClaimOf(std::size_t first, std::size_t count, ByteView bytes,
                            agreed::Exponent exponent) const {
    collab::TileClaim claim;
    claim.first = first;
    std::size_t at = 0;
    for (std::size_t i = first; i < first + count; ++i) {
      const std::size_t size = std::min<std::size_t>(engine_.layout().Size(i), bytes.size() - at);
      claim.hashes.push_back(crypto::Sha256(bytes.subspan(at, size)));
      at += size;
    }
    if (run_.config.exact) {
      claim.exponents = {exponent};
      claim.bounds = {exponent};
    }
    return claim;
  }

  agreed::Exponent Exponent(Input& in) const {
    if (!run_.config.exact) return 0;
    return static_cast<agreed::Exponent>(
        std::min<int>(agreed::kNoExponent + in.Byte(), agreed::kMaxExponent));
  }

  void Check(Input& in) {
    const std::size_t tile = in.Below(engine_.layout().num_tiles());
    const agreed::Exponent exponent = Exponent(in);
    const ByteView bytes = in.Chunk();
    (void)Check(ClaimOf(tile, 1, bytes, exponent), bytes);
  }

  /// As an owner does it: of parts that were found good.
  void Reduce(Input& in) {
    const std::size_t count = engine_.layout().num_tiles();
    const agreed::Exponent exponent = Exponent(in);
    std::vector<collab::ReduceInput> inputs;
    std::vector<std::uint64_t> tokens;
    for (std::size_t n = 1 + in.Below(3); n > 0; --n) {
      tokens.push_back(1U + in.Byte());
      Bytes bytes = ToBytes(in.Chunk());
      bytes.resize(engine_.layout().total());
      if (!Check(ClaimOf(0, count, bytes, exponent), bytes)) return;
      const Blob blob = MakeBlob(std::move(bytes));
      collab::ReduceInput input;
      for (std::size_t i = 0; i < count; ++i)
        input.tiles.push_back({blob, engine_.layout().Offset(i), engine_.layout().Size(i)});
      inputs.push_back(std::move(input));
    }
    const std::vector<float> weights = agreed::TokenWeights(tokens);
    for (std::size_t i = 0; i < inputs.size(); ++i) inputs[i].weight = weights[i];
    collab::Bounds bounds;
    if (run_.config.exact) bounds = {exponent};
    const auto reduced = engine_.Reduce(0, count, inputs, bounds);
    if (!reduced) {
      ExpectGoodError(reduced.error());
      return;
    }
    Expect(reduced->size() == engine_.layout().total(), "a reduced run is as wide as the run");
    if (const auto next = engine_.Next(*reduced, {1, 64}); !next) ExpectGoodError(next.error());
  }

  void TakeStep(Input& in) {
    const agreed::StepClock clock{1U + in.Byte(), in.Int<std::uint32_t>()};
    Bytes bytes = ToBytes(in.Chunk());
    if (in.Byte() % 2 == 1) bytes.resize(engine_.layout().total());
    const auto next = engine_.Next(bytes, clock);
    if (!next) {
      ExpectGoodError(next.error());
      return;
    }
    const Status applied = engine_.Apply(bytes, clock);
    Expect(applied.ok(), "a step that was looked at can be taken",
           applied.ok() ? "" : applied.error().message);
    Expect(engine_.Root() == next->root, "a step leads to the root that was told before");
    took_ = true;
  }

  const TinyRun& run_;
  std::uint32_t limit_ = UINT32_MAX;
  collab::Engine engine_;
  bool took_ = false;
};

}  // namespace
}  // namespace loom::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace loom;
  fuzz::Input in(data, size);
  fuzz::Session session(in.Byte() % 2 == 1);
  for (std::size_t steps = 0; steps < 32 && !in.empty(); ++steps) session.Step(in);
  if (session.took()) fuzz::Accept();
  return 0;
}

void loom::fuzz::MakeSeeds(Seeds& seeds) {
  for (const std::size_t exact : {0U, 1U}) {
    const TinyRun& run = RunOf(exact == 1);
    std::uint32_t limit = UINT32_MAX;
    const auto factory = [&](WorkerIndex) {
      return Result<std::unique_ptr<collab::Worker>>(
          std::make_unique<sim::PlainWorker>(run.grid, sim::PlainModel{}, &limit));
    };
    collab::Engine engine =
        collab::Engine::Make(run.grid, run.config, run.codec, agreed::BestIsa(), factory).value();
    std::ranges::copy(run.first_weights, engine.weights().begin());
    const std::string mode = exact == 1 ? "exact" : "lossy";
    const Bytes tile = engine.StateTile(1);
    Script load;
    load.Byte(exact).Byte(0).Byte(1).Chunk(tile);
    seeds.Add(mode + "-state-tile", load);
    const std::vector<float> values(run.grid.tiles()[1].size, 0.25F);
    const auto codec = codec::MakeCodec(run.codec);
    Bytes encoded(codec->EncodedSize(values.size()));
    Expect(codec->Encode(values, encoded).ok(), "a seed can be encoded");
    Script check;
    check.Byte(exact).Byte(1).Byte(1);
    if (exact == 1) check.Byte(150);
    check.Chunk(encoded);
    seeds.Add(mode + "-part", check);
    Script step;
    step.Byte(exact).Byte(3).Byte(0).Int(std::uint32_t{64}).Chunk({}).Byte(1);
    seeds.Add(mode + "-step", step);
    Script reduce;
    reduce.Byte(exact).Byte(2);
    if (exact == 1) reduce.Byte(150);
    reduce.Byte(1).Byte(64).Chunk(encoded).Byte(32).Chunk(encoded);
    seeds.Add(mode + "-reduce", reduce);
    Script inner;
    inner.Byte(exact).Byte(4).Byte(0).Chunk(tile).Byte(0).Byte(1).Chunk(tile);
    seeds.Add(mode + "-inner", inner);
  }
}
