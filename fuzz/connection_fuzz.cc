// A stranger on the port of a real transport: any bytes before TLS, inside it, as frames before the
// hello, and as frames of a peer that was let in. The transport closes or takes it, keeps no
// stranger beside the limit, and still lets an honest peer in at the end.
//
// The first byte chooses how far the stranger behaves: 0 not at all, 1 it speaks TLS, 2 it sends
// frames, 3 it says a good hello first. Then bytes, or frames of {u16 type, u16 length, payload}.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <optional>

#include "fuzz/fuzz.h"
#include "fuzz/seeds/samples.h"
#include "net/hello.h"
#include "net/socket.h"
#include "net/tls.h"
#include "net/transport.h"

namespace loom::fuzz {
namespace {

using net::TlsStream;

class Events final : public net::TransportEvents {
 public:
  void OnPeerUp(const net::PeerInfo& peer) override {
    ++ups;
    ExpectPrintable(peer.version, "a peer's version");
    for (const std::string& address : peer.announced) ExpectPrintable(address, "a peer's address");
  }
  void OnPeerDown(const PeerId&, net::DownReason, const std::string& detail) override {
    ExpectPrintable(detail, "why a peer is down");
  }
  void OnFrame(const PeerId&, net::Channel, net::Frame frame) override {
    ++frames;
    Expect(frame.payload != nullptr, "a frame has a payload");
  }
  void OnPeerSilent(const PeerId&) override {}
  void OnPeerHeard(const PeerId&) override {}
  void OnDialFailed(const std::string&, net::DialStep, const Error& error) override {
    ExpectGoodError(error);
  }
  void OnRefused(const std::string&, const std::string& text) override {
    ExpectPrintable(text, "why a stranger is refused");
  }
  void OnSendSpace(const PeerId&, net::Channel) override {}
  std::size_t ups = 0;
  std::size_t frames = 0;
};

struct Server {
  Server() : transport(reactor, SampleKey(1), Options(), events) {
    const auto ports = transport.Listen({"127.0.0.1:0"});
    Expect(ports.ok(), "a port of this machine can be listened on");
    port = ports.value().front();
  }
  static net::TransportOptions Options() {
    net::TransportOptions options;
    options.run.bytes[0] = std::byte{1};
    options.control_caps = {1 << 12, {}};
    options.bulk_caps = {1 << 14, {}};
    return options;
  }
  net::Reactor reactor;
  Events events;
  net::Transport transport;
  std::uint16_t port = 0;
};

/// Blocking loops bounded by turns of the reactor, which serves the other side meanwhile.
class Stranger {
 public:
  explicit Stranger(Server& server) : server_(server) {
    const auto where = net::SocketAddress::Numeric({"127.0.0.1", server.port}).value();
    fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    Expect(fd_ >= 0 && ::connect(fd_, where.raw(), where.size()) == 0, "the port answers");
    ::fcntl(fd_, F_SETFL, ::fcntl(fd_, F_GETFL) | O_NONBLOCK);
  }
  ~Stranger() {
    stream_.reset();
    ::close(fd_);
  }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;

  bool Handshake() {
    static const net::TlsContext context(SampleKey(2));
    stream_.emplace(context, fd_, false, std::nullopt);
    for (std::size_t turn = 0; turn < kTurns; ++turn) {
      const auto io = stream_->Handshake();
      if (io == TlsStream::Io::kDone) return true;
      if (io == TlsStream::Io::kFailed || io == TlsStream::Io::kClosed) return false;
      Turn();
    }
    return false;
  }
  void Raw(ByteView bytes) { (void)!::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  bool Write(ByteView bytes) {
    if (bytes.empty()) return true;
    auto io = stream_->Write(bytes);
    for (std::size_t turn = 0; turn < kTurns; ++turn) {
      if (io == TlsStream::Io::kDone) io = stream_->Flush();
      if (io != TlsStream::Io::kWantWrite) return io == TlsStream::Io::kDone;
      Turn();
      io = TlsStream::Io::kDone;
    }
    return false;
  }
  bool Frame(std::uint16_t type, ByteView payload) {
    return Write(wire::EncodeFrameHeader(type, 0, 0, payload.size())) && Write(payload);
  }
  /// What the other side says is thrown away; true once it has closed.
  bool Closed() {
    std::array<std::byte, 4096> waste;
    for (;;) {
      if (stream_) {
        std::size_t n = 0;
        const auto io = stream_->Read(waste, TlsStream::kReadAhead, n);
        if (io != TlsStream::Io::kDone) return io != TlsStream::Io::kWantRead;
      } else {
        const ssize_t n = ::recv(fd_, waste.data(), waste.size(), MSG_DONTWAIT);
        if (n <= 0) return n == 0 || errno != EAGAIN;
      }
    }
  }
  void Turn() {
    (void)server_.reactor.RunUntil([] { return false; }, std::chrono::microseconds(50));
  }
  void Settle() {
    for (std::size_t turn = 0; turn < 20 && !Closed(); ++turn) Turn();
  }

 private:
  static constexpr std::size_t kTurns = 2000;
  Server& server_;
  int fd_ = -1;
  std::optional<TlsStream> stream_;
};

net::Hello GoodHello() {
  net::Hello hello;
  hello.generation = 1;
  hello.run = Server::Options().run;
  hello.session = 1;
  return hello;
}

}  // namespace
}  // namespace loom::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace loom;
  static fuzz::Server server;
  fuzz::Input in(data, size);
  const std::size_t manners = in.Below(4);
  const std::size_t frames = server.events.frames;
  {
    fuzz::Stranger stranger(server);
    if (manners == 0) {
      stranger.Raw(in.Rest());
    } else if (stranger.Handshake()) {
      if (manners == 1) (void)stranger.Write(in.Rest());
      if (manners == 3) (void)stranger.Frame(net::kHelloFrame, fuzz::GoodHello().Encode());
      for (std::size_t n = 0; n < 16 && !in.empty(); ++n) {
        const auto type = in.Int<std::uint16_t>();
        if (!stranger.Frame(type, in.Chunk())) break;
      }
    }
    stranger.Settle();
  }
  (void)server.reactor.RunUntil([&] { return server.transport.Stats().unauthenticated == 0; },
                                std::chrono::minutes(1));
  fuzz::Expect(server.transport.Stats().unauthenticated == 0, "a stranger that left is forgotten");
  if (server.events.frames > frames) fuzz::Accept();
  return 0;
}

void loom::fuzz::MakeSeeds(Seeds& seeds) {
  seeds.AddRefused("http", Script().Byte(0).Raw(AsBytes("GET / HTTP/1.1\r\n\r\n")).bytes());
  const Bytes hello = GoodHello().Encode();
  seeds.AddRefused("hello",
                   Script().Byte(2).Int(std::uint16_t{net::kHelloFrame}).Chunk(hello).bytes());
  Script peer;
  peer.Byte(3).Int(std::uint16_t{net::kReadyFrame}).Chunk({});
  peer.Int(std::uint16_t{net::kPingFrame}).Chunk(Bytes(8));
  peer.Int(std::uint16_t{70}).Chunk(AsBytes("a message"));
  peer.Int(std::uint16_t{net::kNoticeFrame}).Chunk(AsBytes("a notice"));
  seeds.Add("peer", peer);
  peer.Int(std::uint16_t{net::kByeFrame}).Chunk(AsBytes("bye"));
  seeds.Add("peer-leaves", peer);
}
