// Records, bodies and genesis as peers send them: what is accepted is written back byte for byte,
// since their hash is what is chained (R1). The first byte chooses which of them.
#include "collab/record.h"

#include <algorithm>

#include "fuzz/fuzz.h"
#include "fuzz/seeds/samples.h"

namespace {

template <class T>
void RoundTrip(loom::ByteView bytes) {
  const loom::Result<T> read = T::Decode(bytes);
  if (!read.ok()) {
    loom::fuzz::ExpectGoodError(read.error());
    return;
  }
  loom::fuzz::Expect(std::ranges::equal(read.value().Encode(), bytes),
                     "an accepted message is written back byte for byte");
  loom::fuzz::Accept();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace loom;
  if (size < 1) return 0;
  const ByteView bytes = fuzz::View(data + 1, size - 1);
  switch (data[0] % 3) {
    case 0:
      RoundTrip<collab::Body>(bytes);
      break;
    case 1:
      RoundTrip<collab::Record>(bytes);
      break;
    default:
      RoundTrip<collab::Genesis>(bytes);
      break;
  }
  return 0;
}

void loom::fuzz::MakeSeeds(Seeds& seeds) {
  seeds.Add("body", Script().Byte(0).Raw(SampleBody().Encode()));
  seeds.Add("record", Script().Byte(1).Raw(SampleRecord().Encode()));
  seeds.Add("genesis", Script().Byte(2).Raw(SampleGenesis().Encode()));
}
