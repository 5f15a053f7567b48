// The inside of Transport: which connection is what, which peer has which connections. Its parts:
// transport.cc (calls, peers, heartbeats), transport_dial.cc (going out, probing) and
// transport_hello.cc (coming in, who may stay).
#pragma once

#include <list>
#include <map>
#include <unordered_map>

#include "net/connection.h"
#include "net/hello.h"
#include "net/token_bucket.h"
#include "net/transport.h"

namespace loom::net {

/// Lets one line per interval through and counts the rest. Pure.
class RateLimitedLog {
 public:
  /// How many lines were held back before this one; nullopt holds this one back too.
  std::optional<std::size_t> Allow(Time now) {
    if (now < next_) {
      ++held_;
      return std::nullopt;
    }
    next_ = now + kInterval;
    return std::exchange(held_, 0);
  }

 private:
  static constexpr Duration kInterval = 5s;
  Time next_{};
  std::size_t held_ = 0;
};

/// Where a connection stands on its way to a peer.
enum class LinkState : std::uint8_t {
  kSecuring,    ///< TLS handshake
  kAwaitHello,  ///< secure; ours is sent when we dialled
  kContested,   ///< its identity is up already: the older one is being probed
  kAwaitReady,  ///< we accepted its hello, the dialling side has not answered ours
  kUp,
};

/// Of a dial that only asks whether the peer can be reached that way.
struct ProbeCall {
  std::function<bool(const std::string& ip)> allowed;
  Transport::Probed done;
};

struct Link {
  std::shared_ptr<Connection> connection;
  LinkState state = LinkState::kSecuring;
  ConnectionKind kind = ConnectionKind::kControl;
  std::uint64_t session = 0;
  std::string ip;
  std::uint64_t order = 0;   ///< of arrival
  PeerId peer;               ///< once secure
  Hello hello;               ///< once received
  std::string dial_address;  ///< as the caller wrote it; empty when accepted
  Reactor::TimerId deadline = 0;
  std::shared_ptr<ProbeCall> probe;
};

/// A TCP connection in the making: the endpoints that the name has, tried side by side.
struct Dialling {
  struct Attempt {
    std::unique_ptr<FdWatch> watch;
    Reactor::TimerId deadline = 0;
  };

  std::string address;
  std::optional<PeerId> expected;
  ConnectionKind kind = ConnectionKind::kControl;
  std::uint64_t session = 0;
  std::vector<SocketAddress> endpoints;
  std::size_t next = 0;
  std::map<std::size_t, Attempt> attempts;  ///< by the endpoint's place
  std::vector<Error> errors;
  Reactor::TimerId timer = 0;  ///< of the look-up, then of the stagger
  std::shared_ptr<ProbeCall> probe;
};

struct Buckets {
  TokenBucket up, down;
  void Set(RateLimits limits) {
    up.SetRate(limits.up);
    down.SetRate(limits.down);
  }
};

struct Peer {
  PeerInfo info;
  InstanceId instance{};
  std::uint64_t session = 0;
  std::shared_ptr<Connection> control;
  std::vector<std::shared_ptr<Connection>> bulk;
  std::shared_ptr<FrameQueue> bulk_queue = std::make_shared<FrameQueue>();
  Buckets buckets;
  std::uint64_t written = 0, read = 0;
  Time next_ping{}, heard{};
  Duration rtt{0}, min_rtt{0};
  bool silent = false;
  bool wants_space[2] = {false, false};
  std::weak_ptr<Connection> challenger;  ///< the kContested link, if any
  Time challenged{};
  Reactor::TimerId challenge_timer = 0;
};

/// A peer that is gone and whose address is being asked whether its process is, too.
struct Lost {
  std::string detail;
  SocketAddress address;
  int attempts = 0;
  std::unique_ptr<FdWatch> watch;
  Reactor::TimerId timer = 0;
};

struct Transport::Impl final : ConnectionHost, std::enable_shared_from_this<Transport::Impl> {
  Impl(Reactor& reactor, crypto::SigningKey key, TransportOptions options, TransportEvents& events);
  ~Impl() override;

  /// A timer that does nothing once the transport is gone.
  template <class Fn>
  Reactor::TimerId After(Duration wait, Fn fn) {
    return reactor.SetTimer(reactor.Now() + wait, [weak = weak_from_this(), fn = std::move(fn)] {
      if (const auto alive = weak.lock()) fn();
    });
  }

