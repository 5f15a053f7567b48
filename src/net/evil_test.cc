// Peers and strangers that mean ill: whatever comes in is bounded, closed and told, and honest
// peers are served meanwhile.
#include <fcntl.h>

#include <random>

#include "net/hello.h"
#include "net/net_test_util.h"
#include "net/tls.h"
#include "net/transport_impl.h"

namespace loom::net {
namespace {

/// Speaks TLS and frames by hand, with blocking loops bounded by the reactor's turns.
class EvilPeer {
 public:
  EvilPeer(Reactor& reactor, const std::string& address)
      : reactor_(reactor), key_(crypto::SigningKey::Generate()), context_(key_), socket_(address) {
    stream_ = std::make_unique<TlsStream>(context_, socket_.fd(), false, std::nullopt);
    const int flags = ::fcntl(socket_.fd(), F_GETFL);
    ::fcntl(socket_.fd(), F_SETFL, flags | O_NONBLOCK);
    EXPECT_TRUE(reactor_.RunUntil([&] { return stream_->Handshake() == TlsStream::Io::kDone; },
                                  kTestLimit, 1ms));
  }
  void Write(ByteView bytes) {
    if (bytes.empty() || stream_->Write(bytes) != TlsStream::Io::kDone) return;
    while (stream_->Flush() == TlsStream::Io::kWantWrite) {
      reactor_.RunUntil([] { return false; }, 1ms);
    }
  }
  void Frame(std::uint16_t type, ByteView payload) {
    Write(wire::EncodeFrameHeader(type, 0, 0, payload.size()));
    Write(payload);
  }
  bool Closed() {
    std::array<std::byte, 4096> waste;
    for (;;) {
      std::size_t n = 0;
      const auto io = stream_->Read(waste, TlsStream::kReadAhead, n);
      if (io == TlsStream::Io::kDone) continue;
      return io != TlsStream::Io::kWantRead;
    }
  }
  Hello GoodHello() const {
    Hello hello;
    hello.generation = 1;
    hello.run = TestPeer::Options().run;
    hello.session = 1;
    return hello;
  }
  PeerId id() const { return key_.id(); }

