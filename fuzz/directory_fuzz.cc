// Where peers may be found, told by strangers: whatever is said, the list is bounded, no address of
// this peer's own is dialled, and no more at once than was asked for.
#include "swarm/directory.h"

#include "fuzz/fuzz.h"

namespace loom::fuzz {
namespace {

PeerId Id(std::size_t i) {
  PeerId id;
  id.bytes[0] = static_cast<std::byte>(i % 8);
  return id;
}

swarm::Address AddressOf(Input& in) {
  static constexpr std::string_view kHosts[] = {"node.example", "10.0.0.2",     "127.0.0.1",
                                                "2001:db8::1",  "0.0.0.0",      "fe80::1",
                                                "224.0.0.1",    "printer.local"};
  const std::size_t choice = in.Byte();
  if (choice < 224)
    return {std::string(kHosts[choice % 8]), static_cast<std::uint16_t>(4000 + choice / 8)};
  const auto address = swarm::ParseAddress(AsText(in.Take(in.Byte())));
  return address.ok() ? address.value() : swarm::Address{"node.example", 1};
}

}  // namespace
}  // namespace loom::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace loom;
  fuzz::Input in(data, size);
  const PeerId self = fuzz::Id(1);
  swarm::Directory directory(self, in.Byte());
  Time now{};
  bool dialled = false;
  for (std::size_t steps = 0; steps < 400 && !in.empty(); ++steps) {
    const std::size_t what = in.Below(8);
    const PeerId peer = fuzz::Id(in.Byte());
    switch (what) {
      case 0:
      case 1: {
        const auto address = fuzz::AddressOf(in);
        const auto source = static_cast<swarm::AddressSource>(in.Below(4));
        directory.Learn(peer, address, source, in.Below(12));
        break;
      }
      case 2: {
        std::vector<swarm::Address> claimed(in.Below(12));
        for (swarm::Address& address : claimed) address = fuzz::AddressOf(in);
        directory.Claims(peer, claimed);
        break;
      }
      case 3: {
        const std::size_t most = in.Below(10);
        const auto due = directory.Due(now, most);
        fuzz::Expect(due.size() <= most, "no more is dialled than was asked for");
        for (const auto& candidate : due)
          fuzz::Expect(candidate.peer != self, "nobody dials itself");
        for (const auto& candidate : due) {
          dialled = true;
          const std::size_t end = in.Below(3);
          if (end == 0) directory.Connected(candidate.address, peer);
          if (end == 1)
            directory.Failed(candidate.address, static_cast<swarm::TryResult>(in.Below(4)), now);
        }
        break;
      }
      case 4:
        directory.Connected(peer);
        break;
      case 5:
        directory.Closed(peer, now);
        break;
      case 6:
        now += std::chrono::milliseconds(in.Byte()) * 100;
        break;
      default:
        directory.Forget(peer);
    }
    fuzz::Expect(directory.size() <= swarm::kMaxKnownAddresses, "the list is bounded");
    fuzz::Expect(directory.AddressesOf(peer).size() <= swarm::kMaxAddressesPerPeer || peer.IsZero(),
                 "a peer's addresses are bounded");
    (void)directory.NobodyThere(peer);
    (void)directory.FirstHand(peer);
  }
  (void)directory.Known();
  if (dialled) fuzz::Accept();
  return 0;
}

void loom::fuzz::MakeSeeds(Seeds& seeds) {
  Script script;
  script.Byte(7);
  for (const std::size_t peer : {2U, 3U, 0U})
    script.Byte(0).Byte(peer).Byte(8 * peer).Byte(peer).Byte(0);
  script.Byte(2).Byte(4).Byte(2).Byte(16).Byte(17);
  script.Byte(3).Byte(2).Byte(5).Byte(0).Byte(1).Byte(2).Byte(2).Byte(1).Byte(1);
  script.Byte(6).Byte(0).Byte(200).Byte(5).Byte(2).Byte(3).Byte(3).Byte(9).Byte(1).Byte(0);
  seeds.Add("dials", script);
}
