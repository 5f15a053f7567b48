// The checks of the network on this machine, and of the clock against the others'.
#include <fmt/format.h>
#include <poll.h>
#include <sys/timex.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>

#include "app/control.h"
#include "app/doctor.h"
#include "base/file.h"
#include "base/time.h"
#include "net/socket.h"
#include "node/checkup.h"

namespace loom::app {

using doctor::Items;
using doctor::PortOf;
using doctor::Short;
using doctor::Text;

namespace {

constexpr std::int64_t kEarliestClock = 1735689600;  // 2025-01-01
constexpr double kMaxClockOffset = 60;               // s
constexpr Duration kPatience = node::Checkup::kLimit + 3s;

Finding CheckClock(const Patient& patient) {
  const std::int64_t now = SystemClock().WallSeconds();
  if (now < kEarliestClock) {
    return Fail(fmt::format("the clock says {} s after 1970, which is long past", now),
                "set it: sudo timedatectl set-ntp true (invites expire by it)");
  }
  double most = 0;
  std::string whose;
  std::size_t members = 0;
  for (const json::Value& m :
       patient.checkup ? Items(*patient.checkup, "members") : json::Array{}) {
    const json::Value* found = m.Find("clock_offset_s");
    double offset = 0;
    if (found == nullptr || !found->AsNumber(offset)) continue;
    ++members;
    if (std::abs(offset) >= std::abs(most)) {
      most = offset;
      whose = Short(Text(m, "peer"));
    }
  }
  if (std::abs(most) > kMaxClockOffset) {
    return Warn(fmt::format("{:.0f} s {} that of {}", std::abs(most),
                            most > 0 ? "behind" : "ahead of", whose),
                "one of the two is wrong: sudo timedatectl set-ntp true there (invites expire by "
                "it)");
  }
  timex state{};
  const int code = ::adjtimex(&state);
  if (code >= 0 && code != TIME_ERROR && (state.status & STA_UNSYNC) == 0) {
    return Pass(members == 0 ? "synchronised"
                             : fmt::format("synchronised, {:.0f} s from {}", most, whose));
  }
  if (members > 0) return Pass(fmt::format("{:.0f} s from that of {}", most, whose));
  return Warn("no program says that it keeps the clock right",
              "invites expire by it; sudo timedatectl set-ntp true");
}

Result<std::uint16_t> Bind(const std::string& where) {
  const bool any = where.starts_with("*:");
  LOOM_ASSIGN(const net::HostPort parsed, net::HostPort::Parse(where));
  LOOM_ASSIGN(const net::SocketAddress address,
              net::SocketAddress::Numeric(any ? net::HostPort{"::", parsed.port} : parsed));
  LOOM_ASSIGN(const net::Listener listener, net::OpenListener(address, any));
  const std::uint16_t port = listener.port;
  ::close(listener.fd);
  return port;
}

/// Listens on a loopback port and connects to it: nothing between may forbid that.
Finding CheckLoopback() {
  const auto meet = []() -> Status {
    LOOM_ASSIGN(net::SocketAddress address, net::SocketAddress::Numeric({"127.0.0.1", 0}));
    LOOM_ASSIGN(const net::Listener listener, net::OpenListener(address, false));
    address.set_port(listener.port);
    auto socket = net::StartConnect(address);
    pollfd ready{socket ? *socket : -1, POLLOUT, 0};
    const bool connected = socket && ::poll(&ready, 1, 2000) == 1 && net::SocketError(*socket) == 0;
    if (socket) ::close(*socket);
    ::close(listener.fd);
    if (!socket) return socket.error();
    if (!connected) return MakeError(Code::kIo, "a port of 127.0.0.1 does not take connections");
    return {};
  };
  const Status met = meet();
  if (!met) return Fail(met.error(), "look for a firewall or sandbox around this program");
  return Pass("127.0.0.1 takes connections");
}

Finding CheckIpv6() {
  const auto port = Bind("[::1]:0");
  if (port) return Pass("[::1] can be listened on");
  return Warn(port.error().message, "peers that have IPv6 only cannot reach this one");
}

Finding CheckListen(const std::string& where) {
  const auto port = Bind(where);
  if (!port) return Fail(port.error(), "choose another address with --listen");
  return Pass(fmt::format("{} is free (port {})", where, *port));
}

/// Whether the port of the patient's peer is bound: by the peer itself when it runs, else by
/// nobody.
Finding CheckPorts(const Patient& patient) {
  if (patient.checkup) {
    const std::uint16_t port = PortOf(*patient.checkup);
    if (port == 0) {
      return Warn("the peer listens nowhere and only dials out",
                  fmt::format("it takes part all the same; to be reached by others: loom join "
                              "--dir {} --listen '*:4711'",
                              patient.dir));
    }
    return Pass(
        fmt::format("the peer listens at {}, port {}", Text(*patient.checkup, "listen"), port));
  }
  const auto kept = ReadFile(patient.dir + "/keys/port", 16);
  if (!kept) return Pass("none yet: the first start chooses one and keeps it (--listen '*:4711')");
  const auto listen = ReadFile(patient.dir + "/keys/listen", 512);
  const std::size_t colon = listen ? listen->rfind(':') : std::string::npos;
  const auto port =
      Bind((colon == std::string::npos ? "*" : listen->substr(0, colon)) + ":" + *kept);
  if (port) return Pass(fmt::format("{} is free, as this folder's peer needs it", *kept));
  return Fail(
      fmt::format("{}, the port of this folder's peer, is taken: {}", *kept, port.error().message),
      fmt::format("ss -ltnp 'sport = :{}' shows by whom; end that program, or take another "
                  "port with --listen and in the router's forward",
                  *kept));
}

}  // namespace

void AskPeerForCheckup(Patient& patient) {
  auto answer = AskPeer(patient.dir, {{"verb", json::Value("checkup")}}, kPatience);
  if (answer) {
    patient.checkup = *std::move(answer);
  } else {
    patient.no_checkup = answer.error().message;
  }
}

std::vector<Check> NetworkChecks(const Patient& patient) {
  std::vector<Check> checks{{"clock", [patient] { return CheckClock(patient); }},
                            {"loopback", CheckLoopback},
                            {"ipv6", CheckIpv6},
                            {"port", [patient] { return CheckPorts(patient); }},
                            {"dial_back", [patient] { return CheckDialBack(patient); }}};
  if (!patient.listen.empty())
    checks.push_back({"listen", [where = patient.listen] { return CheckListen(where); }});
  return checks;
}

}  // namespace loom::app
