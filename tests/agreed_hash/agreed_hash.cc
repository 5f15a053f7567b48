// Rule R28 made visible: runs every kernel of agreed and codec on fixed inputs (denormals, both
// zeros, huge and tiny values among them), on every instruction-set path of this processor, and
// prints or compares SHA-256 of the outputs. Built by each compiler at hand, at -O0 and -O3: all
// must agree.
//   agreed_hash                    prints "NAME HASH" lines of the plain path
//   agreed_hash --expected FILE    compares all paths with such lines; exit code 1 on any
//   difference
#include <fmt/core.h>

#include <bit>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "agreed/adamw.h"
#include "agreed/combine.h"
#include "agreed/fixed_point.h"
#include "agreed/math.h"
#include "agreed/matmul.h"
#include "agreed/muon.h"
#include "agreed/outer.h"
#include "agreed/random.h"
#include "agreed/schedule.h"
#include "agreed/sgd.h"
#include "agreed/state.h"
#include "base/check.h"
#include "codec/codec.h"
#include "codec/error_feedback.h"
#include "crypto/hash.h"

namespace loom {
namespace {

using agreed::Isa;
using agreed::Philox;
using Hashes = std::map<std::string, std::string>;

constexpr std::size_t kSizes[] = {0, 1, 15, 16, 255, 256, 257, 1077, 5000, 9001};

// A float of one of six kinds; kinds 4 and 5 are ordinary.
float Sample(std::uint32_t kind, std::uint32_t word) {
  const std::uint32_t sign = word & 0x80000000U;
  const std::uint32_t mantissa = word & 0x007FFFFFU;
  const std::uint32_t spread = (word >> 23) & 0xFFU;
  switch (kind) {
    case 0:
      return std::bit_cast<float>(sign | mantissa);  // denormal
    case 1:
      return std::bit_cast<float>(sign);  // +-0
    case 2:
      return std::bit_cast<float>(sign | ((240U + spread % 14U) << 23) | mantissa);  // huge
    case 3:
      return std::bit_cast<float>(sign | ((1U + spread % 20U) << 23) | mantissa);  // tiny
    default:
      return std::bit_cast<float>(sign | ((112U + spread % 20U) << 23) | mantissa);
  }
}

// Runs of 256 values are of one kind, or mixed.
std::vector<float> Input(std::size_t n, std::uint64_t stream, bool ordinary = false) {
  const Philox philox(2026, stream);
  std::vector<float> out(n);
  for (std::size_t i = 0; i < n; ++i) {
    const auto words = philox.At(i);
    const std::uint32_t run = philox.At((std::uint64_t{1} << 40) + i / 256)[0] % 7;
    const std::uint32_t kind = run < 6 ? run : words[1] % 6;
    out[i] = Sample(ordinary ? 5 : kind, words[0]);
  }
  return out;
}

/// Collects outputs; every NaN counts as the same NaN, because its payload has no meaning.
class Collector {
 public:
  void Add(std::span<const float> values) {
    for (const float v : values) {
      const auto bits = std::isnan(v) ? 0x7FC00000U : std::bit_cast<std::uint32_t>(v);
      stream_.Update(std::as_bytes(std::span(&bits, 1)));
    }
  }
  void Add(double value) { stream_.Update(std::as_bytes(std::span(&value, 1))); }
  void Add(ByteView bytes) { stream_.Update(bytes); }
  std::string Finish() { return stream_.Finish().Hex(); }

