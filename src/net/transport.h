// Connections to the other peers of a run: mutual TLS 1.3 pinned by peer id, one control connection
// and a few bulk connections per pair, heartbeats, the owner's bandwidth caps, and a clear reason
// for everything that ends. It moves {channel, type, bytes} and knows nothing of rounds. All calls
// and all events are on the reactor thread. Asio and OpenSSL stay in the .cc files.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/id.h"
#include "base/result.h"
#include "base/time.h"
#include "crypto/keys.h"
#include "net/reactor.h"
#include "wire/frame.h"

namespace loom::net {

enum class Channel : std::uint8_t {
  kControl,  ///< small messages in order; never queue behind bulk, never wait for a cap
  kBulk,     ///< large ones; in order only while there is one bulk connection
};

enum class DownReason : std::uint8_t {
  kClosed,         ///< the connection ended; the peer's address still answers, or is not known
  kTimeout,        ///< silent for `dead_after`
  kRefusedRedial,  ///< the connection ended and its address refuses: the process is gone (R33)
  kReplaced,       ///< a newer process of the same identity took its place
  kLocal,          ///< our own Disconnect
};
std::string_view DownReasonName(DownReason reason);

enum class DialStep : std::uint8_t { kResolve, kConnect, kTls, kPin, kHello };
std::string_view DialStepName(DialStep step);

/// What the other side said of itself in its hello.
struct PeerInfo {
  PeerId id;
  crypto::PublicKey key;
  std::string address;  ///< remote IP:port of the control connection
  std::vector<std::string>
      announced;                  ///< HOST:PORT where it says that it can be dialled; untrusted
  std::uint16_t listen_port = 0;  ///< 0: it only dials out (R35)
  std::uint64_t features = 0;
  std::string version;
  Bytes hello;          ///< the opaque blob of the layer above
  std::string dialled;  ///< the address as given to Dial; empty when the peer dialled
  bool dialled_by_us = false;
};

struct Frame {
  std::uint16_t type = 0;
  std::uint16_t flags = 0;
  std::uint64_t request_id = 0;
  Blob payload;  ///< never null
};

/// Events may call the transport; they must not destroy it.
class TransportEvents {
 public:
  virtual ~TransportEvents() = default;
  virtual void OnPeerUp(const PeerInfo& peer) = 0;
  /// After it the peer is unknown; `detail` is for people (the other side's own words included).
  virtual void OnPeerDown(const PeerId& peer, DownReason reason, const std::string& detail) = 0;
  virtual void OnFrame(const PeerId& peer, Channel channel, Frame frame) = 0;
  /// No heartbeat was answered for `silent_after`; the connection stays (R33).
  virtual void OnPeerSilent(const PeerId& peer) = 0;
  virtual void OnPeerHeard(const PeerId& peer) = 0;
  /// A Dial ended without a peer. `address` as given to Dial.
  virtual void OnDialFailed(const std::string& address, DialStep step, const Error& error) = 0;
  /// An incoming connection was refused, by us or (text in its words) by the dialler. Strangers can
  /// cause any number of these: log them at a bounded rate.
  virtual void OnRefused(const std::string& remote, const std::string& text) = 0;
  /// A Send failed for want of space, and now half of the queue is free again.
  virtual void OnSendSpace(const PeerId& peer, Channel channel) = 0;
};

/// Bytes per second; 0 = no cap.
struct RateLimits {
  std::uint64_t up = 0;
  std::uint64_t down = 0;
};

struct TransportOptions {
  RunId run;
  std::uint32_t generation = 1;       ///< of the protocol; must be equal on both sides
  std::uint64_t features = 0;         ///< bits for the layer above
  std::string version;                ///< shown to the other side, at most 64 bytes
  Bytes hello;                        ///< opaque, at most kMaxHelloBlob
  std::vector<std::string> announce;  ///< HOST:PORT, at most 8
  RateLimits total, per_peer;
  int bulk_connections = 1;  ///< made by the dialling side; 1 to 8
  wire::FrameCaps control_caps{1 << 20, {}};
  wire::FrameCaps bulk_caps{64 << 20, {}};
  std::size_t control_queue = 8 << 20;  ///< bytes waiting per peer
  std::size_t bulk_queue = 256 << 20;
  Duration handshake_deadline = 5s;  ///< TCP accept to end of hello
  Duration connect_deadline = 4s;    ///< for each address that a name resolves to
  Duration heartbeat = 500ms;
  Duration silent_after = 2s;
  Duration dead_after = 30s;
  Duration redial_probe = 1s;  ///< how long a closed peer's address may take to answer
  std::size_t max_peers = 256;
  std::size_t max_unauthenticated = 128;  ///< the oldest one gives way
  std::size_t max_unauthenticated_per_address = 32;
};
inline constexpr std::size_t kMaxHelloBlob = 60 * 1024;

struct PeerStats {
  std::uint64_t written = 0, read = 0;  ///< bytes to and from sockets
  std::size_t control_queue = 0, bulk_queue = 0;
  Duration rtt{0}, min_rtt{0};  ///< 0 until the first heartbeat came back
  bool silent = false;
};
struct TransportStats {
  std::uint64_t written = 0, read = 0;  ///< all sockets ever, handshakes and refused ones included
  std::uint64_t rejected = 0;           ///< incoming connections that ended before they were a peer
  std::size_t unauthenticated = 0, peers = 0;
};

class Transport {
 public:
  /// Decides on a peer from its hello; a text refuses it and is shown to both sides.
  using AdmitHello = std::function<std::optional<std::string>(const PeerInfo&)>;

