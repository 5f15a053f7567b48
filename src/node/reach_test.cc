// What a peer says about the addresses that it tried, and what nodes tell each other of addresses.
#include "node/reach.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "node/interfaces.h"
#include "node/node_messages.h"

namespace loom::node {
namespace {

using net::DialStep;

PeerId Id(int i) {
  PeerId id;
  id.bytes[0] = static_cast<std::byte>(i);
  return id;
}

std::string Text(const json::Value& value, std::string_view key) {
  const json::Value* found = value.Find(key);
  return found != nullptr && found->AsString() != nullptr ? *found->AsString() : "-";
}

TEST(Reach, EveryAddressIsNamedWithItsStepAndTheNextStep) {
  const std::vector<std::tuple<DialStep, Code, std::string>> kinds{
      {DialStep::kResolve, Code::kUnreachable, "name look-up failed"},
      {DialStep::kResolve, Code::kTimeout, "name look-up timed out"},
      {DialStep::kConnect, Code::kRefused, "connect refused"},
      {DialStep::kConnect, Code::kTimeout, "connect timed out"},
      {DialStep::kConnect, Code::kUnreachable, "network unreachable"},
      {DialStep::kTls, Code::kUnreachable, "TLS handshake failed"},
      {DialStep::kTls, Code::kTimeout, "TLS handshake timed out"},
      {DialStep::kPin, Code::kConflict, "wrong peer key"},
      {DialStep::kHello, Code::kRefused, "refused by the member"},
      {DialStep::kHello, Code::kConflict, "this identity is connected already"},
      {DialStep::kHello, Code::kTimeout, "hello failed"}};
  Reach reach;
  std::set<std::string> next;
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    const std::string address = fmt::format("h{}.example:1", i);
    const auto& [step, code, name] = kinds[i];
    reach.Trying(address, Id(1));
    EXPECT_TRUE(reach.Failed(address, step, MakeError(code, fmt::format("cause {}", i))));
    EXPECT_FALSE(reach.Failed(address, step, MakeError(code, "again"))) << "no news";
    EXPECT_NE(reach.Text().find(fmt::format("{} (01000000): {}: again", address, name)),
              std::string::npos)
        << reach.Text();
    next.insert(NextStep(step, code));
  }
  EXPECT_GE(next.size(), 8u) << "each kind has a next step of its own";
  EXPECT_EQ(reach.tried(), kinds.size());

  const json::Value first(reach.Json("h2.example:1"));
  EXPECT_EQ(Text(first, "peer"), Id(1).Hex());
  EXPECT_EQ(Text(first, "step"), "connect");
  EXPECT_EQ(Text(first, "code"), "refused");
  EXPECT_EQ(Text(first, "error"), "again");
  EXPECT_EQ(Text(first, "next"), NextStep(DialStep::kConnect, Code::kRefused));
  EXPECT_EQ(*first.Find("times")->AsUnsigned(), 2u);
  EXPECT_EQ(reach.Json().size(), kinds.size());
}

TEST(Reach, OfAPrivateAddressItIsSaidWhereItWorks) {
  Reach reach;
  reach.Trying("192.168.1.10:4711", Id(1));
  reach.Failed("192.168.1.10:4711", DialStep::kConnect, MakeError(Code::kTimeout, "late"));
  EXPECT_NE(reach.Text().find("within its own network or VPN only"), std::string::npos);
  reach.Failed("192.168.1.10:4711", DialStep::kConnect, MakeError(Code::kConflict, "ours"));
  EXPECT_NE(reach.Text().find("this machine's own address"), std::string::npos) << reach.Text();
  EXPECT_NE(reach.Text().find("same private addresses"), std::string::npos) << reach.Text();
}

TEST(Reach, WhatHasNoOutcomeYetIsNamedToo) {
  Reach reach;
  EXPECT_NE(reach.Text().find("no address"), std::string::npos);
  reach.Trying("a.example:1", {});
  EXPECT_NE(reach.Text().find("a.example:1: no outcome yet"), std::string::npos);
  EXPECT_EQ(Text(json::Value(reach.Json()[0]), "step"), "trying");
  EXPECT_FALSE(reach.Failed("never.tried:1", DialStep::kTls, MakeError(Code::kTimeout, "x")));
}

TEST(Reach, WhoIsReachedLeavesTheList) {
  Reach reach;
  for (const int peer : {1, 2}) {
    const std::string address = fmt::format("10.0.0.{}:1", peer);
    reach.Trying(address, Id(peer));
    EXPECT_TRUE(reach.Failed(address, DialStep::kConnect, MakeError(Code::kTimeout, "late")));
  }
  EXPECT_EQ(reach.About(Id(2)), "10.0.0.2:1: connect timed out");
  reach.Reached(Id(2));
  EXPECT_EQ(reach.About(Id(2)), "");
  EXPECT_EQ(reach.tried(), 1u);
}

TEST(Reach, TheListIsBounded) {
  Reach reach;
  for (int i = 0; i < 1000; ++i) reach.Trying(fmt::format("h{}:1", i), Id(1));
  EXPECT_EQ(reach.tried(), Reach::kMaxTries);
  EXPECT_EQ(reach.Json(5).size(), 5u);
}

TEST(Interfaces, LoopbackIsListedAndNothingLinkLocal) {
  const auto found = InterfaceAddresses();
  EXPECT_TRUE(
      std::any_of(found.begin(), found.end(), [](const auto& i) { return i.ip == "127.0.0.1"; }));
  for (const auto& i : found) {
    const swarm::Address address{i.ip, 1};
    EXPECT_TRUE(address.MeansSomething(true)) << i.ip;
    EXPECT_TRUE(swarm::ParseAddress(address.ToString()).ok()) << i.ip;
  }
}

TEST(NodeMessages, AddressesRoundTripAndWhatIsNoAddressIsLeftOut) {
  const Addresses told{{{Id(1), *swarm::ParseAddress("[2001:db8::1]:4711")},
                        {Id(2), *swarm::ParseAddress("attic.example:1")}}};
  const auto back = DecodeNodeMessage(TypeOf(told), EncodeNodeMessage(told));
  ASSERT_TRUE(back.ok());
  const auto& entries = std::get<Addresses>(*back).entries;
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].address.ToString(), "[2001:db8::1]:4711");
  EXPECT_EQ(entries[1].peer, Id(2));

  wire::Writer out;
  out.Count(1);
  out.Id(Id(1));
  out.Text("no address");
  const auto odd = DecodeNodeMessage(TypeOf(told), std::move(out).Take());
  ASSERT_TRUE(odd.ok());
  EXPECT_TRUE(std::get<Addresses>(*odd).entries.empty());

  wire::Writer many;
  many.Count(kMaxToldAddresses + 1);
  EXPECT_FALSE(DecodeNodeMessage(TypeOf(told), std::move(many).Take()).ok());
}

}  // namespace
}  // namespace loom::node
