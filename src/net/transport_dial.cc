// Going out: resolving, connecting, the failures of each step, and the probe that tells a closed
// connection from a dead process.
#include <cstring>

#include "base/log.h"
#include "net/transport_impl.h"

namespace loom::net {
namespace {

constexpr int kProbeAttempts = 2;
constexpr Duration kProbePause = 50ms;

Error ConnectError(const SocketAddress& address, int code) {
  return MakeError(code == ECONNREFUSED ? Code::kRefused : Code::kUnreachable,
                   fmt::format("cannot connect to {}: {}", address.ToString(), std::strerror(code)),
                   code == ECONNREFUSED
                       ? "nothing listens there: is the peer running, is the port right?"
                       : "check the address, the firewall and the port forwarding");
}

}  // namespace

void Transport::Impl::Dial(std::string address, std::optional<PeerId> expected) {
  const std::uint64_t id = next_number++;
  Dialling& dial = dials[id];
  dial.address = std::move(address);
  dial.expected = expected;
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
    it->second.endpoints = *std::move(found);
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
  dial.watch.reset();
  reactor.Cancel(dial.timer);
  if (dial.next == dial.endpoints.size()) {
    FailDial(id, DialStep::kConnect,
             dial.last.value_or(MakeError(Code::kUnreachable, "the name has no address")));
    return;
  }
  const SocketAddress endpoint = dial.endpoints[dial.next++];
  auto fd = StartConnect(endpoint);
  if (!fd) {
    dial.last = fd.error();
    ConnectNext(id);
    return;
  }
  dial.watch = reactor.Watch(*fd);
  dial.timer = After(options.connect_deadline, [this, id, endpoint] {
    if (const auto late = dials.find(id); late != dials.end()) {
      late->second.last =
          MakeError(Code::kTimeout,
                    fmt::format("no answer from {} within {:.0f} s", endpoint.ToString(),
                                Seconds(options.connect_deadline)),
                    "check the address, the firewall and the port forwarding");
      ConnectNext(id);
    }
  });
  dial.watch->WhenWritable([weak = weak_from_this(), id, endpoint] {
    const auto alive = weak.lock();
    if (!alive) return;
    const auto at = alive->dials.find(id);
    if (at == alive->dials.end()) return;
    const int code = SocketError(at->second.watch->fd());
    if (code != 0) {
      at->second.last = ConnectError(endpoint, code);
      alive->ConnectNext(id);
      return;
    }
    auto node = alive->dials.extract(at);
    Dialling& made = node.mapped();
    alive->reactor.Cancel(made.timer);
    Link& link = alive->AddLink(std::move(made.watch), false, endpoint.ToString(), made.expected);
    link.kind = made.kind;
    link.session = made.session;
    link.dial_address = made.address;
    if (made.expected) link.peer = *made.expected;
    const auto connection = link.connection;
    connection->Start();
  });
}

void Transport::Impl::FailDial(std::uint64_t id, DialStep step, Error error) {
  const auto node = dials.extract(id);
  if (node.empty()) return;
  const Dialling& dial = node.mapped();
  reactor.Cancel(dial.timer);
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
  Drop(*link.connection);
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
