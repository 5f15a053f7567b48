#include "net/bulk_pacer.h"

#include <linux/tcp.h>  // not netinet/tcp.h: glibc's tcp_info lacks the newer fields
#include <netinet/in.h>
#include <sys/socket.h>

namespace loom::net {

PathSample ReadPath(int fd) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return {};
  return {std::chrono::microseconds(info.tcpi_rtt),
          std::chrono::microseconds(std::min(info.tcpi_min_rtt, info.tcpi_rtt)),
          info.tcpi_delivery_rate};
}

void SetPacingRate(int fd, std::uint64_t bytes_per_second) {
  const std::uint64_t rate = bytes_per_second == 0 ? UINT64_MAX : bytes_per_second;
  if (::setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof rate) != 0) {
    const auto narrow = static_cast<std::uint32_t>(std::min<std::uint64_t>(rate, UINT32_MAX));
    ::setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &narrow, sizeof narrow);
  }
}

}  // namespace loom::net
