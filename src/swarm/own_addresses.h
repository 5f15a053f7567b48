// Under which addresses a peer says that it can be dialled: those that can work, once each, the
// likeliest first. The same list stands in invites, in the hello and in what members tell others.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "swarm/address.h"
#include "swarm/invite.h"

namespace loom::swarm {

inline constexpr std::size_t kMaxOwnAddresses = 5;  ///< leaves room in an invite for other members

/// Where a peer listens. "*", "0.0.0.0" and "::" stand for every interface: of both families, of
/// IPv4, of IPv6.
struct Listening {
  std::string host;
  std::uint16_t port = 0;
};

/// An address of an interface that is up.
struct InterfaceAddress {
  std::string ip;
  bool way_out = false;  ///< what the default route of its family sends from
};

/// The announced address, then those listened on by name, then those of the interfaces: IPv4 before
/// IPv6, global before private, the way out before the rest. Loopback only where it is listened on
/// or nothing else is there; link-local never. None when the peer listens nowhere.
std::vector<Address> OwnAddresses(const std::optional<Address>& announced,
                                  const std::vector<Listening>& listening,
                                  const std::vector<InterfaceAddress>& interfaces);

/// The addresses of an invite: the own ones, then the best of each other member, as many as fit.
/// Loopback addresses of others only beside an own one.
std::vector<InviteAddress> InviteAddresses(
    const PeerId& self, const std::vector<Address>& own,
    const std::vector<std::pair<PeerId, std::vector<Address>>>& others);

}  // namespace loom::swarm