 private:
  Reactor& reactor_;
  crypto::SigningKey key_;
  TlsContext context_;
  EvilSocket socket_;
  std::unique_ptr<TlsStream> stream_;
};

class EvilTest : public ::testing::Test {
 protected:
  Reactor reactor;
  bool Until(const std::function<bool()>& done) { return reactor.RunUntil(done, kTestLimit, 1ms); }
  bool StillServes(TestPeer& a) {
    TestPeer honest(reactor);
    honest.transport->Dial(a.address, a.id);
    return Until([&] { return honest.transport->IsUp(a.id); });
  }
};

TEST_F(EvilTest, StrangersOnThePortAreClosedAtOnce) {
  TestPeer a(reactor);
  a.Listen();
  std::mt19937 random(1);
  std::string noise(4096, '\0');
  for (char& c : noise) c = static_cast<char>(random());
  for (const std::string& text :
       {std::string("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), noise, std::string("SSH-2.0-x\r\n"),
        std::string(1 << 16, '\0'), std::string("\x16\x03\x01\xff\xff") + noise}) {
    EvilSocket evil(a.address);
    evil.Write(text);
    EXPECT_TRUE(Until([&] { return evil.Closed(); })) << Hex(AsBytes(text.substr(0, 8)));
  }
  EXPECT_EQ(a.transport->Stats().rejected, 5U);
  EXPECT_LT(a.transport->Stats().read, 200'000U);
  EXPECT_TRUE(StillServes(a));
}

TEST_F(EvilTest, SlowlorisMeetsTheDeadline) {
  auto options = TestPeer::Options();
  options.handshake_deadline = 200ms;
  TestPeer a(reactor, options);
  a.Listen();
  EvilSocket mute(a.address), slow(a.address);
  slow.Write("\x16\x03\x01");
  EXPECT_TRUE(Until([&] { return mute.Closed() && slow.Closed(); }));
  EvilPeer secure(reactor, a.address);  // TLS, then nothing
  EXPECT_TRUE(Until([&] { return secure.Closed(); }));
  EvilPeer half(reactor, a.address);  // TLS, half a header
  half.Write(ByteView(wire::EncodeFrameHeader(kHelloFrame, 0, 0, 100)).first(9));
  EXPECT_TRUE(Until([&] { return half.Closed(); }));
  EXPECT_EQ(a.transport->Stats().unauthenticated, 0U);
  EXPECT_TRUE(StillServes(a));
}

TEST_F(EvilTest, IdleConnectionsGiveWayToHonestPeers) {
  TestPeer a(reactor);
  a.Listen();
  std::vector<std::unique_ptr<EvilSocket>> idle;
  for (int i = 0; i < 200; ++i) {
    idle.push_back(std::make_unique<EvilSocket>(a.address));
    reactor.RunUntil([] { return false; }, 1ms);
  }
  ASSERT_TRUE(Until([&] { return a.transport->Stats().rejected >= 200 - 32; }));
  EXPECT_LE(a.transport->Stats().unauthenticated, 32U);
  EXPECT_TRUE(StillServes(a));
}

TEST_F(EvilTest, FrameLengthsBeforeTheHelloAreBounded) {
  TestPeer a(reactor);
  a.Listen();
  for (const std::uint32_t length : {0xffffffffU, 0U, 15U, wire::kMaxHelloFrame + 1}) {
    EvilPeer evil(reactor, a.address);
    auto header = wire::EncodeFrameHeader(kHelloFrame, 0, 0, 0);
    for (std::size_t i = 0; i < 4; ++i) header[i] = static_cast<std::byte>(length >> (8 * i));
    evil.Write(header);
    EXPECT_TRUE(Until([&] { return evil.Closed(); })) << length;
  }
  EXPECT_TRUE(a.ups.empty());
  EXPECT_TRUE(StillServes(a));
}

TEST_F(EvilTest, BadHellosAndFramesOutOfTurnAreRefused) {
  TestPeer a(reactor);
  a.Listen();
  {
    EvilPeer evil(reactor, a.address);
    evil.Frame(kHelloFrame, AsBytes("nonsense"));
    EXPECT_TRUE(Until([&] { return evil.Closed(); }));
  }
  for (const int type : {int{kReadyFrame}, int{kPingFrame}, 100}) {
    EvilPeer evil(reactor, a.address);
    evil.Frame(static_cast<std::uint16_t>(type), {});
    EXPECT_TRUE(Until([&] { return evil.Closed(); }));
  }
  {
    EvilPeer evil(reactor, a.address);  // a user frame before the ready frame
    evil.Frame(kHelloFrame, evil.GoodHello().Encode());
    evil.Frame(100, {});
    EXPECT_TRUE(Until([&] { return evil.Closed(); }));
  }
  {
    EvilPeer evil(reactor, a.address);  // a bulk connection that belongs to nobody
    Hello hello = evil.GoodHello();
    hello.kind = ConnectionKind::kBulk;
    evil.Frame(kHelloFrame, hello.Encode());
    EXPECT_TRUE(Until([&] { return evil.Closed(); }));
  }
  EXPECT_TRUE(a.ups.empty() && a.got.empty());
  EXPECT_TRUE(StillServes(a));
}

TEST_F(EvilTest, AnAuthenticatedPeerCannotExceedTheCapsEither) {
  TestPeer a(reactor);
  a.Listen();
  EvilPeer evil(reactor, a.address);
  evil.Frame(kHelloFrame, evil.GoodHello().Encode());
  evil.Frame(kReadyFrame, {});
  ASSERT_TRUE(Until([&] { return a.transport->IsUp(evil.id()); }));
  evil.Write(wire::EncodeFrameHeader(100, 0, 0, 0xffffffef));
  ASSERT_TRUE(Until([&] { return a.downs.size() == 1; }));
  EXPECT_NE(a.downs[0].detail.find("4294967279"), std::string::npos) << a.downs[0].detail;
  EXPECT_NE(a.downs[0].detail.find("1048576"), std::string::npos) << a.downs[0].detail;
  EXPECT_TRUE(StillServes(a));
}

TEST_F(EvilTest, TextOfAPeerIsMadeFitForALog) {
  EXPECT_EQ(CleanText("a\nb\x1b[31m\xff"), "a?b?[31m?");
  EXPECT_EQ(CleanText(std::string(5000, 'x')).size(), 512U);
}

TEST(HelloTest, RoundTripAndEveryCutIsAnError) {
  Hello hello;
  hello.generation = 3;
  hello.run.bytes.fill(std::byte{1});
  hello.kind = ConnectionKind::kBulk;
  hello.instance.fill(std::byte{2});
  hello.session = 4;
  hello.features = 5;
  hello.listen_port = 6;
  hello.version = "v";
  hello.announce = {"h:1", "[::1]:2"};
  hello.blob = ToBytes(AsBytes("blob"));
  const Bytes bytes = hello.Encode();
  const auto back = Hello::Decode(bytes, 3);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->Encode(), bytes);
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    EXPECT_FALSE(Hello::Decode(ByteView(bytes).first(n), 3).ok()) << n;
  }
  // Of another generation only the first two fields are read.
  const auto newer = Hello::Decode(ByteView(bytes).first(40), 2);
  ASSERT_TRUE(newer.ok());
  EXPECT_EQ(newer->generation, 3U);
  EXPECT_EQ(newer->run, hello.run);
}

TEST(RateLimitedLogTest, OneLinePerIntervalAndACount) {
  RateLimitedLog log;
  Time now{1h};
  EXPECT_EQ(log.Allow(now), 0U);
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(log.Allow(now + i * 1ms).has_value());
  EXPECT_EQ(log.Allow(now + 5s), 1000U);
  EXPECT_EQ(log.Allow(now + 10s), 0U);
}

}  // namespace
}  // namespace loom::net