 private:
  crypto::Sha256Stream stream_;
};

void ScalarHashes(Hashes& hashes) {
  const Philox philox(7, 7);
  Collector words, logs, cosines, sines, powers, rates, normals, weights;
  for (std::uint64_t i = 0; i < 5000; ++i) {
    const auto block = philox.At(i);
    words.Add(std::as_bytes(std::span(block)));
    const std::uint64_t bits = philox.U64(i) & 0x7FEFFFFFFFFFFFFFULL;
    logs.Add(agreed::Log(std::bit_cast<double>(bits)));
    const double x = (philox.Uniform(i) - 0.5) * 64.0;
    cosines.Add(agreed::CosPi(x));
    sines.Add(agreed::SinPi(x));
    powers.Add(agreed::PowInt(philox.Uniform(i), i));
  }
  hashes["philox"] = words.Finish();
  hashes["log"] = logs.Finish();
  hashes["cospi"] = cosines.Finish();
  hashes["sinpi"] = sines.Finish();
  hashes["powint"] = powers.Finish();
  for (const auto kind : {agreed::ScheduleKind::kConstant, agreed::ScheduleKind::kCosine,
                          agreed::ScheduleKind::kWsd, agreed::ScheduleKind::kLinear}) {
    for (const auto shape : {agreed::DecayShape::kSqrt, agreed::DecayShape::kLinear}) {
      const agreed::ScheduleConfig config{kind, 3e-4F, 1e-5F, 1000, 100000, 30000, shape};
      for (std::uint64_t t = 0; t < 110000; t += 37) {
        const float rate = agreed::LearningRate(config, t);
        rates.Add(std::span(&rate, 1));
      }
    }
  }
  hashes["schedule"] = rates.Finish();
  std::vector<float> normal(10001);
  agreed::FillNormal(normal, 11, 3, 0.02F);
  normals.Add(normal);
  hashes["fill_normal"] = normals.Finish();
  for (std::uint64_t m = 0; m < 50; ++m) {
    std::vector<std::uint64_t> tokens(m);
    for (std::uint64_t i = 0; i < m; ++i) tokens[i] = philox.Below(i, 1000000);
    weights.Add(agreed::TokenWeights(tokens));
  }
  hashes["token_weights"] = weights.Finish();
}

void SumHashes(Isa isa, Hashes& hashes) {
  Collector add_scaled, add_wide, add, subtract, squares;
  for (const std::size_t n : kSizes) {
    const auto x = Input(n, 1);
    auto acc = Input(n, 2);
    squares.Add(agreed::SumSquares(x, isa));
    agreed::AddScaled(acc, x, 0.3F, isa);
    add_scaled.Add(acc);
    std::vector<double> wide(n);
    for (std::uint64_t k = 0; k < 3; ++k) {
      agreed::AddScaled(wide, Input(n, 30 + k), 0.3F, isa);
    }
    std::vector<float> rounded(n);
    agreed::Round(wide, rounded, isa);
    add_wide.Add(std::as_bytes(std::span(wide)));
    add_wide.Add(rounded);
    agreed::Add(x, acc, acc, isa);
    add.Add(acc);
    agreed::Subtract(acc, x, acc, isa);
    subtract.Add(acc);
  }
  Collector fixed;
  for (const std::size_t n : kSizes) {
    std::vector<std::int64_t> acc(n);
    std::vector<float> out(n);
    for (std::uint64_t unit = 0; unit < 3; ++unit) {
      const auto x = Input(n, 40 + unit, true);
      agreed::AddFixed(acc, x, agreed::ShiftFor(agreed::ExponentOf(x, isa), 8) - 4, isa);
    }
    agreed::RoundFixed(acc, 40, out, isa);
    fixed.Add(std::as_bytes(std::span(acc)));
    fixed.Add(out);
  }
  hashes["fixed_point"] = fixed.Finish();
  hashes["add_scaled"] = add_scaled.Finish();
  hashes["add_scaled_wide"] = add_wide.Finish();
  hashes["add"] = add.Finish();
  hashes["subtract"] = subtract.Finish();
  hashes["sum_squares"] = squares.Finish();
}

void StepHashes(Isa isa, Hashes& hashes) {
  for (const auto kind :
       {agreed::OuterKind::kSgd, agreed::OuterKind::kNesterov, agreed::OuterKind::kHeavyBall}) {
    Collector outer;
    for (const std::size_t n : kSizes) {
      auto w = Input(n, 3);
      auto b = Input(n, 4);
      const auto delta = Input(n, 5);
      for (int step = 0; step < 2; ++step) {
        agreed::OuterStep(w, b, delta, {kind, 0.7F, 0.9F}, w, b, isa);
        outer.Add(w);
        outer.Add(b);
      }
    }
    hashes["outer_" + std::string(agreed::OuterKindName(kind))] = outer.Finish();
  }
  for (const bool decay : {false, true}) {
    Collector adamw;
    for (const std::size_t n : kSizes) {
      auto w = Input(n, 6);
      std::vector<float> m(n);
      std::vector<float> v(n);
      for (std::uint64_t step = 1; step <= 3; ++step) {
        agreed::AdamWStep(w, Input(n, 6 + step), m, v, {}, 1e-3F, step, 0.5F, decay, isa);
        adamw.Add(w);
        adamw.Add(m);
        adamw.Add(v);
      }
    }
    hashes[decay ? "adamw_decay" : "adamw"] = adamw.Finish();
  }
  Collector leaves;
  for (const std::size_t n : kSizes) {
    const auto grid = agreed::TileGrid::Make({{"x", {n}}}).value();
    const auto rule = agreed::MakeOuterRule({});
    auto w = Input(n, 3);
    auto b = Input(n, 4);
    bool finite = false;
    const auto leaf = agreed::NextLeaf(grid, *rule, isa).Of({w, b}, Input(n, 5), {}, true, &finite);
    leaves.Add(leaf.View());
  }
  hashes["next_state_leaf"] = leaves.Finish();
}

void InnerStepHashes(Isa isa, Hashes& hashes) {
  for (const auto& [name, config] :
       {std::pair<std::string, agreed::SgdConfig>{"sgd", {0.0F, false, 0.1F}},
        {"sgd_momentum", {0.9F, false, 0.1F}},
        {"sgd_nesterov", {0.9F, true, 0.1F}}}) {
    Collector sgd;
    for (const std::size_t n : kSizes) {
      auto w = Input(n, 40);
      std::vector<float> b(config.momentum == 0 ? 0 : n);
      for (std::uint64_t step = 1; step <= 3; ++step) {
        agreed::SgdStep(w, Input(n, 40 + step), b, config, 1e-3F, 0.5F, isa);
        sgd.Add(w);
        sgd.Add(b);
      }
    }
    hashes[name] = sgd.Finish();
  }
  Collector products, muon;
  constexpr std::size_t kShapes[][3] = {
      {1, 1, 1}, {7, 130, 65}, {64, 64, 64}, {100, 33, 270}, {13, 257, 5}};
  for (const auto& [m, k, n] : kShapes) {
    for (const bool ordinary : {false, true}) {
      const auto a = Input(m * k, 50, ordinary);
      const auto b = Input(k * n, 51, ordinary);
      const agreed::MatrixView a_view = agreed::RowMajor(a, m, k);
      std::vector<float> c(m * n);
      std::vector<float> gram(m * m);
      agreed::Matmul(a_view, agreed::RowMajor(b, k, n), c, isa);
      agreed::MatmulSymmetric(a_view, a_view.Transposed(), gram, isa);
      products.Add(c);
      products.Add(gram);
    }
    for (const auto scale : {agreed::MuonScale::kOriginal, agreed::MuonScale::kMatchRmsAdamW}) {
      agreed::MuonConfig config;
      config.scale = scale;
      config.nesterov = scale == agreed::MuonScale::kOriginal;
      auto w = Input(m * k, 52, true);
      std::vector<float> momentum(m * k);
      std::vector<float> scratch(agreed::MuonScratch({m, k}));
      for (std::uint64_t step = 1; step <= 2; ++step) {
        agreed::MuonStep(w, Input(m * k, 52 + step, true), momentum, {m, k}, config, 0.02F, 0.5F,
                         scratch, isa);
        muon.Add(w);
        muon.Add(momentum);
      }
    }
  }
  hashes["matmul"] = products.Finish();
  hashes["muon"] = muon.Finish();
}

void CodecHashes(Isa isa, Hashes& hashes) {
  for (const auto kind :
       {codec::CodecKind::kFp32, codec::CodecKind::kBf16, codec::CodecKind::kInt8}) {
    const auto codec = codec::MakeCodec(kind, isa);
    Collector encoded, decoded, residuals;
    for (const std::size_t n : kSizes) {
      for (const bool ordinary : {false, true}) {
        const auto x = Input(n, 20, ordinary);
        Bytes bytes(codec->EncodedSize(n));
        std::vector<float> out(n);
        LOOM_CHECK(codec->Encode(x, bytes).ok());
        LOOM_CHECK(codec->Decode(bytes, out).ok());
        encoded.Add(bytes);
        decoded.Add(out);
        std::vector<float> residual(n);
        for (std::uint64_t round = 0; round < 3; ++round) {
          const auto delta = Input(n, 21 + round, true);
          LOOM_CHECK(codec::EncodeWithFeedback(*codec, delta, residual, bytes, residual).ok());
          residuals.Add(bytes);
          residuals.Add(residual);
        }
      }
    }
    const std::string name(codec->name());
    hashes[name + "_encode"] = encoded.Finish();
    hashes[name + "_decode"] = decoded.Finish();
    hashes[name + "_feedback"] = residuals.Finish();
  }
}

Hashes AllHashes(Isa isa) {
  Hashes hashes;
  ScalarHashes(hashes);
  SumHashes(isa, hashes);
  StepHashes(isa, hashes);
  InnerStepHashes(isa, hashes);
  CodecHashes(isa, hashes);
  return hashes;
}

int Compare(const char* path) {
  Hashes expected;
  std::ifstream file(path);
  for (std::string name, hash; file >> name >> hash;) expected[name] = hash;
  int differences = 0;
  for (const Isa isa : {Isa::kPlain, Isa::kAvx2, Isa::kAvx512}) {
    if (!agreed::IsaSupported(isa)) {
      fmt::print("{}: not on this processor, not checked\n", agreed::IsaName(isa));
      continue;
    }
    const Hashes hashes = AllHashes(isa);
    for (const auto& [name, hash] : hashes) {
      const auto at = expected.find(name);
      if (at != expected.end() && at->second == hash) continue;
      fmt::print("{} on {}: {} differs from {}\n", name, agreed::IsaName(isa), hash,
                 at == expected.end() ? "(no entry)" : at->second);
      ++differences;
    }
    if (hashes.size() != expected.size()) ++differences;
    fmt::print("{}: {} kernels compared with {} entries\n", agreed::IsaName(isa), hashes.size(),
               expected.size());
  }
  return differences == 0 ? 0 : 1;
}

}  // namespace
}  // namespace loom

int main(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == "--expected") return loom::Compare(argv[2]);
  if (argc != 1) {
    std::fputs("usage: agreed_hash [--expected FILE]\n", stderr);
    return 2;
  }
  for (const auto& [name, hash] : loom::AllHashes(loom::agreed::Isa::kPlain)) {
    fmt::print("{} {}\n", name, hash);
  }
}
