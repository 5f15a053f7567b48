// A peer for the tests of the transport: records every event. All on loopback, no sleeps: tests run
// the reactor until something holds, with a bound.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <string>
#include <vector>

#include "net/transport.h"

namespace loom::net {

inline constexpr Duration kTestLimit = 20s;

struct TestPeer : TransportEvents {
  struct Down {
    PeerId peer;
    DownReason reason;
    std::string detail;
  };
  struct Failed {
    std::string address;
    DialStep step;
    Error error;
  };
  struct Got {
    PeerId peer;
    Channel channel;
    Frame frame;
  };

  explicit TestPeer(Reactor& r, TransportOptions options = Options(),
                    crypto::SigningKey k = crypto::SigningKey::Generate())
      : reactor(r), key(std::move(k)), id(key.id()) {
    transport = std::make_unique<Transport>(r, key, std::move(options), *this);
  }

  static TransportOptions Options() {
    TransportOptions o;
    o.run.bytes.fill(std::byte{7});
    o.version = "test";
    o.heartbeat = 50ms;
    return o;
  }

  std::string Listen() {
    auto ports = transport->Listen({"127.0.0.1:0"});
    EXPECT_TRUE(ports.ok());
    address = fmt::format("127.0.0.1:{}", ports->front());
    return address;
  }
  void Kill() { transport.reset(); }

  void OnPeerUp(const PeerInfo& peer) override { ups.push_back(peer); }
  void OnPeerDown(const PeerId& peer, DownReason reason, const std::string& detail) override {
    downs.push_back({peer, reason, detail});
  }
  void OnFrame(const PeerId& peer, Channel channel, Frame frame) override {
    if (on_frame) on_frame(peer, channel, frame);
    got.push_back({peer, channel, std::move(frame)});
  }
  void OnPeerSilent(const PeerId&) override { ++silent; }
  void OnPeerHeard(const PeerId&) override { ++heard; }
  void OnDialFailed(const std::string& a, DialStep step, const Error& error) override {
    failed.push_back({a, step, error});
  }
  void OnRefused(const std::string&, const std::string& text) override { refused.push_back(text); }
  void OnSendSpace(const PeerId&, Channel) override { ++space; }

  Reactor& reactor;
  crypto::SigningKey key;
  PeerId id;
  std::unique_ptr<Transport> transport;
  std::string address;
  std::vector<PeerInfo> ups;
  std::vector<Down> downs;
  std::vector<Failed> failed;
  std::vector<Got> got;
  std::vector<std::string> refused;
  std::function<void(const PeerId&, Channel, const Frame&)> on_frame;
  int silent = 0, heard = 0, space = 0;
};

/// Two peers that are up with each other; b dialled.
inline void Connect(Reactor& reactor, TestPeer& a, TestPeer& b) {
  if (a.address.empty()) a.Listen();
  b.transport->Dial(a.address, a.id);
  ASSERT_TRUE(reactor.RunUntil([&] { return a.transport->IsUp(b.id) && b.transport->IsUp(a.id); },
                               kTestLimit))
      << (b.failed.empty() ? "" : b.failed[0].error.message);
}

/// A client that does not play by the rules.
class EvilSocket {
 public:
  explicit EvilSocket(const std::string& address) {
    const auto where = SocketAddress::Numeric(*HostPort::Parse(address));
    fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(::connect(fd_, where->raw(), where->size()), 0);
  }
  ~EvilSocket() { ::close(fd_); }
  EvilSocket(const EvilSocket&) = delete;
  EvilSocket& operator=(const EvilSocket&) = delete;
  void Write(std::string_view text) {
    EXPECT_EQ(::send(fd_, text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }
  /// The other side has closed; what it sent is thrown away.
  bool Closed() {
    char waste[4096];
    for (;;) {
      const ssize_t n = ::recv(fd_, waste, sizeof waste, MSG_DONTWAIT);
      if (n > 0) continue;
      return n == 0 || (errno != EAGAIN && errno != EINTR);
    }
  }
  int fd() const { return fd_; }

 private:
  int fd_ = -1;
};

}  // namespace loom::net
