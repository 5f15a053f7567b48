#include "net/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>

namespace loom::net {
namespace {

constexpr int kBulkUnsent = 256 * 1024;

Error SocketFailure(std::string_view what, const SocketAddress& address, int code) {
  return MakeError(Code::kIo,
                   fmt::format("cannot {} {}: {}", what, address.ToString(), std::strerror(code)));
}

void SetInt(int fd, int level, int name, int value) {
  ::setsockopt(fd, level, name, &value, sizeof value);
}

}  // namespace

Result<HostPort> HostPort::Parse(std::string_view text) {
  const auto bad = [&] {
    return MakeError(Code::kInvalid, fmt::format("'{}' is not HOST:PORT", text.substr(0, 300)),
                     "for example 192.168.1.20:7000, my.host:7000, [2001:db8::1]:7000 or *:7000");
  };
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || text.size() > 300) return bad();
  std::string_view host = text.substr(0, colon);
  const std::string_view digits = text.substr(colon + 1);
  HostPort out;
  const auto [end, ec] = std::from_chars(digits.data(), digits.data() + digits.size(), out.port);
  if (ec != std::errc() || end != digits.data() + digits.size()) return bad();
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return bad();
  }
  if (host.empty()) return bad();
  for (const char c : host) {
    if (c <= ' ' || c == '/' || c == '[' || c == ']' || c == 0x7f) return bad();
  }
  out.host = host;
  return out;
}

std::string HostPort::ToString() const {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

SocketAddress::SocketAddress(const sockaddr* address, socklen_t size) {
  LOOM_CHECK(size <= sizeof storage_);
  std::memcpy(&storage_, address, size);
  size_ = size;
}

Result<SocketAddress> SocketAddress::Numeric(const HostPort& where) {
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(where.port);
  if (::inet_pton(AF_INET, where.host.c_str(), &v4.sin_addr) == 1) {
    return SocketAddress(reinterpret_cast<const sockaddr*>(&v4), sizeof v4);
  }
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(where.port);
  if (::inet_pton(AF_INET6, where.host.c_str(), &v6.sin6_addr) == 1) {
    return SocketAddress(reinterpret_cast<const sockaddr*>(&v6), sizeof v6);
  }
  return MakeError(Code::kNotFound, fmt::format("{} is a name", where.host));
}

std::uint16_t SocketAddress::port() const {
  if (family() == AF_INET6)
    return ntohs(reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_port);
  return ntohs(reinterpret_cast<const sockaddr_in*>(&storage_)->sin_port);
}

void SocketAddress::set_port(std::uint16_t port) {
  if (family() == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(&storage_)->sin6_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in*>(&storage_)->sin_port = htons(port);
  }
}

std::string SocketAddress::ip() const {
  char text[INET6_ADDRSTRLEN] = "?";
  if (family() == AF_INET6) {
    const in6_addr& v6 = reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_addr;
    if (IN6_IS_ADDR_V4MAPPED(&v6)) {
      ::inet_ntop(AF_INET, v6.s6_addr + 12, text, sizeof text);
    } else {
      ::inet_ntop(AF_INET6, &v6, text, sizeof text);
    }
  } else if (family() == AF_INET) {
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(&storage_)->sin_addr, text,
                sizeof text);
  }
  return text;
}

bool SocketAddress::IsLoopback() const {
  const std::string text = ip();
  return text.starts_with("127.") || text == "::1";
}

std::string SocketAddress::ToString() const { return HostPort{ip(), port()}.ToString(); }

Result<Listener> OpenListener(const SocketAddress& address, bool both) {
  const int fd = ::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return SocketFailure("open a socket for", address, errno);
  SetInt(fd, SOL_SOCKET, SO_REUSEADDR, 1);
  if (address.family() == AF_INET6) SetInt(fd, IPPROTO_IPV6, IPV6_V6ONLY, both ? 0 : 1);
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  if (::bind(fd, address.raw(), address.size()) != 0 || ::listen(fd, 128) != 0 ||
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size) != 0) {
    const int code = errno;
    ::close(fd);
    Error error = SocketFailure("listen on", address, code);
    if (code == EADDRINUSE) {
      error.code = Code::kConflict;
      error.hint = "another program uses this port; choose another with --listen HOST:PORT";
    } else if (code == EADDRNOTAVAIL) {
      error.hint = "give an address of this machine (ip address lists them), or *:PORT for all";
    } else if (code == EACCES) {
      error.hint = "ports below 1024 take root; choose a higher one with --listen HOST:PORT";
    }
    return error;
  }
  return Listener{fd, SocketAddress(reinterpret_cast<const sockaddr*>(&bound), size).port()};
}

Result<int> StartConnect(const SocketAddress& address) {
  const int fd = ::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return SocketFailure("open a socket for", address, errno);
  if (::connect(fd, address.raw(), address.size()) != 0 && errno != EINPROGRESS) {
    const int code = errno;
    ::close(fd);
    return ConnectError(address, code);
  }
  return fd;
}

Error ConnectError(const SocketAddress& address, int code) {
  const std::string text =
      fmt::format("cannot connect to {}: {}", address.ToString(), std::strerror(code));
  switch (code) {
    case ECONNREFUSED:
      return MakeError(Code::kRefused, text, "nothing listens there: does the peer run?");
    case ETIMEDOUT:
      return MakeError(Code::kTimeout, text, "check the firewall and the port forwarding");
    default:
      return MakeError(Code::kUnreachable, text, "this machine has no way there: is it online?");
  }
}

int SocketError(int fd) {
  int code = 0;
  socklen_t size = sizeof code;
  return ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &size) == 0 ? code : errno;
}

Result<SocketAddress> PeerAddress(int fd) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&storage), &size) != 0) {
    return MakeError(Code::kIo, fmt::format("getpeername: {}", std::strerror(errno)));
  }
  return SocketAddress(reinterpret_cast<const sockaddr*>(&storage), size);
}

void TuneSocket(int fd, bool bulk) {
  SetInt(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  SetInt(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  if (bulk) SetInt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, kBulkUnsent);
}

}  // namespace loom::net
