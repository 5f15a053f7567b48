// HOST:PORT as people write it: "node.example:4001", "10.0.0.2:4001", "[2001:db8::1]:4001".
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace loom::swarm {

inline constexpr std::size_t kMaxHostLength = 253;

/// An address that can be dialled. The host is a name or an IP literal, without brackets.
struct Address {
  std::string host;
  std::uint16_t port = 0;

  auto operator<=>(const Address&) const = default;
  bool operator==(const Address&) const = default;
  bool IsIpv6() const { return host.find(':') != std::string::npos; }
  bool IsIpv4() const;
  /// 127.0.0.0/8, ::1 or localhost.
  bool IsLoopback() const;
  /// RFC 1918, link-local and unique local ranges: works inside one network only.
  bool IsPrivate() const;
  std::string ToString() const;
};

/// Errors say which part is wrong. Port 0 is refused unless allow_port_zero (listening).
Result<Address> ParseAddress(std::string_view text, bool allow_port_zero = false);

}  // namespace loom::swarm
