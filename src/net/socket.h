// Addresses and plain POSIX sockets: parsing, binding, connecting, options. All sockets are
// non-blocking and close-on-exec.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace loom::net {

/// "HOST:PORT", "[V6]:PORT" or "*:PORT" as people write it.
struct HostPort {
  std::string host;
  std::uint16_t port = 0;

  static Result<HostPort> Parse(std::string_view text);
  std::string ToString() const;
};

/// An IPv4 or IPv6 address with a port.
class SocketAddress {
 public:
  SocketAddress() = default;
  SocketAddress(const sockaddr* address, socklen_t size);
  /// A numeric host only; kNotFound asks for a resolver.
  static Result<SocketAddress> Numeric(const HostPort& where);

  const sockaddr* raw() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t size() const { return size_; }
  int family() const { return storage_.ss_family; }
  std::uint16_t port() const;
  void set_port(std::uint16_t port);
  bool IsLoopback() const;
  std::string ip() const;        ///< without brackets; a mapped IPv4 address as IPv4
  std::string ToString() const;  ///< "IP:PORT" or "[V6]:PORT"

 private:
  sockaddr_storage storage_{};
  socklen_t size_ = 0;
};

/// A bound, listening socket and its port.
struct Listener {
  int fd = -1;
  std::uint16_t port = 0;
};
/// `both`: an IPv6 socket that takes IPv4 too.
Result<Listener> OpenListener(const SocketAddress& address, bool both);

/// A socket on which connect() has begun; the caller waits until it is writable. Errors as of
/// ConnectError, kIo when no socket can be made.
Result<int> StartConnect(const SocketAddress& address);
/// What connect() said: kRefused (nothing listens there), kTimeout, or kUnreachable (no way there).
Error ConnectError(const SocketAddress& address, int code);
/// The pending error of a socket (0 = connected), as connect() would have reported it.
int SocketError(int fd);
Result<SocketAddress> PeerAddress(int fd);

/// No delay, keep-alive; bulk sockets also keep little unsent data in the kernel, so that pacing
/// works.
void TuneSocket(int fd, bool bulk);

}  // namespace loom::net
