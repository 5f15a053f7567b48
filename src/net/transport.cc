// The calls of Transport, and the life of a peer: up, heartbeats, caps, down.
#include "net/transport.h"

#include "base/log.h"
#include "net/transport_impl.h"
#include "wire/bytes_io.h"

namespace loom::net {

std::string_view DownReasonName(DownReason reason) {
  switch (reason) {
    case DownReason::kClosed:
      return "closed";
    case DownReason::kTimeout:
      return "timeout";
    case DownReason::kRefusedRedial:
      return "refused_redial";
    case DownReason::kReplaced:
      return "replaced";
    case DownReason::kLocal:
      return "local";
  }
  return "unknown";
}

std::string_view DialStepName(DialStep step) {
  switch (step) {
    case DialStep::kResolve:
      return "resolve";
    case DialStep::kConnect:
      return "connect";
    case DialStep::kTls:
      return "tls";
    case DialStep::kPin:
      return "pin";
    case DialStep::kHello:
      return "hello";
  }
  return "unknown";
}

Transport::Transport(Reactor& reactor, crypto::SigningKey key, TransportOptions options,
                     TransportEvents& events)
    : impl_(std::make_shared<Impl>(reactor, std::move(key), std::move(options), events)) {
  impl_->Start();
}
Transport::~Transport() = default;

void Transport::SetAdmitHello(AdmitHello admit) { impl_->admit = std::move(admit); }

void Transport::SetHello(Bytes hello) {
  LOOM_CHECK(hello.size() <= kMaxHelloBlob, "a hello of {} bytes", hello.size());
  impl_->options.hello = std::move(hello);
}

void Transport::SetAnnounce(std::vector<std::string> addresses) {
  impl_->options.announce = std::move(addresses);
}

void Transport::SetLimits(RateLimits total, RateLimits per_peer) {
  impl_->options.per_peer = per_peer;
  impl_->total.Set(total);
  for (auto& [id, peer] : impl_->peers) {
    if (!impl_->peer_limits.contains(id)) peer.buckets.Set(per_peer);
  }
}

void Transport::SetPeerLimits(const PeerId& peer, RateLimits limits) {
  impl_->peer_limits[peer] = limits;
  if (Peer* up = impl_->FindPeer(peer)) up->buckets.Set(limits);
}

void Transport::Probe(const std::string& address, const PeerId& expected,
                      std::function<bool(const std::string& ip)> allowed, Probed done) {
  impl_->Dial(address, expected,
              std::make_shared<ProbeCall>(ProbeCall{std::move(allowed), std::move(done)}));
}

Result<std::vector<std::uint16_t>> Transport::Listen(const std::vector<std::string>& addresses) {
  return impl_->Listen(addresses);
}

void Transport::Dial(const std::string& address, std::optional<PeerId> expected) {
  impl_->Dial(address, expected);
}

bool Transport::Send(const PeerId& peer, Channel channel, std::uint16_t type, Blob payload,
                     std::uint64_t request_id, std::uint16_t flags) {
  LOOM_CHECK(type >= wire::kFirstUserType && payload != nullptr, "frame type {}", type);
  Peer* up = impl_->FindPeer(peer);
  if (up == nullptr) return false;
  const bool control = channel == Channel::kControl;
  const TransportOptions& o = impl_->options;
  if (payload->size() > (control ? o.control_caps : o.bulk_caps).Of(type)) return false;
  const std::size_t waiting = control ? up->control->own_queue().bytes : up->bulk_queue->bytes;
  const std::size_t limit = control ? o.control_queue : o.bulk_queue;
  if (waiting > 0 && waiting + payload->size() > limit) {
    up->wants_space[static_cast<int>(channel)] = true;
    return false;
  }
  if (control) {
    up->control->Send(type, flags, request_id, std::move(payload));
    return true;
  }
  const auto header = wire::EncodeFrameHeader(type, flags, request_id, payload->size());
  up->bulk_queue->Push({header, std::move(payload)});
  for (const auto& connection : up->bulk) connection->Wake();
  return true;
}

void Transport::Disconnect(const PeerId& peer, const std::string& reason) {
  Peer* up = impl_->FindPeer(peer);
  if (up == nullptr) return;
  up->control->Send(kByeFrame, 0, 0, MakeBlob(ToBytes(AsBytes(CleanText(reason)))));
  impl_->LosePeer(peer, DownReason::kLocal, reason);
}

bool Transport::IsUp(const PeerId& peer) const { return impl_->peers.contains(peer); }

std::vector<PeerId> Transport::Peers() const {
  std::vector<PeerId> out;
  for (const auto& [id, peer] : impl_->peers) out.push_back(id);
  return out;
}

std::optional<PeerStats> Transport::StatsOf(const PeerId& peer) const {
  const Peer* up = impl_->FindPeer(peer);
  if (up == nullptr) return std::nullopt;
  return PeerStats{
      up->written, up->read,  up->control->own_queue().bytes, up->bulk_queue->bytes, up->rtt,
      up->min_rtt, up->silent};
}

TransportStats Transport::Stats() const {
  TransportStats out = impl_->stats;
  out.peers = impl_->peers.size();
  for (const auto& [connection, link] : impl_->links) {
    if (connection->accepted() && link.state != LinkState::kUp) ++out.unauthenticated;
  }
  return out;
}

PeerId Transport::id() const { return impl_->self; }

Transport::Impl::Impl(Reactor& r, crypto::SigningKey k, TransportOptions o, TransportEvents& e)
    : reactor(r), key(std::move(k)), self(key.id()), options(std::move(o)), events(e), tls(key) {
  LOOM_CHECK(options.hello.size() <= kMaxHelloBlob && options.announce.size() <= 8 &&
             options.bulk_connections >= 1 && options.bulk_connections <= 8);
  crypto::RandomBytes(instance);
  total.Set(options.total);
}

void Transport::Impl::Start() {
  last_tick = reactor.Now();
  Tick();
}

Transport::Impl::~Impl() {
  for (auto& [connection, link] : links) link.connection->Close();
  for (const auto& weak : leaving) {
    if (const auto connection = weak.lock()) connection->Close();
  }
}

Peer* Transport::Impl::FindPeer(const PeerId& id) {
  const auto it = peers.find(id);
  return it == peers.end() ? nullptr : &it->second;
}

Link* Transport::Impl::FindLink(const Connection& connection) {
  const auto it = links.find(&connection);
  return it == links.end() ? nullptr : &it->second;
}

Link* Transport::Impl::ChallengerOf(const Peer& peer) {
  const auto connection = peer.challenger.lock();
  return connection ? FindLink(*connection) : nullptr;
}

Peer* Transport::Impl::PeerOf(const Connection& connection) {
  const Link* link = FindLink(connection);
  return link != nullptr && link->state == LinkState::kUp ? FindPeer(link->peer) : nullptr;
}

void Transport::Impl::Drop(Connection& connection) {
  const auto node = links.extract(&connection);
  if (node.empty()) return;
  reactor.Cancel(node.mapped().deadline);
  node.mapped().connection->Close();
}

void Transport::Impl::DropGently(Connection& connection) {
  const auto node = links.extract(&connection);
  if (node.empty()) return;
  reactor.Cancel(node.mapped().deadline);
  std::erase_if(leaving, [](const auto& weak) { return weak.expired(); });
  leaving.push_back(node.mapped().connection);
  node.mapped().connection->CloseGently();
}

void Transport::Impl::MakeUp(Link& link) {
  const PeerId id = link.peer;
  const auto connection = link.connection;
  if (lost.contains(id)) FinishLost(id, DownReason::kClosed);
  LosePeer(id, DownReason::kReplaced, "it came back on a new connection");
  if (FindLink(*connection) == nullptr) return;
  reactor.Cancel(link.deadline);
  link.state = LinkState::kUp;
  link.connection->SetCaps(&options.control_caps);
  Peer& peer = peers[id];
  peer.info = InfoOf(link);
  peer.instance = link.hello.instance;
  peer.session = link.session;
  peer.control = link.connection;
  const auto limits = peer_limits.find(id);
  peer.buckets.Set(limits == peer_limits.end() ? options.per_peer : limits->second);
  peer.heard = peer.next_ping = reactor.Now();
  Ping(peer);
  if (peer.info.dialled_by_us) {
    for (int i = 0; i < options.bulk_connections; ++i) DialBulk(peer);
  }
  events.OnPeerUp(PeerInfo(peer.info));
}

void Transport::Impl::LosePeer(PeerId id, std::optional<DownReason> reason,
                               const std::string& detail) {
  const auto node = peers.extract(id);
  if (node.empty()) return;
  const Peer& peer = node.mapped();
  reactor.Cancel(peer.challenge_timer);
  for (const auto& connection : peer.bulk) Drop(*connection);
  std::erase_if(dials, [&](auto& entry) {
    const bool ours = entry.second.kind == ConnectionKind::kBulk &&
                      entry.second.session == peer.session && entry.second.expected == id;
    if (ours) CancelTimers(entry.second);
    return ours;
  });
  std::vector<Connection*> half_made;
  for (auto& [connection, link] : links) {
    if (link.kind == ConnectionKind::kBulk && link.session == peer.session && link.peer == id) {
      half_made.push_back(link.connection.get());
    }
  }
  for (Connection* connection : half_made) Drop(*connection);
  if (reason == DownReason::kLocal) {
    DropGently(*peer.control);
  } else {
    Drop(*peer.control);
  }
  const std::optional<SocketAddress> address = WhereItListens(peer.info);
  Link* challenger = ChallengerOf(peer);
  if (reason || !address || challenger != nullptr) {
    const DownReason why =
        reason.value_or(challenger != nullptr ? DownReason::kReplaced : DownReason::kClosed);
    events.OnPeerDown(id, why, detail);
    if (challenger != nullptr) {
      challenger = ChallengerOf(peer);
      if (challenger != nullptr) Admit(*challenger);
    }
    return;
  }
  Lost& entry = lost[id];
  entry.detail = detail;
  entry.address = *address;
  ProbeLost(id);
}

void Transport::Impl::OnConnectionFrame(Connection& connection, Frame frame) {
  Link* link = FindLink(connection);
  if (link == nullptr) return;
  switch (link->state) {
    case LinkState::kAwaitHello:
      OnHelloFrame(*link, frame);
      return;
    case LinkState::kAwaitReady:
      if (frame.type == kReadyFrame) {
        MakeUp(*link);
      } else if (frame.type == kRefuseFrame) {
        OnRefuseFrame(*link, frame);
      } else {
        break;
      }
      return;
    case LinkState::kUp:
      if (Peer* peer = FindPeer(link->peer)) {
        const bool bulk = link->kind == ConnectionKind::kBulk;
        OnPeerFrame(*peer, bulk ? Channel::kBulk : Channel::kControl, std::move(frame));
      }
      return;
    default:
      break;
  }
  LogRejected(connection.remote(), fmt::format("a frame of type {} before its time", frame.type));
  Drop(connection);
}

void Transport::Impl::OnPeerFrame(Peer& peer, Channel channel, Frame frame) {
  const PeerId id = peer.info.id;
  if (frame.type >= wire::kFirstUserType) {
    events.OnFrame(id, channel, std::move(frame));
    return;
  }
  if (channel == Channel::kControl) {
    switch (frame.type) {
      case kPingFrame:
        if (frame.payload->size() != sizeof(std::uint64_t)) break;
        // Who sends pings without reading the answers gets no more of them.
        if (peer.control->own_queue().bytes < options.control_queue) {
          peer.control->Send(kPongFrame, 0, 0, frame.payload);
        }
        return;
      case kPongFrame:
        OnPong(peer, *frame.payload);
        return;
      case kByeFrame:
        LosePeer(id, DownReason::kClosed, CleanText(AsText(*frame.payload)));
        return;
      case kNoticeFrame:
        Log(LogLevel::kWarn, "net", "{} says: {}", id.Short(), CleanText(AsText(*frame.payload)));
        return;
      default:
        break;
    }
  }
  LosePeer(id, DownReason::kClosed,
           fmt::format("it broke the protocol: frame type {} of {} bytes", frame.type,
                       frame.payload->size()));
}

void Transport::Impl::Ping(Peer& peer) {
  const Time now = reactor.Now();
  peer.next_ping = now + options.heartbeat;
  wire::Writer w;
  w.Int(static_cast<std::uint64_t>(now.time_since_epoch().count()));
  peer.control->Send(kPingFrame, 0, 0, MakeBlob(std::move(w).Take()));
}

void Transport::Impl::OnPong(Peer& peer, ByteView payload) {
  const PeerId id = peer.info.id;
  wire::Reader r(payload);
  const Time sent{Duration(static_cast<std::int64_t>(r.Int<std::uint64_t>()))};
  const Time now = reactor.Now();
  if (!r.Finish("pong") || sent > now || sent < now - options.dead_after) return;
  peer.heard = now;
  const Duration sample = now - sent;
  peer.rtt = peer.rtt == Duration(0) ? sample : (7 * peer.rtt + sample) / 8;
  peer.min_rtt = peer.min_rtt == Duration(0) ? sample : std::min(peer.min_rtt, sample);
  if (ChallengerOf(peer) != nullptr && sent >= peer.challenged) Settle(peer, true);
  Peer* still = FindPeer(id);
  if (still != nullptr && std::exchange(still->silent, false)) events.OnPeerHeard(id);
}

void Transport::Impl::Tick() {
  const Time now = reactor.Now();
  const Duration step = std::max<Duration>(options.heartbeat / 4, 5ms);
  // After a sleep of this machine or process, what was not heard meanwhile says nothing of others.
  const Duration away = now - last_tick - step;
  const bool slept = away > options.silent_after / 2;
  last_tick = now;
  std::vector<PeerId> silent, dead;
  for (auto& [id, peer] : peers) {
    if (slept) peer.heard = std::max(peer.heard, std::min(peer.heard + away, now));
    if (now >= peer.next_ping) Ping(peer);
    for (const auto& connection : peer.bulk) connection->Pace();
    const Duration quiet = now - peer.heard;
    if (quiet > options.dead_after) {
      dead.push_back(id);
    } else if (quiet > options.silent_after && !peer.silent) {
      peer.silent = true;
      silent.push_back(id);
    }
  }
  for (const PeerId& id : silent) {
    if (peers.contains(id)) events.OnPeerSilent(id);
  }
  for (const PeerId& id : dead) {
    LosePeer(id, DownReason::kTimeout,
             fmt::format("no heartbeat for {:.0f} s", Seconds(options.dead_after)));
  }
  tick = After(step, [this] { Tick(); });
}

void Transport::Impl::OnDrained(Connection& connection) {
  Peer* peer = PeerOf(connection);
  if (peer == nullptr) return;
  const bool bulk = connection.bulk();
  const int channel = bulk ? 1 : 0;
  const std::size_t left = bulk ? peer->bulk_queue->bytes : connection.own_queue().bytes;
  if (peer->wants_space[channel] &&
      left <= (bulk ? options.bulk_queue : options.control_queue) / 2) {
    peer->wants_space[channel] = false;
    events.OnSendSpace(PeerId(peer->info.id), bulk ? Channel::kBulk : Channel::kControl);
  }
}

void Transport::Impl::OnTraffic(Connection& connection, std::uint64_t up, std::uint64_t down) {
  stats.written += up;
  stats.read += down;
  const Time now = reactor.Now();
  total.up.Take(now, up);
  total.down.Take(now, down);
  if (Peer* peer = PeerOf(connection)) {
    peer->written += up;
    peer->read += down;
    peer->buckets.up.Take(now, up);
    peer->buckets.down.Take(now, down);
  }
}

Time Transport::Impl::ReadyAt(Connection& connection, bool up) {
  const Time now = reactor.Now();
  Peer* peer = PeerOf(connection);
  if (peer == nullptr) return now;
  TokenBucket& all = up ? total.up : total.down;
  TokenBucket& own = up ? peer->buckets.up : peer->buckets.down;
  if (!connection.bulk()) return std::max(all.UrgentReadyAt(now), own.UrgentReadyAt(now));
  return std::max(all.ReadyAt(now), own.ReadyAt(now));
}

std::size_t Transport::Impl::Slice(Connection& connection, bool up) {
  const std::size_t slice = (up ? total.up : total.down).Slice(SIZE_MAX);
  const Peer* peer = PeerOf(connection);
  return peer == nullptr ? slice : (up ? peer->buckets.up : peer->buckets.down).Slice(slice);
}

}  // namespace loom::net
