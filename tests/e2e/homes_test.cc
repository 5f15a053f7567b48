// Two homes behind a router each, and an internet between them, as network namespaces: the recipes
// of README "Two homes", tried as a new user would. Both homes have the same private addresses, as
// home routers do out of the box. Takes root, iproute2 and nftables, and is skipped without them.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "base/file.h"
#include "tests/e2e/swarm_process.h"

namespace loom::e2e {
namespace {

/// Other than ip -n and ip netns exec it mounts nothing, which takes a root that is a mount.
constexpr const char* kEnter = "/usr/bin/nsenter";

/// The router of a home: masquerading, nothing let in from outside but what the forward says.
constexpr const char* kRouterRules = R"(table ip home {
  chain out { type nat hook postrouting priority 100; oifname "wan" masquerade; }
  chain forwards { type nat hook prerouting priority -100; }
  chain through {
    type filter hook forward priority 0; policy drop;
    ct state established,related accept
    iifname "lan" accept
    ct status dnat accept
  }
  chain self {
    type filter hook input priority 0; policy drop;
    ct state established,related accept
    iifname "lan" accept
  }
}
)";

std::string Text(const json::Value& value, std::string_view key) {
  const json::Value* found = value.Find(key);
  return found != nullptr && found->AsString() != nullptr ? *found->AsString() : "";
}

class Homes : public SwarmTest {
 protected:
  void SetUp() override {
    SwarmTest::SetUp();
    if (::geteuid() != 0) GTEST_SKIP() << "network namespaces take root";
    if (!Shell("command -v ip && command -v nft"))
      GTEST_SKIP() << "ip or nft is missing: apt-get install iproute2 nftables";
    if (!Shell(fmt::format("ip netns add {}", Name("net"))))
      GTEST_SKIP() << "no network namespace can be made here: " << Said();
    made_ = true;
    std::ofstream(Path("router.nft")) << kRouterRules;
    const std::string net = Name("net");
    ASSERT_TRUE(
        Shell(fmt::format("nsenter --net=/run/netns/{} ip link add br0 type bridge && nsenter "
                          "--net=/run/netns/{} ip link set br0 up",
                          net, net)))
        << Said();
    OnTheInternet("c", "203.0.113.4");
    if (!Shell(fmt::format("nsenter --net=/run/netns/{} nft -f {}", Name("c"), Path("router.nft"))))
      GTEST_SKIP() << "this kernel does no masquerading with nftables: " << Said();
    ASSERT_TRUE(Shell(fmt::format("nsenter --net=/run/netns/{} nft flush ruleset", Name("c"))))
        << Said();
    Home("a", "203.0.113.2");
    Home("b", "203.0.113.3");
  }
  void TearDown() override {
    SwarmTest::TearDown();  // ends the processes and takes the folder away
    if (!made_) return;
    for (const char* place : {"a", "b", "router-a", "router-b", "c", "net"})
      static_cast<void>(
          std::system(fmt::format("ip netns del {} 2> /dev/null", Name(place)).c_str()));
  }

  /// The recipe's port forward, on the page of a home's router.
  void Forward(const std::string& home, std::uint16_t port) {
    EXPECT_TRUE(Shell(
        fmt::format("nsenter --net=/run/netns/{} nft add rule ip home forwards iifname wan tcp "
                    "dport {} dnat to 192.168.1.10:{}",
                    Name("router-" + home), port, port)))
        << Said();
  }
  void StopForwarding(const std::string& home) {
    EXPECT_TRUE(Shell(fmt::format("nsenter --net=/run/netns/{} nft flush chain ip home forwards",
                                  Name("router-" + home))))
        << Said();
  }
  Setting In(const std::string& place, std::vector<std::string> arguments = {}) const {
    return {.arguments = std::move(arguments),
            .environment = {},
            .prefix = {kEnter, "--net=/run/netns/" + Name(place)}};
  }
  /// A row of loom doctor, run where the peer is.
  json::Value Doctor(const Peer& peer, const std::string& place, const std::string& check) {
    const Ended ended = Run({"doctor", "--json", "--dir", peer.dir}, 60s, In(place));
    for (const json::Value& said : ended.said) {
      const json::Value* checks = said.Find("checks");
      if (checks == nullptr) continue;
      for (const json::Value& row : *checks->AsArray()) {
        if (Text(row, "name") == check) return row;
      }
    }
    ADD_FAILURE() << "no " << check << " in " << ended.log;
    return {};
  }
  json::Value StatusOf(const Peer& peer) {
    const Ended ended = Run({"status", "--json", "--dir", peer.dir});
    return ended.said.empty() ? json::Value() : ended.said.front();
  }
  /// What `peer` says of `other` in its status.
  json::Value About(const Peer& peer, const Peer& other) {
    const json::Value status = StatusOf(peer);
    const json::Value* peers = status.Find("peers");
    for (const json::Value& p : peers != nullptr ? *peers->AsArray() : json::Array{}) {
      if (Text(p, "id") == other.id) return p;
    }
    return {};
  }

