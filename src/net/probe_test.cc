// Transport::Probe: how far a dial comes, asked without becoming a peer.
#include "net/net_test_util.h"

namespace loom::net {
namespace {

class ProbeTest : public ::testing::Test {
 protected:
  struct Outcome {
    int calls = 0;
    std::optional<std::pair<DialStep, Error>> failed;
  };
  /// Asks `from` to probe, and waits for the outcome.
  Outcome Ask(
      TestPeer& from, const std::string& address, const PeerId& expected,
      const std::function<bool(const std::string&)>& allowed = [](const auto&) { return true; }) {
    Outcome outcome;
    from.transport->Probe(address, expected, allowed, [&](const auto& failed) {
      ++outcome.calls;
      outcome.failed = failed;
    });
    EXPECT_EQ(outcome.calls, 0) << "later, not at once";
    EXPECT_TRUE(reactor.RunUntil([&] { return outcome.calls > 0; }, kTestLimit));
    return outcome;
  }
  Reactor reactor;
};

TEST_F(ProbeTest, ReachesAPeerThatIsConnectedAlreadyAndDisturbsNothing) {
  TestPeer a(reactor), b(reactor);
  Connect(reactor, a, b);
  const auto rejected = [&] { return a.transport->Stats().rejected; };
  const std::uint64_t before = rejected();
  const Outcome outcome = Ask(b, a.address, a.id);
  EXPECT_FALSE(outcome.failed.has_value()) << outcome.failed->second.message;
  ASSERT_TRUE(reactor.RunUntil([&] { return rejected() > before; }, kTestLimit));
  EXPECT_EQ(outcome.calls, 1);
  EXPECT_TRUE(a.transport->IsUp(b.id) && b.transport->IsUp(a.id));
  EXPECT_EQ(a.ups.size() + b.ups.size(), 2U);
  EXPECT_TRUE(a.downs.empty() && b.downs.empty() && b.failed.empty() && a.refused.empty());
}

TEST_F(ProbeTest, EachStepThatFailsIsNamed) {
  TestPeer a(reactor), other(reactor), asker(reactor);
  a.Listen();
  const auto step = [&](const Outcome& outcome) {
    return outcome.failed ? std::string(DialStepName(outcome.failed->first)) : "none";
  };
  const Outcome wrong = Ask(asker, a.address, other.id);
  EXPECT_EQ(step(wrong), "pin");
  const Listener closed = *OpenListener(*SocketAddress::Numeric({"127.0.0.1", 0}), false);
  ::close(closed.fd);
  const Outcome refused = Ask(asker, fmt::format("127.0.0.1:{}", closed.port), a.id);
  EXPECT_EQ(step(refused), "connect");
  EXPECT_EQ(refused.failed->second.code, Code::kRefused);
  EXPECT_EQ(step(Ask(asker, "nowhere.invalid:1", a.id)), "resolve");
  EXPECT_EQ(step(Ask(asker, "no address", a.id)), "resolve");
  EXPECT_TRUE(asker.failed.empty() && asker.ups.empty()) << "nothing else is told";
}

TEST_F(ProbeTest, WhatIsNotAllowedIsNotTouched) {
  TestPeer a(reactor), asker(reactor);
  a.Listen();
  const auto none = [](const std::string& ip) { return ip != "127.0.0.1"; };
  const Outcome outcome = Ask(asker, a.address, a.id, none);
  ASSERT_TRUE(outcome.failed.has_value());
  EXPECT_EQ(outcome.failed->first, DialStep::kResolve);
  EXPECT_NE(outcome.failed->second.message.find("127.0.0.1"), std::string::npos);
  EXPECT_EQ(a.transport->Stats().rejected + a.transport->Stats().unauthenticated, 0U);
}

}  // namespace
}  // namespace loom::net
