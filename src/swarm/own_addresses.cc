#include "swarm/own_addresses.h"

#include <algorithm>
#include <tuple>

namespace loom::swarm {

std::vector<Address> OwnAddresses(const std::optional<Address>& announced,
                                  const std::vector<Listening>& listening,
                                  const std::vector<InterfaceAddress>& interfaces) {
  std::vector<Address> own;
  const auto add = [&own](Address address) {
    if (own.size() < kMaxOwnAddresses && std::find(own.begin(), own.end(), address) == own.end()) {
      own.push_back(std::move(address));
    }
  };
  if (listening.empty()) return own;
  if (announced) add(*announced);
  struct Candidate {
    Address address;
    bool way_out;
    std::size_t place;
  };
  std::vector<Candidate> found;
  for (const Listening& at : listening) {
    const bool all_v4 = at.host == "*" || at.host == "0.0.0.0";
    const bool all_v6 = at.host == "*" || at.host == "::";
    if (!all_v4 && !all_v6) {
      if (Address address{at.host, at.port}; address.MeansSomething(true)) add(std::move(address));
      continue;
    }
    for (const InterfaceAddress& i : interfaces) {
      const Address address{i.ip, at.port};
      if (address.IsIpv6() ? all_v6 : all_v4) found.push_back({address, i.way_out, found.size()});
    }
  }
  const auto order = [](const Candidate& c) {
    return std::tuple(c.address.IsIpv6(), c.address.Scope(), !c.way_out, c.place);
  };
  std::sort(found.begin(), found.end(),
            [&](const auto& a, const auto& b) { return order(a) < order(b); });
  for (const bool loopback : {false, true}) {
    if (loopback && !own.empty()) break;
    for (const Candidate& c : found) {
      if (c.address.IsLoopback() == loopback && c.address.MeansSomething(true)) add(c.address);
    }
  }
  return own;
}

std::vector<InviteAddress> InviteAddresses(
    const PeerId& self, const std::vector<Address>& own,
    const std::vector<std::pair<PeerId, std::vector<Address>>>& others) {
  std::vector<InviteAddress> out;
  for (const Address& address : own) {
    if (out.size() < kMaxInviteAddresses) out.push_back({address, self});
  }
  const bool one_machine =
      std::any_of(own.begin(), own.end(), [](const Address& a) { return a.IsLoopback(); });
  for (const auto& [peer, addresses] : others) {
    const auto best = std::find_if(addresses.begin(), addresses.end(), [&](const Address& address) {
      return address.MeansSomething(one_machine);
    });
    if (best != addresses.end() && out.size() < kMaxInviteAddresses) out.push_back({*best, peer});
  }
  return out;
}

}  // namespace loom::swarm
