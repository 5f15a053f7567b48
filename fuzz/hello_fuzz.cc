// The hello and the refusal that open a connection, as a stranger may send them.
#include "net/hello.h"

#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace loom;
  const ByteView in = fuzz::View(data, size);
  if (const auto hello = net::Hello::Decode(in, 1); !hello) {
    fuzz::ExpectGoodError(hello.error());
  } else if (hello->generation == 1) {
    // Texts are cleaned on the way in, so it is the second decoding that must be stable.
    const Bytes clean = hello->Encode();
    const auto again = net::Hello::Decode(clean, 1);
    fuzz::Expect(again.ok() && again->Encode() == clean, "a decoded hello encodes to itself");
    fuzz::Accept();
  }
  if (const auto refusal = net::Refusal::Decode(in); !refusal) {
    fuzz::ExpectGoodError(refusal.error());
  } else {
    const auto again = net::Refusal::Decode(refusal->Encode());
    fuzz::Expect(again.ok() && again->text == refusal->text, "a refusal keeps its text");
    fuzz::Accept();
  }
  return 0;
}

void loom::fuzz::MakeSeeds(Seeds& seeds) {
  net::Hello hello;
  hello.generation = 1;
  hello.run.bytes[0] = std::byte{1};
  hello.session = 7;
  hello.listen_port = 4001;
  hello.version = "0.1.0";
  hello.announce = {"node.example:4001", "[2001:db8::1]:4001"};
  hello.blob = ToBytes(AsBytes("blob"));
  seeds.Add("hello", hello.Encode());
  seeds.Add("refusal", net::Refusal{net::RefuseCode::kRun, "another run"}.Encode());
}
