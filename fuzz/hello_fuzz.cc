// The hello and the refusal that open a connection, as a stranger may send them.
#include "net/hello.h"

#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace loom;
  const ByteView in = fuzz::View(data, size);
  if (const auto hello = net::Hello::Decode(in, 1); hello && hello->generation == 1) {
    // Texts are cleaned on the way in, so it is the second decoding that must be stable.
    const Bytes clean = hello->Encode();
    const auto again = net::Hello::Decode(clean, 1);
    fuzz::Expect(again.ok() && again->Encode() == clean, "a decoded hello encodes to itself");
  }
  if (const auto refusal = net::Refusal::Decode(in)) {
    const auto again = net::Refusal::Decode(refusal->Encode());
    fuzz::Expect(again.ok() && again->text == refusal->text, "a refusal keeps its text");
  }
  return 0;
}
