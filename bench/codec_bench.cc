// Bytes of fp32 per second through the codecs and the agreed kernels, one core, per instruction
// set. A tile (64 Ki values, 256 KiB) is the working size, as in a round; AdamW, AddScaled and
// OuterStep also run over 64 MiB buffers, where memory is the limit. The products of Muon count
// floating-point operations instead.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "agreed/adamw.h"
#include "agreed/combine.h"
#include "agreed/flat_buffer.h"
#include "agreed/matmul.h"
#include "agreed/muon.h"
#include "agreed/outer.h"
#include "agreed/random.h"
#include "agreed/state.h"
#include "codec/codec.h"

namespace loom {
namespace {

using agreed::FlatBuffer;
using agreed::Isa;

constexpr std::size_t kTile = 65536;
constexpr std::size_t kLarge = std::size_t{16} << 20;

FlatBuffer Normal(std::size_t n, std::uint64_t stream) {
  FlatBuffer buffer(n);
  agreed::FillNormal(buffer.span(), 1, stream, 1.0F);
  return buffer;
}

void CountFloats(benchmark::State& state, std::size_t n) {
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) *
                          static_cast<std::int64_t>(n * 4));
}

void RequireOk(const Status& status) {
  if (!status.ok()) std::abort();
}

void Encode(benchmark::State& state, codec::CodecKind kind, Isa isa) {
  const auto codec = codec::MakeCodec(kind, isa);
  const FlatBuffer x = Normal(kTile, 0);
  Bytes out(codec->EncodedSize(kTile));
  for (auto _ : state) {
    RequireOk(codec->Encode(x.span(), out));
    benchmark::ClobberMemory();
  }
  CountFloats(state, kTile);
}

void Decode(benchmark::State& state, codec::CodecKind kind, Isa isa) {
  const auto codec = codec::MakeCodec(kind, isa);
  FlatBuffer x = Normal(kTile, 0);
  Bytes out(codec->EncodedSize(kTile));
  RequireOk(codec->Encode(x.span(), out));
  for (auto _ : state) {
    RequireOk(codec->Decode(out, x.span()));
    benchmark::ClobberMemory();
  }
  CountFloats(state, kTile);
}

void AddScaled(benchmark::State& state, std::size_t n, Isa isa) {
  FlatBuffer acc(n);
  const FlatBuffer x = Normal(n, 0);
  for (auto _ : state) {
    agreed::AddScaled(acc.span(), x.span(), 0.25F, isa);
    benchmark::ClobberMemory();
  }
  CountFloats(state, n);
}

void Outer(benchmark::State& state, std::size_t n, Isa isa) {
  FlatBuffer w = Normal(n, 0);
  FlatBuffer b(n);
  const FlatBuffer delta = Normal(n, 1);
  for (auto _ : state) {
    agreed::OuterStep(w.span(), b.span(), delta.span(), {}, w.span(), b.span(), isa);
    benchmark::ClobberMemory();
  }
  CountFloats(state, n);
}

void AdamW(benchmark::State& state, std::size_t n, Isa isa) {
  FlatBuffer w = Normal(n, 0);
  const FlatBuffer g = Normal(n, 1);
  FlatBuffer m(n);
  FlatBuffer v(n);
  std::uint64_t step = 0;
  for (auto _ : state) {
    agreed::AdamWStep(w.span(), g.span(), m.span(), v.span(), {}, 1e-3F, ++step, 1.0F, true, isa);
    benchmark::ClobberMemory();
  }
  CountFloats(state, n);
}

void CountFlops(benchmark::State& state, std::size_t flops) {
  state.counters["flop/s"] =
      benchmark::Counter(static_cast<double>(flops), benchmark::Counter::kIsIterationInvariantRate);
}

void Matmul(benchmark::State& state, bool symmetric, Isa isa) {
  constexpr std::size_t kSize = 384;
  const FlatBuffer x = Normal(kSize * kSize, 0);
  FlatBuffer c(kSize * kSize);
  const agreed::MatrixView view = agreed::RowMajor(x.span(), kSize, kSize);
  for (auto _ : state) {
    if (symmetric) {
      agreed::MatmulSymmetric(view, view.Transposed(), c.span(), isa);
    } else {
      agreed::Matmul(view, view, c.span(), isa);
    }
    benchmark::ClobberMemory();
  }
  CountFlops(state, 2 * kSize * kSize * kSize);
}