  /// `reactor` and `events` outlive the transport.
  Transport(Reactor& reactor, crypto::SigningKey key, TransportOptions options,
            TransportEvents& events);
  ~Transport();
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  void SetAdmitHello(AdmitHello admit);
  /// The blob and the announced addresses of hellos from now on.
  void SetHello(Bytes hello);
  void SetAnnounce(std::vector<std::string> addresses);
  void SetLimits(RateLimits total, RateLimits per_peer);
  /// Caps for one peer, in place of per_peer, for as long as the transport lives.
  void SetPeerLimits(const PeerId& peer, RateLimits limits);

  /// Listens on each HOST:PORT; "*:PORT" is all interfaces, IPv6 and IPv4. Port 0 picks one, and
  /// the next address with port 0 tries the same. Returns the ports; on an error nothing listens.
  Result<std::vector<std::uint16_t>> Listen(const std::vector<std::string>& addresses);

  /// Starts to connect to HOST:PORT or [V6]:PORT; the addresses of a name are tried side by side
  /// with a short stagger. Ends in OnPeerUp or OnDialFailed, or silently when the same peer is up
  /// already by another way. `expected` pins the identity. Of a connect that failed the code says
  /// how: kRefused (nothing listens there), kTimeout (no answer), kUnreachable (no way there).
  void Dial(const std::string& address, std::optional<PeerId> expected);

  /// How far a Probe came: the step that failed and why; nothing when the expected peer answered.
  using Probed = std::function<void(const std::optional<std::pair<DialStep, Error>>& failed)>;
  /// Dials as Dial does, up to the proof of the peer's key, and hangs up. Of the endpoints that a
  /// name has the first few that `allowed` lets pass are touched. Nothing else is told; `done` is
  /// called once, later.
  void Probe(const std::string& address, const PeerId& expected,
             std::function<bool(const std::string& ip)> allowed, Probed done);

  /// Queues a frame without a copy. False when the peer is not up, the queue is full, or the
  /// payload is over our own cap; nothing was sent then.
  [[nodiscard]] bool Send(const PeerId& peer, Channel channel, std::uint16_t type, Blob payload,
                          std::uint64_t request_id = 0, std::uint16_t flags = 0);

  /// Tells the peer why and closes; OnPeerDown(kLocal) comes before it returns.
  void Disconnect(const PeerId& peer, const std::string& reason);

  bool IsUp(const PeerId& peer) const;
  std::vector<PeerId> Peers() const;
  std::optional<PeerStats> StatsOf(const PeerId& peer) const;
  TransportStats Stats() const;
  PeerId id() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace loom::net
