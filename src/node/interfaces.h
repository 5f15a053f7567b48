// The addresses of this machine, for what a peer tells of itself.
#pragma once

#include <vector>

#include "swarm/own_addresses.h"

namespace loom::node {

/// Numeric addresses of the interfaces that are up, loopback included. Left out: link-local ones,
/// IPv6 ones that are temporary, deprecated or not yet (or never to be) usable, and those of
/// bridges that exist for this machine's own containers and virtual machines.
std::vector<swarm::InterfaceAddress> InterfaceAddresses();

}  // namespace loom::node