 private:
  static std::string Name(const std::string& place) {
    return fmt::format("loom{}-{}", ::getpid(), place);
  }
  bool Shell(const std::string& command) const {
    return std::system(("( " + command + " ) > " + Path("shell.log") + " 2>&1").c_str()) == 0;
  }
  std::string Said() const {
    const auto said = ReadFile(Path("shell.log"), 1U << 16);
    return said ? *said : "";
  }
  /// A namespace with an address on the internet.
  void OnTheInternet(const std::string& place, const std::string& address) {
    const std::string name = Name(place);
    const std::string net = Name("net");
    ASSERT_TRUE(Shell(fmt::format(
        "set -e; ip netns add {0}; nsenter --net=/run/netns/{0} ip link set lo up; "
        "nsenter --net=/run/netns/{0} ip link add wan type veth peer name {2} netns {1}; "
        "nsenter --net=/run/netns/{1} ip link set {2} master br0 up; "
        "nsenter --net=/run/netns/{0} ip address add {3}/24 dev wan; nsenter --net=/run/netns/{0} "
        "ip link set wan up",
        name, net, place, address)))
        << Said();
  }
  void Home(const std::string& home, const std::string& address) {
    OnTheInternet("router-" + home, address);
    ASSERT_TRUE(Shell(fmt::format(
        "set -e; ip netns add {0}; nsenter --net=/run/netns/{0} ip link set lo up; "
        "nsenter --net=/run/netns/{0} ip link add eth0 type veth peer name lan netns {1}; "
        "nsenter --net=/run/netns/{1} ip address add 192.168.1.1/24 dev lan; nsenter "
        "--net=/run/netns/{1} ip link set lan up; "
        "nsenter --net=/run/netns/{0} ip address add 192.168.1.10/24 dev eth0; nsenter "
        "--net=/run/netns/{0} ip link set eth0 up; "
        "nsenter --net=/run/netns/{0} ip route add default via 192.168.1.1; "
        "nsenter --net=/run/netns/{1} sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward'; "
        "nsenter --net=/run/netns/{1} nft -f {2}",
        Name(home), Name("router-" + home), Path("router.nft"))))
        << Said();
  }

  bool made_ = false;
};