  // transport.cc
  void Start();
  void MakeUp(Link& link);
  void LosePeer(PeerId id, std::optional<DownReason> reason, const std::string& detail);
  void OnPeerFrame(Peer& peer, Channel channel, Frame frame);
  void OnPong(Peer& peer, ByteView payload);
  void Ping(Peer& peer);
  void Tick();
  Peer* FindPeer(const PeerId& id);
  Link* FindLink(const Connection& connection);
  Link* ChallengerOf(const Peer& peer);
  Peer* PeerOf(const Connection& connection);
  /// Closes and forgets; the connection may be in a callback of its own.
  void Drop(Connection& connection);
  void DropGently(Connection& connection);

  // transport_dial.cc
  void Dial(std::string address, std::optional<PeerId> expected,
            std::shared_ptr<ProbeCall> probe = nullptr);
  void DialBulk(Peer& peer);
  void ConnectNext(std::uint64_t dial);
  void Connected(std::uint64_t dial, std::size_t endpoint);
  void FailAttempt(std::uint64_t dial, std::size_t endpoint, Error error);
  void CancelTimers(const Dialling& dial);
  void FailDial(std::uint64_t dial, DialStep step, Error error);
  void FailLink(Link& link, DialStep step, Error error);
  void Supersede(const std::string& address, const PeerId& peer);
  /// An address whose refusal means that the peer's process is gone: where it was dialled, or where
  /// it came from if that is no router's address, which would refuse as well.
  static std::optional<SocketAddress> WhereItListens(const PeerInfo& peer);
  void ProbeLost(const PeerId& id);
  void FinishLost(const PeerId& id, DownReason reason);

  // transport_hello.cc
  Result<std::vector<std::uint16_t>> Listen(const std::vector<std::string>& addresses);
  void AcceptFrom(std::size_t listener);
  void Adopt(int fd, const SocketAddress& remote);
  void MakeRoom(const std::string& ip);
  Link& AddLink(std::unique_ptr<FdWatch> socket, bool accepted, std::string remote,
                std::optional<PeerId> expected);
  Hello OurHello(ConnectionKind kind, std::uint64_t session) const;
  void SendHello(Link& link);
  void OnHelloFrame(Link& link, const Frame& frame);
  void OnIncomingHello(Link& link);
  void OnAnswerHello(Link& link);
  void OnBulkHello(Link& link);
  void OnRefuseFrame(Link& link, const Frame& frame);
  void Contest(Link& link, Peer& holder);
  void Settle(Peer& holder, bool alive);
  void Admit(Link& link);
  void Refuse(Link& link, RefuseCode code, const std::string& text);
  PeerInfo InfoOf(const Link& link) const;
  void LogRejected(const std::string& remote, const std::string& why);

  // ConnectionHost
  void OnSecure(Connection& connection) override;
  void OnConnectionFrame(Connection& connection, Frame frame) override;
  void OnEnded(Connection& connection, TlsStream::Failure failure,
               const std::string& text) override;
  void OnDrained(Connection& connection) override;
  void OnTraffic(Connection& connection, std::uint64_t up, std::uint64_t down) override;
  Time ReadyAt(Connection& connection, bool up) override;
  std::size_t Slice(Connection& connection, bool up) override;

  Reactor& reactor;
  const crypto::SigningKey key;
  const PeerId self;
  TransportOptions options;
  TransportEvents& events;
  TlsContext tls;
  AdmitHello admit;
  InstanceId instance{};

  struct ListenSocket {
    std::unique_ptr<FdWatch> watch;
    Reactor::TimerId retry = 0;
  };
  std::vector<ListenSocket> listeners;
  std::uint16_t listen_port = 0;

  std::unordered_map<const Connection*, Link> links;
  std::map<std::uint64_t, Dialling> dials;
  std::map<PeerId, Peer> peers;
  std::map<PeerId, Lost> lost;
  std::map<PeerId, RateLimits> peer_limits;
  std::list<std::weak_ptr<Connection>> leaving;
  Buckets total;
  TransportStats stats;
  RateLimitedLog rejected_log;
  std::uint64_t next_number = 1;
  Reactor::TimerId tick = 0;
  Time last_tick{};
};

}  // namespace loom::net
