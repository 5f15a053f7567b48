// Philox4x32-10 and the normal numbers made from it.
#include "agreed/random.h"

#include "agreed/fp_control.h"
#include "agreed/math.h"

namespace loom::agreed {
namespace {

std::uint32_t Low(std::uint64_t x) { return static_cast<std::uint32_t>(x); }
std::uint32_t High(std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); }

// Two normals from two words. The radius uses (a + 1/2) / 2^32, never 0, so |normal| < 6.77.
std::array<double, 2> BoxMuller(std::uint32_t a, std::uint32_t b) {
  const double radius = Sqrt(-2.0 * Log((static_cast<double>(a) + 0.5) * 0x1p-32));
  const double turn = static_cast<double>(b) * 0x1p-31;  // in [0, 2), in units of pi
  return {radius * CosPi(turn), radius * SinPi(turn)};
}

}  // namespace

std::array<std::uint32_t, 4> Philox4x32(std::array<std::uint32_t, 4> counter,
                                        std::array<std::uint32_t, 2> key) {
  auto [c0, c1, c2, c3] = counter;
  auto [k0, k1] = key;
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53} * c0;
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57} * c2;
    c0 = High(p1) ^ c1 ^ k0;
    c1 = Low(p1);
    c2 = High(p0) ^ c3 ^ k1;
    c3 = Low(p0);
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return {c0, c1, c2, c3};
}

std::array<std::uint32_t, 4> Philox::At(std::uint64_t counter) const {
  return Philox4x32({Low(counter), High(counter), Low(stream_), High(stream_)},
                    {Low(seed_), High(seed_)});
}

std::uint64_t Philox::U64(std::uint64_t counter) const {
  const auto words = At(counter);
  return (std::uint64_t{words[1]} << 32) | words[0];
}

std::uint64_t Philox::Below(std::uint64_t counter, std::uint64_t bound) const {
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>((Wide{U64(counter)} * bound) >> 64);
}

double Philox::Uniform(std::uint64_t counter) const {
  return static_cast<double>(U64(counter) >> 11) * 0x1p-53;
}

void FillNormal(std::span<float> out, std::uint64_t seed, std::uint64_t stream, float std) {
  const FpControlGuard guard;
  const Philox philox(seed, stream);
  const double scale = std;
  for (std::size_t i = 0; i < out.size(); i += 4) {
    const auto words = philox.At(i / 4);
    const auto first = BoxMuller(words[0], words[1]);
    const auto second = BoxMuller(words[2], words[3]);
    const std::array<double, 4> values{first[0], first[1], second[0], second[1]};
    for (std::size_t j = 0; j < 4 && i + j < out.size(); ++j) {
      out[i + j] = static_cast<float>(scale * values[j]);
    }
  }
}

}  // namespace loom::agreed
