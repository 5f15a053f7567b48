// Coming in: listening, who may wait unauthenticated, the hello of both sides, and what happens
// when one identity turns up twice.
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "net/transport_impl.h"

namespace loom::net {
namespace {

constexpr int kAcceptTurn = 32;
constexpr Duration kAcceptPause = 200ms;
constexpr Duration kLeastProbe = 500ms, kMostProbe = 1500ms;

Blob TextBlob(const std::string& text) { return MakeBlob(ToBytes(AsBytes(text))); }

}  // namespace

Result<std::vector<std::uint16_t>> Transport::Impl::Listen(
    const std::vector<std::string>& addresses) {
  std::vector<ListenSocket> opened;
  std::vector<std::uint16_t> ports;
  std::uint16_t same_port = 0;
  for (const std::string& text : addresses) {
    auto parsed = HostPort::Parse(text);
    if (!parsed) return std::move(parsed).error();
    HostPort where = *parsed;
    const bool all = where.host == "*";
    if (where.port == 0) where.port = same_port;
    if (all) where.host = "::";
    if (where.host == "localhost") where.host = "127.0.0.1";
    auto address = SocketAddress::Numeric(where);
    if (!address) {
      return MakeError(Code::kInvalid, fmt::format("cannot listen on the name {}", where.host),
                       "give an address of this machine, or *:PORT for all of them");
    }
    auto socket = OpenListener(*address, all);
    if (!socket && all) {  // a machine without IPv6
      LOOM_ASSIGN(const SocketAddress v4, SocketAddress::Numeric({"0.0.0.0", where.port}));
      socket = OpenListener(v4, false);
    }
    if (!socket) return socket.error();
    opened.push_back({reactor.Watch(socket->fd), 0});
    ports.push_back(socket->port);
    same_port = socket->port;
  }
  if (ports.empty()) return MakeError(Code::kInvalid, "no address to listen on");
  for (ListenSocket& socket : opened) {
    listeners.push_back(std::move(socket));
    AcceptFrom(listeners.size() - 1);
  }
  if (listen_port == 0) listen_port = ports.front();
  return ports;
}

void Transport::Impl::AcceptFrom(std::size_t index) {
  for (int turn = 0; turn < kAcceptTurn; ++turn) {
    sockaddr_storage storage{};
    socklen_t size = sizeof storage;
    const int fd = ::accept4(listeners[index].watch->fd(), reinterpret_cast<sockaddr*>(&storage),
                             &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
      Adopt(fd, SocketAddress(reinterpret_cast<const sockaddr*>(&storage), size));
      continue;
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      LogRejected("everyone", fmt::format("cannot accept: {}", std::strerror(errno)));
      listeners[index].retry = After(kAcceptPause, [this, index] { AcceptFrom(index); });
      return;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) break;
  }
  listeners[index].watch->WhenReadable([weak = weak_from_this(), index] {
    if (const auto alive = weak.lock()) alive->AcceptFrom(index);
  });
}

void Transport::Impl::MakeRoom(const std::string& ip) {
  std::size_t all = 0, here = 0;
  Link* oldest = nullptr;
  Link* oldest_here = nullptr;
  for (auto& [connection, link] : links) {
    if (!connection->accepted() || link.state > LinkState::kAwaitHello) continue;
    ++all;
    if (oldest == nullptr || link.order < oldest->order) oldest = &link;
    if (link.ip != ip) continue;
    ++here;
    if (oldest_here == nullptr || link.order < oldest_here->order) oldest_here = &link;
  }
  Link* out = nullptr;
  if (here >= options.max_unauthenticated_per_address) out = oldest_here;
  if (all >= options.max_unauthenticated) out = here > 1 ? oldest_here : oldest;
  if (out == nullptr) return;
  LogRejected(out->connection->remote(), "too many connections wait to say who they are");
  Drop(*out->connection);
}

void Transport::Impl::Adopt(int fd, const SocketAddress& remote) {
  auto socket = reactor.Watch(fd);
  MakeRoom(remote.ip());
  Link& link = AddLink(std::move(socket), true, remote.ToString(), std::nullopt);
  link.ip = remote.ip();
  const auto connection = link.connection;
  connection->Start();
}

Link& Transport::Impl::AddLink(std::unique_ptr<FdWatch> socket, bool accepted, std::string remote,
                               std::optional<PeerId> expected) {
  auto connection = std::make_shared<Connection>(reactor, *this, tls, std::move(socket), accepted,
                                                 std::move(remote), expected);
  Link& link = links[connection.get()];
  link.connection = connection;
  link.order = next_number++;
  link.deadline = After(options.handshake_deadline, [this, raw = connection.get()] {
    Link* late = FindLink(*raw);
    if (late == nullptr || late->state == LinkState::kUp) return;
    const std::string text = fmt::format(
        "no {} within {:.1f} s", late->state == LinkState::kSecuring ? "TLS handshake" : "hello",
        Seconds(options.handshake_deadline));
    if (raw->accepted()) {
      LogRejected(raw->remote(), text);
      Drop(*raw);
    } else {
      const DialStep step = late->state == LinkState::kSecuring ? DialStep::kTls : DialStep::kHello;
      FailLink(*late, step,
               MakeError(Code::kTimeout, fmt::format("{}: {}", raw->remote(), text),
                         "is it a Loom peer that listens there?"));
    }
  });
  return link;
}

Hello Transport::Impl::OurHello(ConnectionKind kind, std::uint64_t session) const {
  Hello hello;
  hello.generation = options.generation;
  hello.run = options.run;
  hello.kind = kind;
  hello.instance = instance;
  hello.session = session;
  hello.features = options.features;
  hello.listen_port = listen_port;
  hello.version = options.version.substr(0, 64);
  if (kind == ConnectionKind::kControl) {
    hello.announce = options.announce;
    hello.blob = options.hello;
  }
  return hello;
}

void Transport::Impl::SendHello(Link& link) {
  link.connection->Send(kHelloFrame, 0, 0, MakeBlob(OurHello(link.kind, link.session).Encode()));
}

void Transport::Impl::OnSecure(Connection& connection) {
  Link* link = FindLink(connection);
  if (link == nullptr) return;
  link->state = LinkState::kAwaitHello;
  link->peer = crypto::PeerIdOf(connection.peer_key());
  if (connection.accepted()) return;
  if (const auto probe = link->probe) {  // the key is proved: that was the question
    DropGently(connection);
    probe->done(std::nullopt);
    return;
  }
  if (link->kind == ConnectionKind::kControl) {
    const Peer* up = FindPeer(link->peer);
    bool other_way = up != nullptr && !up->silent;
    for (const auto& [other, l] : links) {
      const bool on_its_way = l.state == LinkState::kAwaitReady ||
                              (l.state == LinkState::kAwaitHello && !other->accepted() &&
                               l.kind == ConnectionKind::kControl);
      other_way = other_way || (&l != link && l.peer == link->peer && on_its_way);
    }
    if (other_way) {
      Supersede(link->dial_address, link->peer);
      Drop(connection);
      return;
    }
  }
  SendHello(*link);
}

void Transport::Impl::OnHelloFrame(Link& link, const Frame& frame) {
  const auto connection = link.connection;
  const bool accepted = connection->accepted();
  if (!accepted && frame.type == kRefuseFrame) {
    OnRefuseFrame(link, frame);
    return;
  }
  auto hello = Hello::Decode(*frame.payload, options.generation);
  if (frame.type != kHelloFrame || !hello) {
    const std::string text = frame.type != kHelloFrame
                                 ? fmt::format("it opened with frame type {}", frame.type)
                                 : hello.error().message;
    if (accepted) {
      LogRejected(connection->remote(), text);
      Drop(*connection);
    } else {
      FailLink(link, DialStep::kHello, MakeError(Code::kCorrupt, text));
    }
    return;
  }
  link.hello = *std::move(hello);
  if (link.hello.generation != options.generation) {
    Refuse(link, RefuseCode::kGeneration,
           fmt::format("protocol generation: the dialling side speaks {}, the other {}; "
                       "update the older Loom",
                       accepted ? link.hello.generation : options.generation,
                       accepted ? options.generation : link.hello.generation));
  } else if (link.hello.run != options.run) {
    Refuse(link, RefuseCode::kRun,
           fmt::format("run: the dialling side is in {}, the other in {}; check the invite",
                       (accepted ? link.hello.run : options.run).Hex(),
                       (accepted ? options.run : link.hello.run).Hex()));
  } else if (accepted) {
    OnIncomingHello(link);
  } else {
    OnAnswerHello(link);
  }
}

void Transport::Impl::OnIncomingHello(Link& link) {
  link.kind = link.hello.kind;
  link.session = link.hello.session;
  if (link.kind == ConnectionKind::kBulk) {
    OnBulkHello(link);
    return;
  }
  if (link.peer == self) {
    Refuse(link, RefuseCode::kSelf,
           link.hello.instance == instance
               ? fmt::format("peer {} dialled itself", self.Short())
               : fmt::format("identity {} runs already at {}; a key folder serves one process",
                             self.Short(), link.connection->remote()));
    return;
  }
  // Both sides dialled at once: the connection that the smaller id dialled stays.
  std::vector<Connection*> give_way;
  for (auto& [other, l] : links) {
    if (l.connection == link.connection || l.peer != link.peer ||
        l.kind != ConnectionKind::kControl) {
      continue;
    }
    if (!other->accepted() && l.state == LinkState::kAwaitHello) {
      if (self < link.peer) {
        Refuse(link, RefuseCode::kCrossed, "both sides dialled; the other connection stays");
        return;
      }
      give_way.push_back(l.connection.get());
    } else if (other->accepted() && l.state == LinkState::kAwaitReady) {
      give_way.push_back(l.connection.get());
    }
  }
  for (Connection* other : give_way) {
    if (!other->accepted()) Supersede(FindLink(*other)->dial_address, link.peer);
    Drop(*other);
  }
  if (Peer* holder = FindPeer(link.peer)) {
    Contest(link, *holder);
  } else {
    Admit(link);
  }
}

void Transport::Impl::Contest(Link& link, Peer& holder) {
  if (ChallengerOf(holder) != nullptr) {
    Refuse(link, RefuseCode::kDuplicate,
           fmt::format("identity {} is connected from {} and another claim is being checked",
                       link.peer.Short(), holder.info.address));
    return;
  }
  link.state = LinkState::kContested;
  holder.challenger = link.connection;
  holder.challenged = reactor.Now();
  Ping(holder);
  const Duration wait = std::clamp<Duration>(4 * holder.rtt, kLeastProbe, kMostProbe);
  holder.challenge_timer = After(wait, [this, id = link.peer] {
    if (Peer* peer = FindPeer(id)) Settle(*peer, false);
  });
}

void Transport::Impl::Settle(Peer& holder, bool alive) {
  reactor.Cancel(holder.challenge_timer);
  Link* link = ChallengerOf(holder);
  if (link == nullptr) return;
  if (!alive) {  // LosePeer admits the challenger
    LosePeer(holder.info.id, DownReason::kReplaced,
             fmt::format("the older connection from {} is dead", holder.info.address));
    return;
  }
  holder.challenger.reset();
  if (link->hello.instance == holder.instance) {
    Refuse(*link, RefuseCode::kCrossed, "the connection that is up stays");
    return;
  }
  holder.control->Send(
      kNoticeFrame, 0, 0,
      TextBlob(fmt::format("another process at {} uses your identity; it was refused",
                           link->connection->remote())));
  Refuse(*link, RefuseCode::kDuplicate,
         fmt::format("identity {} is already connected from {}; a key folder serves one process",
                     link->peer.Short(), holder.info.address));
}

void Transport::Impl::Admit(Link& link) {
  if (peers.size() >= options.max_peers) {
    Refuse(link, RefuseCode::kFull, fmt::format("{} peers are connected, the limit", peers.size()));
    return;
  }
  if (admit) {
    if (auto refusal = admit(InfoOf(link))) {
      Refuse(link, RefuseCode::kPolicy, *refusal);
      return;
    }
  }
  link.state = LinkState::kAwaitReady;
  SendHello(link);
}

void Transport::Impl::OnAnswerHello(Link& link) {
  const auto connection = link.connection;
  if (link.hello.session != link.session || link.hello.kind != link.kind) {
    FailLink(link, DialStep::kHello, MakeError(Code::kCorrupt, "its hello answers another one"));
    return;
  }
  if (link.kind == ConnectionKind::kBulk) {
    Peer* peer = FindPeer(link.peer);
    if (peer == nullptr || peer->session != link.session) {
      Drop(*connection);
      return;
    }
    reactor.Cancel(link.deadline);
    link.state = LinkState::kUp;
    connection->SetCaps(&options.bulk_caps);
    connection->ServeBulk(peer->bulk_queue);
    peer->bulk.push_back(connection);
    connection->Wake();
    return;
  }
  if (const Peer* up = FindPeer(link.peer)) {
    if (!up->silent) {
      Drop(*connection);
      return;
    }
    LosePeer(link.peer, DownReason::kReplaced, "it fell silent and answers on a new connection");
    if (FindLink(*connection) == nullptr) return;
  }
  if (admit) {
    if (auto refusal = admit(InfoOf(link))) {
      Refuse(link, RefuseCode::kPolicy, *refusal);
      return;
    }
  }
  connection->Send(kReadyFrame, 0, 0, MakeBlob({}));
  MakeUp(link);
}

void Transport::Impl::OnBulkHello(Link& link) {
  const auto connection = link.connection;
  // The first bulk hello may overtake the ready frame of its control connection.
  for (auto& [other, l] : links) {
    if (l.state == LinkState::kAwaitReady && l.peer == link.peer && l.session == link.session) {
      MakeUp(l);
      break;
    }
  }
  Link* still = FindLink(*connection);
  if (still == nullptr) return;
  Peer* peer = FindPeer(still->peer);
  if (peer == nullptr || peer->session != still->session || peer->info.dialled_by_us ||
      peer->bulk.size() >= 8) {
    Refuse(*still, RefuseCode::kSession, "no control connection goes with this bulk connection");
    return;
  }
  reactor.Cancel(still->deadline);
  SendHello(*still);
  still->state = LinkState::kUp;
  connection->SetCaps(&options.bulk_caps);
  connection->ServeBulk(peer->bulk_queue);
  peer->bulk.push_back(connection);
  connection->Wake();
}

void Transport::Impl::OnRefuseFrame(Link& link, const Frame& frame) {
  const auto connection = link.connection;
  const std::string address = link.dial_address;
  auto refusal = Refusal::Decode(*frame.payload);
  const std::string text = refusal ? refusal->text : refusal.error().message;
  if (connection->accepted()) {
    Drop(*connection);
    ++stats.rejected;
    events.OnRefused(connection->remote(), text);
  } else if (refusal && refusal->code == RefuseCode::kCrossed) {
    Supersede(address, link.peer);
    Drop(*connection);
  } else {
    const bool twice = refusal && refusal->code == RefuseCode::kDuplicate;
    FailLink(link, DialStep::kHello,
             MakeError(twice ? Code::kConflict : Code::kRefused, text,
                       twice ? "end the other process, or join with a folder of its own" : ""));
  }
}

void Transport::Impl::Refuse(Link& link, RefuseCode code, const std::string& text) {
  const auto connection = link.connection;
  const std::string address = link.dial_address;
  connection->Send(kRefuseFrame, 0, 0, MakeBlob(Refusal{code, text}.Encode()));
  DropGently(*connection);
  if (!connection->accepted()) {
    events.OnDialFailed(
        address, DialStep::kHello,
        MakeError(Code::kRefused, fmt::format("we refused {}: {}", connection->remote(), text)));
  } else if (code != RefuseCode::kCrossed) {
    ++stats.rejected;
    events.OnRefused(connection->remote(), text);
  }
}

void Transport::Impl::OnEnded(Connection& connection, TlsStream::Failure failure,
                              const std::string& text) {
  Link* link = FindLink(connection);
  if (link == nullptr) return;
  const auto keep = link->connection;
  if (link->state == LinkState::kUp) {
    LosePeer(link->peer, std::nullopt, fmt::format("{}: {}", connection.remote(), text));
    return;
  }
  if (!connection.accepted()) {
    const bool securing = link->state == LinkState::kSecuring;
    const DialStep step = failure == TlsStream::Failure::kPin ? DialStep::kPin
                          : securing                          ? DialStep::kTls
                                                              : DialStep::kHello;
    std::string hint = step == DialStep::kPin
                           ? "the invite is for another peer than the one that listens there"
                           : "is it a Loom peer that listens there?";
    FailLink(*link, step,
             MakeError(step == DialStep::kPin ? Code::kConflict : Code::kUnreachable,
                       fmt::format("{}: {}", connection.remote(), text), std::move(hint)));
    return;
  }
  Drop(connection);
  if (failure == TlsStream::Failure::kRejected) {
    ++stats.rejected;
    events.OnRefused(connection.remote(), fmt::format("{}; we are {}", text, self.Hex()));
  } else if (failure == TlsStream::Failure::kNone) {
    ++stats.rejected;  // it just went away: a probe, or a dial that was not needed any more
  } else {
    LogRejected(connection.remote(), text);
  }
}

PeerInfo Transport::Impl::InfoOf(const Link& link) const {
  return PeerInfo{link.peer,
                  link.connection->peer_key(),
                  link.connection->remote(),
                  link.hello.announce,
                  link.hello.listen_port,
                  link.hello.features,
                  link.hello.version,
                  link.hello.blob,
                  link.dial_address,
                  !link.connection->accepted()};
}

void Transport::Impl::LogRejected(const std::string& remote, const std::string& why) {
  ++stats.rejected;
  if (const auto held = rejected_log.Allow(reactor.Now())) {
    Log(LogLevel::kWarn, "net", "closed a connection from {}: {}{}", remote, why,
        *held > 0 ? fmt::format(" (and {} more like it)", *held) : "");
  }
}

}  // namespace loom::net
