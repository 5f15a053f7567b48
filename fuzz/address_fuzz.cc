// Addresses from people, invites and peers, one a line: what is accepted is written so that it is
// read back equal, by the swarm and by the sockets alike.
#include <algorithm>

#include "fuzz/fuzz.h"
#include "net/socket.h"
#include "swarm/own_addresses.h"

namespace loom::fuzz {
namespace {

bool One(std::string_view line) {
  const auto address = swarm::ParseAddress(line, true);
  if (!address.ok()) {
    ExpectGoodError(address.error());
  } else {
    const auto again = swarm::ParseAddress(address.value().ToString(), true);
    Expect(again.ok() && again.value() == address.value(), "an address survives its text");
    (void)address.value().Scope();
    const auto where = net::HostPort::Parse(address.value().ToString());
    Expect(where.ok() && where.value().port == address.value().port,
           "what the swarm takes for an address can be dialled", line);
  }
  const auto where = net::HostPort::Parse(line);
  if (!where.ok()) {
    ExpectGoodError(where.error());
    return address.ok();
  }
  const auto again = net::HostPort::Parse(where.value().ToString());
  Expect(again.ok() && again.value().host == where.value().host &&
             again.value().port == where.value().port,
         "host and port survive their text", line);
  if (const auto numeric = net::SocketAddress::Numeric(where.value()); numeric.ok()) {
    const auto text = net::HostPort::Parse(numeric.value().ToString());
    Expect(text.ok(), "the text of a socket's address is one", numeric.value().ToString());
  }
  return address.ok();
}

}  // namespace
}  // namespace loom::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace loom;
  std::string_view text = fuzz::Text(data, size);
  std::vector<swarm::Listening> listening;
  std::vector<swarm::InterfaceAddress> interfaces;
  bool all = true;
  for (std::size_t n = 0; n < 16; ++n) {
    const std::string_view line = text.substr(0, text.find('\n'));
    all = fuzz::One(line) && all;
    listening.push_back({std::string(line), static_cast<std::uint16_t>(4000 + n)});
    interfaces.push_back({std::string(line), n % 2 == 0});
    if (line.size() == text.size()) break;
    text.remove_prefix(line.size() + 1);
  }
  const auto own = swarm::OwnAddresses(std::nullopt, listening, interfaces);
  fuzz::Expect(
      swarm::InviteAddresses({}, own, {{PeerId{}, own}}).size() <= swarm::kMaxInviteAddresses,
      "the addresses of an invite fit");
  if (all) fuzz::Accept();
  return 0;
}

void loom::fuzz::MakeSeeds(Seeds& seeds) {
  seeds.Add("kinds", "node.example:4001\n10.0.0.2:4001\n[2001:db8::1]:4001\n127.0.0.1:80");
  seeds.Add("port-zero", "[::]:0");
  seeds.AddRefused("zone", "[fe80::1%eth0]:4001");
}
