// A frame header from the network: what is accepted is under its cap and is written back as it was
// read.
#include "wire/frame.h"

#include <algorithm>

#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace loom;
  if (size < wire::kFrameHeaderBytes) return 0;
  const ByteView header = fuzz::View(data, wire::kFrameHeaderBytes);
  const wire::FrameCaps caps{.otherwise = 1 << 16, .by_type = {{7, 1 << 20}}};
  const Result<wire::FrameHeader> read = wire::DecodeFrameHeader(header, caps);
  if (!read.ok()) return 0;
  const wire::FrameHeader& frame = read.value();
  fuzz::Expect(frame.length >= wire::kFrameHeaderBytes, "a frame holds its header");
  fuzz::Expect(frame.payload_size() <= caps.Of(frame.type),
               "a payload is under the cap of its type");
  const auto again =
      wire::EncodeFrameHeader(frame.type, frame.flags, frame.request_id, frame.payload_size());
  fuzz::Expect(std::ranges::equal(again, header),
               "an accepted header is written back as it was read");
  fuzz::Accept();
  return 0;
}

void loom::fuzz::MakeSeeds(Seeds& seeds) {
  seeds.Add("small", wire::EncodeFrameHeader(3, 0, 1, 100));
  seeds.Add("own-cap", wire::EncodeFrameHeader(7, 1, UINT64_MAX, 1 << 20));
  seeds.AddRefused("over-the-cap", wire::EncodeFrameHeader(8, 0, 0, 1 << 20));
}