void Muon(benchmark::State& state, Isa isa) {
  constexpr agreed::MatrixSize kSize{344, 128};  // of the model "nano"
  constexpr std::size_t kCount = kSize.rows * kSize.columns;
  FlatBuffer w = Normal(kCount, 0);
  const FlatBuffer g = Normal(kCount, 1);
  FlatBuffer b(kCount);
  FlatBuffer scratch(agreed::MuonScratch(kSize));
  for (auto _ : state) {
    agreed::MuonStep(w.span(), g.span(), b.span(), kSize, {}, 0.02F, 1.0F, scratch.span(), isa);
    benchmark::ClobberMemory();
  }
  CountFloats(state, kCount);
}

void SumSquares(benchmark::State& state, Isa isa) {
  const FlatBuffer x = Normal(kTile, 0);
  for (auto _ : state) benchmark::DoNotOptimize(agreed::SumSquares(x.span(), isa));
  CountFloats(state, kTile);
}

void AllFinite(benchmark::State& state, Isa isa) {
  const FlatBuffer x = Normal(kTile, 0);
  for (auto _ : state) benchmark::DoNotOptimize(agreed::AllFinite(x.span(), isa));
  CountFloats(state, kTile);
}

void Copy(benchmark::State& state) {
  const FlatBuffer x = Normal(kLarge, 0);
  FlatBuffer y(kLarge);
  for (auto _ : state) {
    std::copy(x.span().begin(), x.span().end(), y.span().begin());
    benchmark::ClobberMemory();
  }
  CountFloats(state, kLarge);
}

void NextLeaf(benchmark::State& state) {
  const FlatBuffer w = Normal(kTile, 0);
  const FlatBuffer b = Normal(kTile, 1);
  const FlatBuffer delta = Normal(kTile, 2);
  const auto grid = agreed::TileGrid::Make({{"x", {kTile}}}).value();
  const auto rule = agreed::MakeOuterRule({});
  agreed::NextLeaf next(grid, *rule);
  bool finite = false;
  for (auto _ : state) {
    benchmark::DoNotOptimize(next.Of({w.span(), b.span()}, delta.span(), {}, true, &finite));
  }
  CountFloats(state, kTile);
}

void FillNormal(benchmark::State& state) {
  FlatBuffer x(kTile);
  for (auto _ : state) {
    agreed::FillNormal(x.span(), 1, 2, 0.02F);
    benchmark::ClobberMemory();
  }
  CountFloats(state, kTile);
}

template <class Function, class... Args>
void Register(const std::string& name, Function function, Args... args) {
  benchmark::RegisterBenchmark(name.c_str(), function, args...)->MinTime(0.1);
}

void RegisterAll() {
  for (const Isa isa : {Isa::kPlain, Isa::kAvx2, Isa::kAvx512}) {
    if (!agreed::IsaSupported(isa)) continue;
    const std::string path = "/" + std::string(agreed::IsaName(isa));
    for (const auto kind :
         {codec::CodecKind::kFp32, codec::CodecKind::kBf16, codec::CodecKind::kInt8}) {
      const std::string name(codec::CodecName(kind));
      Register(name + "/encode" + path, Encode, kind, isa);
      Register(name + "/decode" + path, Decode, kind, isa);
    }
    for (const std::size_t n : {kTile, kLarge}) {
      const std::string size = n == kTile ? "/tile" : "/64MiB";
      Register("add_scaled" + size + path, AddScaled, n, isa);
      Register("outer_nesterov" + size + path, Outer, n, isa);
      Register("adamw" + size + path, AdamW, n, isa);
    }
    Register("matmul" + path, Matmul, false, isa);
    Register("matmul_symmetric" + path, Matmul, true, isa);
    Register("muon" + path, Muon, isa);
    Register("sum_squares" + path, SumSquares, isa);
    Register("all_finite" + path, AllFinite, isa);
  }
  Register("copy/64MiB", Copy);
  Register("next_state_leaf", NextLeaf);
  Register("fill_normal", FillNormal);
}

}  // namespace
}  // namespace loom

int main(int argc, char** argv) {
  loom::RegisterAll();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
