// Encoded tiles from peers: what is accepted is finite, and the same on every instruction-set path
// (R28). The first byte chooses the codec; the number of values follows from the number of bytes.
#include "codec/codec.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "fuzz/fuzz.h"

namespace {

std::size_t NumValues(loom::codec::CodecKind kind, std::size_t bytes) {
  using loom::codec::CodecKind;
  if (kind == CodecKind::kFp32) return bytes / 4;
  if (kind == CodecKind::kBf16) return bytes / 2;
  const std::size_t blocks = (bytes + 259) / 260;  // 256 codes and one scale
  return bytes > 4 * blocks ? bytes - 4 * blocks : 0;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace loom;
  if (size < 1) return 0;
  const auto kind = static_cast<codec::CodecKind>(data[0] % 3);
  const ByteView bytes = fuzz::View(data + 1, size - 1);
  std::vector<float> plain(NumValues(kind, bytes.size()));
  std::vector<float> best(plain.size());
  const Status by_plain = codec::MakeCodec(kind, codec::Isa::kPlain)->Decode(bytes, plain);
  const Status by_best = codec::MakeCodec(kind)->Decode(bytes, best);
  fuzz::Expect(by_plain.ok() == by_best.ok(), "both paths accept the same bytes");
  if (!by_plain.ok()) fuzz::ExpectGoodError(by_plain.error());
  if (!by_plain.ok() || plain.empty()) return 0;
  for (const float x : plain) fuzz::Expect(std::isfinite(x), "an accepted tile is finite");
  fuzz::Expect(std::memcmp(plain.data(), best.data(), plain.size() * sizeof(float)) == 0,
               "both paths decode the same bits");
  fuzz::Accept();
  return 0;
}

void loom::fuzz::MakeSeeds(Seeds& seeds) {
  std::vector<float> values(600);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = (static_cast<float>(i) - 300.0F) / 128.0F;
  for (std::size_t kind = 0; kind < 3; ++kind) {
    const auto codec = codec::MakeCodec(static_cast<codec::CodecKind>(kind));
    Bytes encoded(codec->EncodedSize(values.size()));
    Expect(codec->Encode(values, encoded).ok(), "a seed can be encoded");
    seeds.Add(fmt::format("codec-{}", kind), Script().Byte(kind).Raw(encoded));
  }
}
