// Peers that mean well: meeting, talking, leaving, dying and coming back.
#include "net/transport.h"

#include <random>

#include "crypto/hash.h"
#include "net/net_test_util.h"

namespace loom::net {
namespace {

Blob RandomBlob(std::size_t size, unsigned seed) {
  std::mt19937_64 random(seed);
  Bytes bytes(size);
  for (std::size_t i = 0; i + 8 <= size; i += 8) {
    const std::uint64_t v = random();
    std::memcpy(bytes.data() + i, &v, 8);
  }
  return MakeBlob(std::move(bytes));
}

class TransportTest : public ::testing::Test {
 protected:
  Reactor reactor;
  bool Until(const std::function<bool()>& done) { return reactor.RunUntil(done, kTestLimit); }
};

TEST_F(TransportTest, MutualAuthenticationAndHello) {
  auto options = TestPeer::Options();
  options.hello = ToBytes(AsBytes("from a"));
  options.announce = {"a.example:7000"};
  TestPeer a(reactor, options);
  options.hello = ToBytes(AsBytes("from b"));
  options.features = 5;
  TestPeer b(reactor, options);
  Connect(reactor, a, b);
  ASSERT_EQ(a.ups.size(), 1U);
  EXPECT_EQ(a.ups[0].id, b.id);
  EXPECT_EQ(a.ups[0].key, b.key.public_key());
  EXPECT_EQ(AsText(a.ups[0].hello), "from b");
  EXPECT_EQ(a.ups[0].features, 5U);
  EXPECT_EQ(a.ups[0].listen_port, 0);  // R35: b only dials out
  EXPECT_FALSE(a.ups[0].dialled_by_us);
  EXPECT_EQ(AsText(b.ups[0].hello), "from a");
  EXPECT_EQ(b.ups[0].announced, std::vector<std::string>{"a.example:7000"});
  EXPECT_TRUE(b.ups[0].dialled_by_us);
  EXPECT_EQ(fmt::format("127.0.0.1:{}", b.ups[0].listen_port), a.address);
}

TEST_F(TransportTest, FramesBothWaysOnBothChannels) {
  TestPeer a(reactor), b(reactor);
  Connect(reactor, a, b);
  EXPECT_TRUE(a.transport->Send(b.id, Channel::kControl, 20, MakeBlob({}), 77, 3));
  EXPECT_TRUE(b.transport->Send(a.id, Channel::kControl, 21, RandomBlob(100, 1)));
  EXPECT_TRUE(a.transport->Send(b.id, Channel::kBulk, 22, RandomBlob(100'000, 2)));
  EXPECT_TRUE(b.transport->Send(a.id, Channel::kBulk, 23, RandomBlob(16'384, 3), 9));
  ASSERT_TRUE(Until([&] { return a.got.size() == 2 && b.got.size() == 2; }));
  for (const auto& got : b.got) {
    if (got.channel == Channel::kControl) {
      EXPECT_EQ(got.frame.type, 20);
      EXPECT_EQ(got.frame.request_id, 77U);
      EXPECT_EQ(got.frame.flags, 3);
      EXPECT_TRUE(got.frame.payload->empty());
    } else {
      EXPECT_EQ(*got.frame.payload, *RandomBlob(100'000, 2));
    }
  }
}

TEST_F(TransportTest, LargeBlobsArriveWholeBothWays) {
  auto options = TestPeer::Options();
  options.bulk_connections = 3;
  TestPeer a(reactor, options), b(reactor, options);
  Connect(reactor, a, b);
  const Blob up = RandomBlob(64 << 20, 4), down = RandomBlob((64 << 20) - 5, 5);
  ASSERT_TRUE(a.transport->Send(b.id, Channel::kBulk, 30, down));
  ASSERT_TRUE(b.transport->Send(a.id, Channel::kBulk, 30, up));
  for (unsigned i = 0; i < 50; ++i) {
    ASSERT_TRUE(b.transport->Send(a.id, Channel::kBulk, 31, RandomBlob(i * 1000, i)));
  }
  ASSERT_TRUE(Until([&] { return a.got.size() == 51 && b.got.size() == 1; }));
  EXPECT_EQ(crypto::Sha256(*b.got[0].frame.payload), crypto::Sha256(*down));
  std::size_t total = 0;
  for (const auto& got : a.got) {
    total += got.frame.payload->size();
    if (got.frame.type == 30) {
      EXPECT_EQ(crypto::Sha256(*got.frame.payload), crypto::Sha256(*up));
    }
  }
  EXPECT_EQ(total, (64U << 20) + 1000 * 49 * 50 / 2);
  const auto stats = *b.transport->StatsOf(a.id);
  EXPECT_GT(stats.written, total);
  EXPECT_LT(stats.written, total + total / 50);
  EXPECT_EQ(stats.bulk_queue, 0U);
}

TEST_F(TransportTest, ControlDoesNotQueueBehindBulk) {  // R34
  TestPeer a(reactor), b(reactor);
  Connect(reactor, a, b);
  for (int i = 0; i < 24; ++i) {
    ASSERT_TRUE(b.transport->Send(a.id, Channel::kBulk, 30, MakeBlob(Bytes(4 << 20))));
  }
  std::size_t bulk_before_first = 999, bulk = 0, control = 0;
  a.on_frame = [&](const PeerId&, Channel channel, const Frame&) {
    if (channel == Channel::kBulk) ++bulk;
    if (channel == Channel::kControl && control++ == 0) bulk_before_first = bulk;
  };
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(b.transport->Send(a.id, Channel::kControl, 20, MakeBlob(Bytes(100))));
  }
  ASSERT_TRUE(Until([&] { return control == 10 && bulk == 24; }));
  EXPECT_LE(bulk_before_first, 2U);
}

TEST_F(TransportTest, SendIsBoundedAndTellsWhenThereIsSpace) {
  auto options = TestPeer::Options();
  options.bulk_queue = 8 << 20;
  TestPeer a(reactor, options), b(reactor, options);
  Connect(reactor, a, b);
  const Blob blob = MakeBlob(Bytes(1 << 20));
  int sent = 0;
  while (b.transport->Send(a.id, Channel::kBulk, 30, blob)) ASSERT_LT(++sent, 9);
  EXPECT_EQ(sent, 7);
  EXPECT_EQ(b.space, 0);
  ASSERT_TRUE(Until([&] { return b.space == 1; }));
  EXPECT_TRUE(b.transport->Send(a.id, Channel::kBulk, 30, blob));
  ASSERT_TRUE(Until([&] { return a.got.size() == 8; }));
  EXPECT_FALSE(b.transport->Send(a.id, Channel::kControl, 30, MakeBlob(Bytes((1 << 20) + 1))));
  EXPECT_FALSE(b.transport->Send(PeerId{}, Channel::kControl, 30, blob));
}

TEST_F(TransportTest, WrongPinIsToldOnBothSides) {
  TestPeer a(reactor), b(reactor);
  const PeerId other = crypto::SigningKey::Generate().id();
  b.transport->Dial(a.Listen(), other);
  ASSERT_TRUE(Until([&] { return !b.failed.empty() && !a.refused.empty(); }));
  EXPECT_EQ(b.failed[0].step, DialStep::kPin);
  EXPECT_NE(b.failed[0].error.message.find(other.Hex()), std::string::npos);
  EXPECT_NE(b.failed[0].error.message.find(a.id.Hex()), std::string::npos);
  EXPECT_NE(a.refused[0].find("expected another identity"), std::string::npos);
  EXPECT_TRUE(a.ups.empty());
}

TEST_F(TransportTest, AnotherRunIsRefusedWithBothValues) {
  auto options = TestPeer::Options();
  TestPeer a(reactor, options);
  const RunId ours = options.run;
  options.run.bytes.fill(std::byte{9});
  TestPeer b(reactor, options);
  b.transport->Dial(a.Listen(), std::nullopt);
  ASSERT_TRUE(Until([&] { return !b.failed.empty() && !a.refused.empty(); }));
  EXPECT_EQ(b.failed[0].step, DialStep::kHello);
  EXPECT_EQ(b.failed[0].error.code, Code::kRefused);
  for (const std::string& text : {b.failed[0].error.message, a.refused[0]}) {
    EXPECT_NE(text.find(ours.Hex()), std::string::npos) << text;
    EXPECT_NE(text.find(options.run.Hex()), std::string::npos) << text;
  }
}

TEST_F(TransportTest, AnotherGenerationIsRefusedWithBothValues) {
  auto options = TestPeer::Options();
  options.generation = 41;
  TestPeer a(reactor, options);
  options.generation = 42;
  TestPeer b(reactor, options);
  b.transport->Dial(a.Listen(), std::nullopt);
  ASSERT_TRUE(Until([&] { return !b.failed.empty() && !a.refused.empty(); }));
  for (const std::string& text : {b.failed[0].error.message, a.refused[0]}) {
    EXPECT_NE(text.find("dialling side speaks 42, the other 41"), std::string::npos) << text;
  }
}

TEST_F(TransportTest, PolicyRefusesOnEitherSide) {
  TestPeer a(reactor), b(reactor), c(reactor);
  a.Listen();
  a.transport->SetAdmitHello([&](const PeerInfo& peer) -> std::optional<std::string> {
    if (peer.id == b.id) return "the invite is used up (3 of 3)";
    return std::nullopt;
  });
  c.transport->SetAdmitHello([](const PeerInfo&) { return "spec 1 here, spec 2 there"; });
  b.transport->Dial(a.address, a.id);
  c.transport->Dial(a.address, a.id);
  ASSERT_TRUE(
      Until([&] { return a.refused.size() == 2 && b.failed.size() + c.failed.size() == 2; }));
  EXPECT_NE(b.failed[0].error.message.find("used up (3 of 3)"), std::string::npos);
  EXPECT_NE(c.failed[0].error.message.find("spec 1 here"), std::string::npos);
  EXPECT_TRUE(a.ups.empty());
  EXPECT_TRUE(b.ups.empty() && c.ups.empty());
}

TEST_F(TransportTest, CrossedDialsLeaveOnePairUp) {
  for (int round = 0; round < 10; ++round) {
    TestPeer a(reactor), b(reactor);
    a.Listen();
    b.Listen();
    a.transport->Dial(b.address, b.id);
    b.transport->Dial(a.address, a.id);
    ASSERT_TRUE(Until([&] { return a.transport->IsUp(b.id) && b.transport->IsUp(a.id); }));
    ASSERT_TRUE(a.transport->Send(b.id, Channel::kBulk, 20, MakeBlob(Bytes(10))));
    ASSERT_TRUE(b.transport->Send(a.id, Channel::kBulk, 20, MakeBlob(Bytes(10))));
    ASSERT_TRUE(Until([&] { return a.got.size() == 1 && b.got.size() == 1; }));
    // Two heartbeats later it is still the same pair: nothing was torn down by the loser.
    const Time later = reactor.Now() + 100ms;
    Until([&] { return reactor.Now() > later; });
    EXPECT_EQ(a.ups.size(), 1U);
    EXPECT_EQ(b.ups.size(), 1U);
    EXPECT_TRUE(a.downs.empty() && b.downs.empty() && a.failed.empty() && b.failed.empty());
    EXPECT_NE(a.ups[0].dialled_by_us, b.ups[0].dialled_by_us);
  }
}

TEST_F(TransportTest, SeveralWaysToOnePeerLeaveOneConnection) {
  TestPeer a(reactor), b(reactor);
  const auto ports = a.transport->Listen({"*:0"});
  ASSERT_TRUE(ports.ok());
  std::vector<std::string> ways;
  for (int i = 1; i <= 4; ++i) ways.push_back(fmt::format("127.0.0.{}:{}", i, ports->front()));
  for (const std::string& way : ways) b.transport->Dial(way, a.id);
  ASSERT_TRUE(Until([&] { return a.transport->IsUp(b.id) && b.transport->IsUp(a.id); }));
  EXPECT_NE(std::find(ways.begin(), ways.end(), b.ups[0].dialled), ways.end());
  EXPECT_TRUE(a.ups[0].dialled.empty());
  ASSERT_TRUE(Until([&] { return a.transport->Stats().unauthenticated == 0; }));
  ASSERT_TRUE(b.transport->Send(a.id, Channel::kBulk, 20, MakeBlob(Bytes(10))));
  ASSERT_TRUE(Until([&] { return a.got.size() == 1; }));
  EXPECT_EQ(a.ups.size(), 1U);
  EXPECT_EQ(b.ups.size(), 1U);
  EXPECT_TRUE(a.downs.empty() && b.downs.empty() && b.failed.empty() && a.refused.empty());
}

TEST_F(TransportTest, ANameIsReachedByWhicheverAddressAnswers) {
  TestPeer a(reactor), b(reactor);
  a.Listen();  // on 127.0.0.1 only, where a name may also have ::1
  b.transport->Dial(
      fmt::format("localhost:{}", SocketAddress::Numeric(*HostPort::Parse(a.address))->port()),
      a.id);
  ASSERT_TRUE(Until([&] { return a.transport->IsUp(b.id) && b.transport->IsUp(a.id); }));
  EXPECT_TRUE(b.ups[0].dialled.starts_with("localhost:"));
  EXPECT_EQ(b.ups[0].address, a.address);
}

TEST_F(TransportTest, ADeadProcessIsToldFromAClosedConnection) {  // R33
  TestPeer a(reactor), b(reactor), c(reactor);
  b.Listen();
  Connect(reactor, a, b);
  Connect(reactor, a, c);
  b.Kill();
  ASSERT_TRUE(Until([&] { return a.downs.size() == 1; }));
  EXPECT_EQ(a.downs[0].peer, b.id);
  EXPECT_EQ(a.downs[0].reason, DownReason::kRefusedRedial);
  EXPECT_FALSE(a.transport->Send(b.id, Channel::kControl, 20, MakeBlob({})));
  c.Kill();  // listens nowhere: nothing to ask
  ASSERT_TRUE(Until([&] { return a.downs.size() == 2; }));
  EXPECT_EQ(a.downs[1].reason, DownReason::kClosed);
}

TEST_F(TransportTest, ByeCarriesTheReason) {
  TestPeer a(reactor), b(reactor);
  b.Listen();
  Connect(reactor, a, b);
  ASSERT_TRUE(b.transport->Send(a.id, Channel::kControl, 20, MakeBlob(Bytes(100'000))));
  b.transport->Disconnect(a.id, "the owner pressed\nCtrl-C");
  ASSERT_EQ(b.downs.size(), 1U);
  EXPECT_EQ(b.downs[0].reason, DownReason::kLocal);
  ASSERT_TRUE(Until([&] { return a.downs.size() == 1; }));
  EXPECT_EQ(a.got.size(), 1U);
  EXPECT_EQ(a.downs[0].reason, DownReason::kClosed);
  EXPECT_EQ(a.downs[0].detail, "the owner pressed?Ctrl-C");
}

TEST_F(TransportTest, AFrozenPeerIsSilentAndHeardAgain) {  // R33
  Reactor other;
  auto options = TestPeer::Options();
  options.silent_after = 300ms;
  TestPeer a(reactor, options), b(other, options);
  a.Listen();
  b.transport->Dial(a.address, a.id);
  for (int i = 0; i < 10'000 && !(a.transport->IsUp(b.id) && b.transport->IsUp(a.id)); ++i) {
    reactor.RunUntil([] { return false; }, 1ms);
    other.RunUntil([] { return false; }, 1ms);
  }
  ASSERT_TRUE(b.transport->IsUp(a.id));
  ASSERT_TRUE(Until([&] { return a.silent == 1; }));  // b's reactor stands still
  EXPECT_TRUE(a.transport->StatsOf(b.id)->silent);
  EXPECT_TRUE(a.transport->IsUp(b.id));
  for (int i = 0; i < 10'000 && a.heard == 0; ++i) {
    other.RunUntil([] { return false; }, 1ms);
    reactor.RunUntil([] { return false; }, 1ms);
  }
  EXPECT_EQ(a.heard, 1);
  EXPECT_EQ(b.silent, 0);  // it was away itself, and judges nobody for it
  EXPECT_TRUE(a.downs.empty() && b.downs.empty());
}

TEST_F(TransportTest, SilenceEndsInATimeout) {
  Reactor other;
  auto options = TestPeer::Options();
  options.silent_after = 100ms;
  options.dead_after = 300ms;
  TestPeer a(reactor, options), b(other, options);
  a.Listen();
  b.transport->Dial(a.address, a.id);
  for (int i = 0; i < 10'000 && !a.transport->IsUp(b.id); ++i) {
    reactor.RunUntil([] { return false; }, 1ms);
    other.RunUntil([] { return false; }, 1ms);
  }
  ASSERT_TRUE(Until([&] { return a.downs.size() == 1; }));
  EXPECT_EQ(a.downs[0].reason, DownReason::kTimeout);
}

TEST_F(TransportTest, ARestartedPeerIsBackAtOnce) {
  const auto key = crypto::SigningKey::Generate();
  TestPeer a(reactor);
  {
    TestPeer b(reactor, TestPeer::Options(), key);
    Connect(reactor, a, b);
  }
  TestPeer again(reactor, TestPeer::Options(), key);
  Connect(reactor, a, again);
  EXPECT_EQ(a.ups.size(), 2U);
  ASSERT_EQ(a.downs.size(), 1U);
  EXPECT_TRUE(a.refused.empty());
}

TEST_F(TransportTest, ARestartedPeerReplacesItsFrozenConnection) {
  const auto key = crypto::SigningKey::Generate();
  Reactor frozen;
  TestPeer a(reactor), b(frozen, TestPeer::Options(), key);
  a.Listen();
  b.transport->Dial(a.address, a.id);
  for (int i = 0; i < 10'000 && !a.transport->IsUp(b.id); ++i) {
    reactor.RunUntil([] { return false; }, 1ms);
    frozen.RunUntil([] { return false; }, 1ms);
  }
  TestPeer again(reactor, TestPeer::Options(), key);
  again.transport->Dial(a.address, a.id);
  ASSERT_TRUE(Until([&] { return again.transport->IsUp(a.id) && a.ups.size() == 2; }));
  ASSERT_EQ(a.downs.size(), 1U);
  EXPECT_EQ(a.downs[0].reason, DownReason::kReplaced);
  EXPECT_TRUE(a.refused.empty());
}

TEST_F(TransportTest, ASecondProcessOfOneIdentityIsRefused) {
  const auto key = crypto::SigningKey::Generate();
  TestPeer a(reactor), first(reactor, TestPeer::Options(), key),
      copy(reactor, TestPeer::Options(), key);
  Connect(reactor, a, first);
  const std::string where = a.ups[0].address;
  copy.transport->Dial(a.address, a.id);
  ASSERT_TRUE(Until([&] { return !copy.failed.empty() && !a.refused.empty(); }));
  EXPECT_NE(copy.failed[0].error.message.find(where), std::string::npos);
  EXPECT_NE(copy.failed[0].error.message.find("already connected"), std::string::npos);
  EXPECT_NE(copy.failed[0].error.hint.find("a folder of its own"), std::string::npos);
  EXPECT_TRUE(a.transport->IsUp(first.id));
  EXPECT_TRUE(a.downs.empty());
}

TEST_F(TransportTest, DiallingOneselfSaysSo) {
  TestPeer a(reactor);
  a.transport->Dial(a.Listen(), std::nullopt);
  ASSERT_TRUE(Until([&] { return !a.failed.empty(); }));
  EXPECT_NE(a.failed[0].error.message.find("dialled itself"), std::string::npos);
  const auto copied = crypto::SigningKey::FromSeed(a.key.seed());
  TestPeer b(reactor, TestPeer::Options(), copied);
  b.transport->Dial(a.address, std::nullopt);
  ASSERT_TRUE(Until([&] { return !b.failed.empty(); }));
  EXPECT_NE(b.failed[0].error.message.find("serves one process"), std::string::npos);
}

TEST_F(TransportTest, DialFailuresNameTheStep) {
  auto options = TestPeer::Options();
  options.handshake_deadline = 300ms;
  TestPeer a(reactor, options);
  auto closed = OpenListener(*SocketAddress::Numeric({"127.0.0.1", 0}), false);
  ASSERT_TRUE(closed.ok());
  ::close(closed->fd);
  auto mute = OpenListener(*SocketAddress::Numeric({"127.0.0.1", 0}), false);
  ASSERT_TRUE(mute.ok());
  const std::string refused = fmt::format("127.0.0.1:{}", closed->port);
  const std::string silent = fmt::format("127.0.0.1:{}", mute->port);
  for (const std::string& address :
       {refused, silent, std::string("no port"), std::string("nowhere.invalid:1")}) {
    a.transport->Dial(address, std::nullopt);
  }
  ASSERT_TRUE(Until([&] { return a.failed.size() == 4; }));
  ::close(mute->fd);
  for (const auto& f : a.failed) {
    if (f.address == refused) {
      EXPECT_EQ(f.step, DialStep::kConnect);
      EXPECT_EQ(f.error.code, Code::kRefused);
      EXPECT_NE(f.error.message.find(refused), std::string::npos);
    } else if (f.address == silent) {
      EXPECT_EQ(f.step, DialStep::kTls);
      EXPECT_EQ(f.error.code, Code::kTimeout);
    } else {
      EXPECT_EQ(f.step, DialStep::kResolve);
    }
  }
}

TEST_F(TransportTest, ListensOnAllInterfacesAndSaysWhenAPortIsTaken) {
  TestPeer a(reactor), b(reactor);
  auto ports = a.transport->Listen({"*:0"});
  ASSERT_TRUE(ports.ok());
  b.transport->Dial(fmt::format("127.0.0.1:{}", ports->front()), a.id);
  ASSERT_TRUE(Until([&] { return b.transport->IsUp(a.id); }));
  EXPECT_EQ(b.transport->Listen({fmt::format("*:{}", ports->front())}).error().code,
            Code::kConflict);
  EXPECT_FALSE(b.transport->Listen({"0.0.0.0"}).ok());
}

TEST_F(TransportTest, AShapedLinkTakesItsTime) {
  auto options = TestPeer::Options();
  options.total.up = 4 << 20;
  TestPeer a(reactor), b(reactor, options);
  Connect(reactor, a, b);
  const Time start = reactor.Now();
  ASSERT_TRUE(b.transport->Send(a.id, Channel::kBulk, 30, MakeBlob(Bytes(4 << 20))));
  ASSERT_TRUE(Until([&] { return a.got.size() == 1; }));
  EXPECT_GT(reactor.Now() - start,
            850ms);  // a second less the burst; no upper bound on a busy machine
}

TEST_F(TransportTest, ADownCapHoldsTheSenderBack) {
  auto options = TestPeer::Options();
  options.per_peer.down = 4 << 20;
  TestPeer a(reactor, options), b(reactor);
  Connect(reactor, a, b);
  const Time start = reactor.Now();
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(b.transport->Send(a.id, Channel::kBulk, 30, MakeBlob(Bytes(1 << 20))));
  }
  ASSERT_TRUE(Until([&] { return a.got.size() == 4; }));
  EXPECT_GT(reactor.Now() - start, 850ms);
}

}  // namespace
}  // namespace loom::net
