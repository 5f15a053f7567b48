// Going out: resolving, connecting, the failures of each step, and the probe that tells a closed
// connection from a dead process.
#include <algorithm>

#include "net/transport_impl.h"

namespace loom::net {
namespace {

constexpr int kProbeAttempts = 2;
constexpr Duration kProbePause = 50ms;

constexpr std::size_t kMostProbed = 4;  // endpoints of a name that a probe touches
constexpr Duration kStagger = 250ms;    // RFC 8305: before the next endpoint is tried, too

/// One error of all endpoints; its code is that of the one that came furthest.
Error Joined(const std::vector<Error>& errors) {
  if (errors.empty()) return MakeError(Code::kUnreachable, "the name has no address");
  Error out = errors.front();
  for (std::size_t i = 1; i < errors.size(); ++i) {
    out.message += "; " + errors[i].message;
    const auto rank = [](Code code) {
      return code == Code::kRefused ? 0 : code == Code::kTimeout ? 1 : 2;
    };
    if (rank(errors[i].code) < rank(out.code)) {
      out.code = errors[i].code;
      out.hint = errors[i].hint;
    }
  }
  return out;
}

}  // namespace

void Transport::Impl::Dial(std::string address, std::optional<PeerId> expected,
                           std::shared_ptr<ProbeCall> probe) {
  const std::uint64_t id = next_number++;
  Dialling& dial = dials[id];
  dial.address = std::move(address);
  dial.expected = expected;
  dial.probe = std::move(probe);
  crypto::RandomBytes(std::as_writable_bytes(std::span(&dial.session, 1)));
  auto where = HostPort::Parse(dial.address);
  if (!where) {
    // Later, so that no event comes before Dial has returned.
    After(Duration(0),
          [this, id, error = where.error()] { FailDial(id, DialStep::kResolve, error); });
    return;
  }
  dial.timer = After(options.connect_deadline, [this, id, host = where->host] {
    FailDial(id, DialStep::kResolve,
             MakeError(Code::kTimeout, fmt::format("no answer to the look-up of {}", host)));
  });
  reactor.Resolve(*where, [weak = weak_from_this(), id](Result<std::vector<SocketAddress>> found) {
    const auto alive = weak.lock();
    const auto it = alive ? alive->dials.find(id) : decltype(alive->dials.find(id)){};
    if (!alive || it == alive->dials.end()) return;
    alive->reactor.Cancel(it->second.timer);
    if (!found) {
      alive->FailDial(id, DialStep::kResolve, found.error());
      return;
    }
    Dialling& made = it->second;
    made.endpoints = *std::move(found);
    if (made.probe && !made.endpoints.empty()) {
      const std::string first = made.endpoints.front().ip();
      std::erase_if(made.endpoints, [&](const auto& e) { return !made.probe->allowed(e.ip()); });
      if (made.endpoints.size() > kMostProbed) made.endpoints.resize(kMostProbed);
      if (made.endpoints.empty()) {
        alive->FailDial(id, DialStep::kResolve,
                        MakeError(Code::kInvalid,
                                  fmt::format("{} stands for {}, which means nothing from here",
                                              made.address, first),
                                  "give the name the router's address on the internet"));
        return;
      }
    }
    alive->ConnectNext(id);
  });
}

void Transport::Impl::DialBulk(Peer& peer) {
  const auto where = HostPort::Parse(peer.info.address);
  const auto endpoint = SocketAddress::Numeric(*where);
  const std::uint64_t id = next_number++;
  Dialling& dial = dials[id];
  dial.address = peer.info.address;
  dial.expected = peer.info.id;
  dial.kind = ConnectionKind::kBulk;
  dial.session = peer.session;
  dial.endpoints = {*endpoint};
  After(Duration(0), [this, id] { ConnectNext(id); });
}

void Transport::Impl::ConnectNext(std::uint64_t id) {
  const auto it = dials.find(id);
  if (it == dials.end()) return;
  Dialling& dial = it->second;
  reactor.Cancel(dial.timer);
  if (dial.next == dial.endpoints.size()) {
    if (dial.attempts.empty()) FailDial(id, DialStep::kConnect, Joined(dial.errors));
    return;
  }
  const std::size_t number = dial.next++;
  const SocketAddress endpoint = dial.endpoints[number];
  auto fd = StartConnect(endpoint);
  if (!fd) {
    FailAttempt(id, number, fd.error());
    return;
  }
  Dialling::Attempt& attempt = dial.attempts[number];
  attempt.watch = reactor.Watch(*fd);
  attempt.deadline = After(options.connect_deadline, [this, id, number, endpoint] {
    FailAttempt(id, number,
                MakeError(Code::kTimeout,
                          fmt::format("no answer from {} within {:.0f} s", endpoint.ToString(),
                                      Seconds(options.connect_deadline)),
                          "check the address, the firewall and the port forwarding"));
  });
  if (dial.next < dial.endpoints.size())
    dial.timer = After(kStagger, [this, id] { ConnectNext(id); });
  attempt.watch->WhenWritable([weak = weak_from_this(), id, number] {
    if (const auto alive = weak.lock()) alive->Connected(id, number);
  });
}

void Transport::Impl::Connected(std::uint64_t id, std::size_t endpoint) {
  const auto it = dials.find(id);
  if (it == dials.end() || !it->second.attempts.contains(endpoint)) return;
  auto& watch = it->second.attempts.at(endpoint).watch;
  if (const int code = SocketError(watch->fd()); code != 0) {
    FailAttempt(id, endpoint, ConnectError(it->second.endpoints[endpoint], code));
    return;
  }
  auto socket = std::move(watch);
  auto node = dials.extract(it);
  const Dialling& made = node.mapped();
  CancelTimers(made);
  Link& link =
      AddLink(std::move(socket), false, made.endpoints[endpoint].ToString(), made.expected);
  link.kind = made.kind;
  link.session = made.session;
  link.dial_address = made.address;
  link.probe = made.probe;
  if (made.expected) link.peer = *made.expected;
  const auto connection = link.connection;
  connection->Start();
}

void Transport::Impl::FailAttempt(std::uint64_t id, std::size_t endpoint, Error error) {
  const auto it = dials.find(id);
  if (it == dials.end()) return;
  if (auto attempt = it->second.attempts.extract(endpoint); !attempt.empty()) {
    reactor.Cancel(attempt.mapped().deadline);
  }
  it->second.errors.push_back(std::move(error));
  ConnectNext(id);
}

void Transport::Impl::CancelTimers(const Dialling& dial) {
  reactor.Cancel(dial.timer);
  for (const auto& [number, attempt] : dial.attempts) reactor.Cancel(attempt.deadline);
}

void Transport::Impl::FailDial(std::uint64_t id, DialStep step, Error error) {
  const auto node = dials.extract(id);
  if (node.empty()) return;
  const Dialling& dial = node.mapped();
  CancelTimers(dial);
  if (dial.probe) {
    dial.probe->done(std::pair(step, std::move(error)));
    return;
  }
  if (dial.kind == ConnectionKind::kBulk) {
    LosePeer(*dial.expected, std::nullopt, fmt::format("no bulk connection: {}", error.message));
    return;
  }
  events.OnDialFailed(dial.address, step, error);
}

void Transport::Impl::FailLink(Link& link, DialStep step, Error error) {
  const std::string address = link.dial_address;
  const bool bulk = link.kind == ConnectionKind::kBulk;
  const PeerId peer = link.peer;
  const auto probe = link.probe;
  Drop(*link.connection);
  if (probe) {
    probe->done(std::pair(step, std::move(error)));
    return;
  }
  if (bulk) {
    LosePeer(peer, std::nullopt, fmt::format("no bulk connection: {}", error.message));
    return;
  }
  events.OnDialFailed(address, step, error);
}

void Transport::Impl::Supersede(const std::string& address, const PeerId& peer) {
  After(options.handshake_deadline + 1s, [this, address, peer] {
    if (peers.contains(peer)) return;
    events.OnDialFailed(
        address, DialStep::kHello,
        MakeError(
            Code::kUnreachable,
            fmt::format("peer {} dialled us at the same time and then went away", peer.Short()),
            "dial again"));
  });
}

std::optional<SocketAddress> Transport::Impl::WhereItListens(const PeerInfo& peer) {
  auto where = HostPort::Parse(peer.address);
  if (!where) return std::nullopt;
  if (!peer.dialled_by_us) where->port = peer.listen_port;
  const auto address = SocketAddress::Numeric(*where);
  if (!address || where->port == 0) return std::nullopt;
  const auto& announced = peer.announced;
  const bool its_own =
      peer.dialled_by_us || address->IsLoopback() ||
      std::find(announced.begin(), announced.end(), address->ToString()) != announced.end();
  return its_own ? std::optional(*address) : std::nullopt;
}

void Transport::Impl::ProbeLost(const PeerId& id) {
  Lost& entry = lost.at(id);
  reactor.Cancel(entry.timer);
  entry.watch.reset();
  if (entry.attempts++ == kProbeAttempts) {
    FinishLost(id, DownReason::kClosed);
    return;
  }
  auto fd = StartConnect(entry.address);
  if (!fd) {
    const bool refused = fd.error().code == Code::kRefused;
    entry.timer = After(Duration(0), [this, id, refused] {
      FinishLost(id, refused ? DownReason::kRefusedRedial : DownReason::kClosed);
    });
    return;
  }
  entry.watch = reactor.Watch(*fd);
  entry.timer = After(options.redial_probe, [this, id] { FinishLost(id, DownReason::kClosed); });
  entry.watch->WhenWritable([weak = weak_from_this(), id] {
    const auto alive = weak.lock();
    const auto it = alive ? alive->lost.find(id) : decltype(alive->lost.find(id)){};
    if (!alive || it == alive->lost.end()) return;
    if (SocketError(it->second.watch->fd()) == ECONNREFUSED) {
      alive->FinishLost(id, DownReason::kRefusedRedial);
      return;
    }
    // A dying process may still have its port open for a moment: ask once more.
    alive->reactor.Cancel(it->second.timer);
    it->second.timer = alive->After(kProbePause, [self = alive.get(), id] {
      if (self->lost.contains(id)) self->ProbeLost(id);
    });
  });
}

void Transport::Impl::FinishLost(const PeerId& id, DownReason reason) {
  const auto node = lost.extract(id);
  if (node.empty()) return;
  reactor.Cancel(node.mapped().timer);
  std::string detail = node.mapped().detail;
  if (reason == DownReason::kRefusedRedial) {
    detail += fmt::format("; {} refuses new connections", node.mapped().address.ToString());
  }
  events.OnPeerDown(id, reason, detail);
}

}  // namespace loom::net
