// HOST:PORT as people write it: "node.example:4001", "10.0.0.2:4001", "[2001:db8::1]:4001".
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace loom::swarm {

inline constexpr std::size_t kMaxHostLength = 253;

/// From where an address can be dialled.
enum class AddressScope : std::uint8_t {
  kGlobal,   ///< a name, or an IP address that works from everywhere
  kPrivate,  ///< RFC 1918, shared (100.64.0.0/10), unique local, *.local: within one network or VPN
  kLoopback,  ///< 127.0.0.0/8, ::1, localhost: on one machine
  kNowhere,   ///< link-local without its interface, unspecified, multicast, reserved
};

/// An address that can be dialled. The host is a name or an IP literal, without brackets.
struct Address {
  std::string host;
  std::uint16_t port = 0;

  auto operator<=>(const Address&) const = default;
  bool operator==(const Address&) const = default;
  bool IsIpv6() const { return host.find(':') != std::string::npos; }
  bool IsIpv4() const;
  AddressScope Scope() const;
  bool IsLoopback() const { return Scope() == AddressScope::kLoopback; }
  /// Whether a peer may be told of it, or believed about it, over a connection of that kind: a
  /// loopback address means something on the same machine only.
  bool MeansSomething(bool over_loopback) const;
  std::string ToString() const;
};

/// Errors say which part is wrong. Port 0 is refused unless allow_port_zero (listening).
Result<Address> ParseAddress(std::string_view text, bool allow_port_zero = false);

}  // namespace loom::swarm
