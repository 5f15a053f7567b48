// The addresses of this machine, for invites: what others on the same networks may dial.
#pragma once

#include <string>
#include <vector>

namespace loom::node {

/// Numeric addresses of the interfaces that are up: global and private ones first, loopback last;
/// link-local ones are left out, since they mean nothing without their interface.
std::vector<std::string> InterfaceAddresses();

}  // namespace loom::node
