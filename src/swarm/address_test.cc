// Addresses, and which of them a peer tells.
#include "swarm/address.h"

#include <gtest/gtest.h>

#include "swarm/own_addresses.h"

namespace loom::swarm {
namespace {

Address At(std::string_view text) { return *ParseAddress(text); }

TEST(Address, ParsesAndPrints) {
  for (const std::string text : {"node.example:4001", "10.0.0.2:1", "[2001:db8::1]:65535",
                                 "[::1]:7", "[::ffff:1.2.3.4]:9", "localhost:80"}) {
    const auto address = ParseAddress(text);
    ASSERT_TRUE(address) << text << ": " << address.error().ToString();
    EXPECT_EQ(address->ToString(), text);
  }
  EXPECT_EQ(At("Node.Example:1").host, "node.example");
  EXPECT_TRUE(ParseAddress("0.0.0.0:0", true));
}

TEST(Address, RefusesWithAReason) {
  for (const std::string text : {"",
                                 "host",
                                 "host:",
                                 ":1",
                                 "host:0",
                                 "host:65536",
                                 "host:-1",
                                 "host:1x",
                                 "::1:1",
                                 "[::1]",
                                 "[::1]1",
                                 "[::1:1",
                                 "[host]:1",
                                 "1.2.3:1",
                                 "1.2.3.256:1",
                                 "01.2.3.4:1",
                                 "ho st:1",
                                 "-a:1",
                                 "a..b:1",
                                 "[1::2::3]:1",
                                 "[1:2:3:4:5:6:7:8:9]:1",
                                 "[12345::]:1",
                                 "a/b:1",
                                 "[:1]:1",
                                 "[1:]:1",
                                 "host.:1x"}) {
    const auto address = ParseAddress(text);
    ASSERT_FALSE(address) << text;
    EXPECT_EQ(address.error().code, Code::kInvalid);
    EXPECT_FALSE(address.error().hint.empty());
  }
  EXPECT_FALSE(ParseAddress(std::string(300, 'a') + ":1"));
}

TEST(Address, KnowsFromWhereItCanBeDialled) {
  const auto scope = [](const std::string& host) { return Address{host, 1}.Scope(); };
  for (const char* host : {"8.8.8.8", "172.32.0.1", "192.169.0.1", "100.128.0.1", "2001:db8::1",
                           "fc::1", "::2", "node.example", "mylocal"}) {
    EXPECT_EQ(scope(host), AddressScope::kGlobal) << host;
  }
  for (const char* host : {"10.0.0.1", "172.16.0.1", "172.31.255.1", "192.168.1.1", "100.64.0.1",
                           "fd00::1", "fc00::1", "::ffff:10.1.2.3", "attic.local"}) {
    EXPECT_EQ(scope(host), AddressScope::kPrivate) << host;
  }
  for (const char* host :
       {"127.0.0.9", "::1", "0:0:0:0:0:0:0:1", "::ffff:127.0.0.1", "localhost", "a.localhost"}) {
    EXPECT_EQ(scope(host), AddressScope::kLoopback) << host;
    EXPECT_TRUE((Address{host, 1}.MeansSomething(true)));
    EXPECT_FALSE((Address{host, 1}.MeansSomething(false)));
  }
  for (const char* host : {"0.0.0.0", "0.1.2.3", "169.254.1.2", "224.0.0.251", "255.255.255.255",
                           "::", "fe80::1", "febf::1", "ff02::1", "::ffff:169.254.1.1"}) {
    EXPECT_EQ(scope(host), AddressScope::kNowhere) << host;
    EXPECT_FALSE((Address{host, 1}.MeansSomething(true)));
  }
}

const std::vector<InterfaceAddress> kInterfaces{
    {"127.0.0.1", false},   {"::1", false},        {"fe80::7", false}, {"fd00::7", false},
    {"10.9.0.2", false},    {"2001:db8::7", true}, {"fd00::8", true},  {"192.168.1.20", true},
    {"169.254.8.8", false}, {"203.0.113.7", false}};

std::string Told(const std::optional<Address>& announced, const std::vector<Listening>& listening) {
  std::string text;
  for (const Address& address : OwnAddresses(announced, listening, kInterfaces)) {
    text += (text.empty() ? "" : " ") + address.host;
  }
  return text;
}

TEST(OwnAddresses, TheLikeliestFirstEachOnceAndNoneThatCannotWork) {
  EXPECT_EQ(Told(At("attic.example:4711"), {{"*", 4711}}),
            "attic.example 203.0.113.7 192.168.1.20 10.9.0.2 2001:db8::7");
  EXPECT_EQ(Told({}, {{"*", 4711}}), "203.0.113.7 192.168.1.20 10.9.0.2 2001:db8::7 fd00::8");
  EXPECT_EQ(Told({}, {{"::", 4711}}), "2001:db8::7 fd00::8 fd00::7");
  EXPECT_EQ(Told({}, {{"0.0.0.0", 4711}}), "203.0.113.7 192.168.1.20 10.9.0.2");
  EXPECT_EQ(Told(At("192.168.1.20:4711"), {{"0.0.0.0", 4711}}),
            "192.168.1.20 203.0.113.7 10.9.0.2");
  EXPECT_EQ(Told(At("192.168.1.20:99"), {{"192.168.1.20", 4711}}), "192.168.1.20 192.168.1.20")
      << "another port is another address";
}

TEST(OwnAddresses, LoopbackOnlyWhereItIsListenedOnOrNothingElseIsThere) {
  EXPECT_EQ(Told({}, {{"127.0.0.1", 4711}}), "127.0.0.1");
  EXPECT_EQ(Told(At("localhost:4711"), {{"127.0.0.1", 4711}}), "localhost 127.0.0.1");
  const std::vector<InterfaceAddress> offline{{"127.0.0.1", false}, {"::1", false}};
  const auto alone = OwnAddresses({}, {{"*", 4711}}, offline);
  ASSERT_EQ(alone.size(), 2u);
  EXPECT_EQ(alone[0], At("127.0.0.1:4711"));
}

TEST(OwnAddresses, WhoListensNowhereTellsNothing) {
  EXPECT_EQ(Told(At("attic.example:4711"), {}), "");
}

TEST(InviteAddresses, OwnOnesThenTheBestOfEachOtherMember) {
  const auto id = [](int i) {
    PeerId peer;
    peer.bytes[0] = static_cast<std::byte>(i);
    return peer;
  };
  const std::vector<Address> own{At("203.0.113.7:1"), At("192.168.1.20:1")};
  std::vector<std::pair<PeerId, std::vector<Address>>> others{
      {id(1), {At("127.0.0.1:1"), At("198.51.100.1:1"), At("198.51.100.2:1")}},
      {id(2), {}},
      {id(3), {At("[::1]:1")}}};
  const auto few = InviteAddresses(id(9), own, others);
  ASSERT_EQ(few.size(), 3u);
  EXPECT_EQ(few[1], (InviteAddress{At("192.168.1.20:1"), id(9)}));
  EXPECT_EQ(few[2], (InviteAddress{At("198.51.100.1:1"), id(1)}));
  const auto local = InviteAddresses(id(9), {At("127.0.0.1:2")}, others);
  ASSERT_EQ(local.size(), 3u);
  EXPECT_EQ(local[1].address, At("127.0.0.1:1"));
  for (int i = 10; i < 30; ++i) others.push_back({id(i), {At(fmt::format("h{}:1", i))}});
  EXPECT_EQ(InviteAddresses(id(9), own, others).size(), kMaxInviteAddresses);
}

}  // namespace
}  // namespace loom::swarm