TEST_F(Homes, APortForwardOnOneSideIsEnough) {
  Forward("a", 4711);
  Peer& first = Host("first", In("a", {"--listen", "*:4711", "--announce", "203.0.113.2:4711"}));
  Peer& second = Join("second", first.invite, In("b", {"--listen", "*:4711"}));
  ASSERT_TRUE(UntilRound({&first, &second}, 3, 2));

  const json::Value reached = Doctor(first, "a", "dial_back");
  EXPECT_EQ(Text(reached, "result"), "pass") << Text(reached, "found");
  EXPECT_NE(Text(reached, "found").find("203.0.113.2:4711 (by " + second.id.substr(0, 8)),
            std::string::npos)
      << Text(reached, "found");

  // The other one announces nothing that works from outside, and is told what would.
  const json::Value inside = Doctor(second, "b", "dial_back");
  EXPECT_EQ(Text(inside, "result"), "warn") << Text(inside, "found");
  EXPECT_NE(Text(inside, "found").find("seen as 203.0.113.3"), std::string::npos)
      << Text(inside, "found");
  const std::string next = Text(inside, "next");
  EXPECT_NE(next.find("http://192.168.1.1"), std::string::npos) << next;
  EXPECT_NE(next.find("TCP port 4711 to 192.168.1.10, port 4711"), std::string::npos) << next;
  EXPECT_NE(next.find("--announce 203.0.113.3:4711"), std::string::npos) << next;

  // The forward is taken away: those who are connected go on, and doctor names the step.
  StopForwarding("a");
  const json::Value lost = Doctor(first, "a", "dial_back");
  EXPECT_EQ(Text(lost, "result"), "fail") << Text(lost, "found");
  EXPECT_NE(Text(lost, "found").find("203.0.113.2:4711 was not reached"), std::string::npos);
  EXPECT_NE(Text(lost, "found").find("connect timed out"), std::string::npos)
      << Text(lost, "found");
  EXPECT_NE(Text(lost, "next").find("forward TCP port 4711"), std::string::npos);
  ASSERT_TRUE(UntilRound({&first, &second}, first.round + 2, 2));
  ExpectOneHistory();
}

TEST_F(Homes, AThirdPeerOnTheInternetForwardsForTwoThatNobodyCanDial) {
  Peer& rented = Host("rented", In("c", {"--listen", "*:4711", "--announce", "203.0.113.4:4711"}));
  Peer& first = Join("first", rented.invite, In("a", {"--listen", "*:4711"}));
  Peer& second = Join("second", rented.invite, In("b", {"--listen", "*:4711"}));
  const std::vector<Peer*> all{&rented, &first, &second};
  ASSERT_TRUE(UntilRound(all, 3, 3));
  ASSERT_TRUE(Until("word of the way through the third peer", [&] {
    return Text(About(first, second), "via") == rented.id &&
           Text(About(second, first), "via") == rented.id;
  }));
  const Ended status = Run({"status", "--dir", first.dir});
  ASSERT_EQ(status.code, 0);
  const json::Value told = StatusOf(first);
  const json::Value* isolations = told.Find("isolations");
  ASSERT_NE(isolations, nullptr);
  EXPECT_TRUE(std::ranges::any_of(*isolations->AsArray(), [&](const json::Value& isolation) {
    return Text(isolation, "without") == rented.id;
  })) << json::Dump(told);
  ASSERT_TRUE(UntilRound(all, rented.round + 2, 3));

  // The rented machine stops to compute and goes on to forward.
  ASSERT_EQ(Run({"pause", "--dir", rented.dir}).code, 0);
  ASSERT_TRUE(UntilRound({&first, &second}, first.round + 2, 2));
  ASSERT_TRUE(UntilRound({&first, &second}, first.round + 3, 2));
  ExpectOneHistory();
}

TEST_F(Homes, WithoutForwardAndThirdTheJoinerIsToldWhichAddressFailedHow) {
  Peer& first = Host("first", In("a", {"--listen", "*:4711", "--announce", "203.0.113.2:4711"}));
  const Ended ended =
      Run({"join", first.invite, "--dir", Path("second"), "--listen", "*:4711"}, 60s, In("b"));
  EXPECT_EQ(ended.code, 8) << ended.log;
  EXPECT_NE(ended.log.find("203.0.113.2:4711 (" + first.id.substr(0, 8) + "): connect timed out"),
            std::string::npos)
      << ended.log;
  EXPECT_NE(ended.log.find("port forward"), std::string::npos) << ended.log;
  // The same private address is this machine's own here, and no word of a wrong key for it.
  EXPECT_NE(ended.log.find("192.168.1.10:4711"), std::string::npos) << ended.log;
  EXPECT_EQ(ended.log.find("wrong peer key"), std::string::npos) << ended.log;
  EXPECT_FALSE(std::filesystem::exists(Path("second"))) << "nothing is left behind";
}

}  // namespace
}  // namespace loom::e2e
