#include "node/interfaces.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <linux/if_addr.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <string_view>

#include "net/socket.h"

namespace loom::node {
namespace {

constexpr std::array<std::string_view, 8> kHostBridges{"docker", "podman", "br-",   "virbr",
                                                       "lxcbr",  "lxdbr",  "vmnet", "vboxnet"};
// Addresses for documentation: nobody has them, so the route there is the default route.
constexpr const char* kSomewhereV4 = "192.0.2.1";
constexpr const char* kSomewhereV6 = "2001:db8::1";

/// What the kernel would send from to a far address; no packet leaves. Empty without a route.
std::string SourceTowards(const char* far) {
  const auto address = net::SocketAddress::Numeric({far, 9});
  const int fd = address ? ::socket(address->family(), SOCK_DGRAM | SOCK_CLOEXEC, 0) : -1;
  if (fd < 0) return "";
  std::string ip;
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  if (::connect(fd, address->raw(), address->size()) == 0 &&
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) == 0) {
    ip = net::SocketAddress(reinterpret_cast<const sockaddr*>(&own), size).ip();
  }
  ::close(fd);
  return ip;
}

/// IPv6 addresses that are not to be given away, as 32 hex digits (the form of /proc).
std::set<std::string> UnfitIpv6() {
  std::set<std::string> unfit;
  std::ifstream file("/proc/net/if_inet6");
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string address, index, prefix, scope;
    unsigned flags = 0;
    if (!(fields >> address >> index >> prefix >> scope >> std::hex >> flags)) continue;
    constexpr unsigned kUnfit =
        IFA_F_TEMPORARY | IFA_F_DEPRECATED | IFA_F_TENTATIVE | IFA_F_DADFAILED;
    if ((flags & kUnfit) != 0) unfit.insert(address);
  }
  return unfit;
}

std::string HexOf(const in6_addr& address) {
  std::string out;
  for (const std::uint8_t byte : address.s6_addr) out += fmt::format("{:02x}", byte);
  return out;
}

}  // namespace

std::vector<swarm::InterfaceAddress> InterfaceAddresses() {
  std::vector<swarm::InterfaceAddress> out;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {{"127.0.0.1", false}};
  const std::set<std::string> unfit = UnfitIpv6();
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    constexpr unsigned kNeeded = IFF_UP | IFF_RUNNING;
    if (i->ifa_addr == nullptr || (i->ifa_flags & kNeeded) != kNeeded) continue;
    const std::string_view name = i->ifa_name;
    if (std::any_of(kHostBridges.begin(), kHostBridges.end(),
                    [&](std::string_view prefix) { return name.starts_with(prefix); })) {
      continue;
    }
    std::string ip;
    if (i->ifa_addr->sa_family == AF_INET) {
      ip = net::SocketAddress(i->ifa_addr, sizeof(sockaddr_in)).ip();
    } else if (i->ifa_addr->sa_family == AF_INET6) {
      const auto* v6 = reinterpret_cast<const sockaddr_in6*>(i->ifa_addr);
      if (unfit.contains(HexOf(v6->sin6_addr))) continue;
      ip = net::SocketAddress(i->ifa_addr, sizeof(sockaddr_in6)).ip();
    } else {
      continue;
    }
    const auto scope = swarm::Address{ip, 1}.Scope();
    if (scope != swarm::AddressScope::kNowhere) out.push_back({ip, false});
  }
  ::freeifaddrs(list);
  // A route may prefer a temporary address, which is left out: then nothing is marked.
  for (const char* far : {kSomewhereV4, kSomewhereV6}) {
    const std::string source = SourceTowards(far);
    for (auto& address : out) address.way_out = address.way_out || address.ip == source;
  }
  return out;
}

}  // namespace loom::node
