// Whoever should not be there, and machines that are full: the run goes on, and the message says
// what is wrong.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <map>

#include "crypto/keys.h"
#include "net/socket.h"
#include "swarm/invite.h"
#include "tests/e2e/swarm_process.h"

namespace loom::e2e {
namespace {

using Strangers = SwarmTest;

/// Sends the bytes and hears the other side out, at most 5 s.
bool Shout(std::uint16_t port, std::string_view bytes) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const timeval limit{5, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  const bool connected = ::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  if (connected) {
    static_cast<void>(::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL));
    ::shutdown(fd, SHUT_WR);
    char buffer[256];
    while (::recv(fd, buffer, sizeof buffer, 0) > 0) {
    }
  }
  ::close(fd);
  return connected;
}

TEST_F(Strangers, RandomBytesAndHttpOnThePeerPortChangeNothing) {
  Peer& host = Host("host");
  Peer& second = Join("second", host.invite);
  ASSERT_TRUE(UntilRound({&host, &second}, 1, 2));
  const std::uint16_t port = PortOf(host);
  ASSERT_NE(port, 0);
  std::string noise;
  std::uint32_t state = 7;
  for (int i = 0; i < 100000; ++i) {
    state = state * 1664525U + 1013904223U;
    noise += static_cast<char>(state >> 24);
  }
  EXPECT_TRUE(Shout(port, noise));
  EXPECT_TRUE(Shout(port, "GET / HTTP/1.1\r\nHost: loom\r\n\r\n"));
  EXPECT_TRUE(Shout(port, std::string("\xff\xff\xff\xff", 4) + noise));
  EXPECT_TRUE(Shout(port, ""));
  ASSERT_TRUE(UntilRound({&host, &second}, std::max(host.round, second.round) + 2, 2));
  ExpectOneHistory();
}

TEST_F(Strangers, AWrongInviteIsNamedAtOnce) {
  Peer& host = Host("host");
  std::string typo = host.invite;
  typo[typo.size() / 2] = typo[typo.size() / 2] == 'a' ? 'b' : 'a';
  const Ended ended = Run({"join", typo, "--dir", Path("typo")});
  EXPECT_NE(ended.code, 0);
  EXPECT_NE(ended.log.find("invite"), std::string::npos) << ended.log;
  const Ended nonsense = Run({"join", "hello", "--dir", Path("nonsense")});
  EXPECT_NE(nonsense.code, 0);
  EXPECT_NE(nonsense.log.find("loom1"), std::string::npos) << nonsense.log;
}

TEST_F(Strangers, AnExpiredInviteIsRefused) {
  Peer& host = Host("host");
  const Ended short_lived = Run({"invite", "--seconds", "1", "--dir", host.dir, "--json"});
  ASSERT_FALSE(short_lived.said.empty()) << short_lived.log;
  std::this_thread::sleep_for(2100ms);  // its end is a whole second
  const std::string invite = *short_lived.said[0].Find("invite")->AsString();
  const Ended ended = Run({"join", invite, "--dir", Path("late")});
  EXPECT_NE(ended.code, 0);
  EXPECT_NE(ended.log.find("expired"), std::string::npos) << ended.log;
}

TEST_F(Strangers, AUsedUpInviteIsRefused) {
  Peer& host = Host("host", {.arguments = {"--invite-uses", "1"}, .environment = {}});
  Peer& second = Join("second", host.invite);
  ASSERT_TRUE(UntilRound({&host, &second}, 1, 2));
  const Ended ended = Run({"join", host.invite, "--dir", Path("third")});
  EXPECT_NE(ended.code, 0);
  EXPECT_NE(ended.log.find("use"), std::string::npos) << ended.log;
  ASSERT_TRUE(UntilRound({&host, &second}, host.round + 1, 2));
}

std::string Text(const json::Value& value, std::string_view key) {
  const json::Value* found = value.Find(key);
  return found != nullptr && found->AsString() != nullptr ? *found->AsString() : "";
}

/// A TCP port that takes connections and says nothing; or, closed again, one that refuses.
net::Listener OpenPort() {
  return *net::OpenListener(*net::SocketAddress::Numeric({"127.0.0.1", 0}), false);
}

TEST_F(Strangers, AJoinerThatReachesNobodyNamesEveryAddressAndItsStepWithin20Seconds) {
  Peer& other = Host("other");  // a peer of another run, with another key
  const net::Listener mute = OpenPort();
  const net::Listener closed = OpenPort();
  ::close(closed.fd);
  const auto owner = crypto::SigningKey::Generate();
  swarm::Invite draft;
  draft.run.bytes.fill(std::byte{5});
  draft.expires = SystemClock().WallSeconds() + 3600;
  const std::map<std::string, std::pair<std::string, std::string>> expected{
      {fmt::format("127.0.0.1:{}", closed.port), {"connect", "refused"}},
      {fmt::format("127.0.0.1:{}", mute.port), {"tls", "timeout"}},
      {fmt::format("127.0.0.1:{}", PortOf(other)), {"pin", "conflict"}},
      {"nowhere.invalid:4711", {"resolve", ""}}};
  for (const auto& [address, failure] : expected) {
    draft.addresses.push_back({*swarm::ParseAddress(address), owner.id()});
  }
  const std::string token = swarm::EncodeInvite(*swarm::SignInvite(draft, owner));
  const Ended ended = Run({"join", token, "--json", "--dir", Path("alone")}, 40s);
  ::close(mute.fd);
  EXPECT_EQ(ended.code, 8) << ended.log;
  EXPECT_LT(ended.seconds, 25.0);  // 20 s, and what the process needs to start and stop

  const auto last = std::find_if(ended.said.begin(), ended.said.end(), [](const json::Value& said) {
    return Text(said, "event") == "unreachable";
  });
  ASSERT_NE(last, ended.said.end()) << ended.log;
  const json::Array& tried = *last->Find("tried")->AsArray();
  EXPECT_EQ(tried.size(), expected.size());
  for (const json::Value& one : tried) {
    const auto known = expected.find(Text(one, "address"));
    ASSERT_NE(known, expected.end()) << Text(one, "address");
    const auto& [step, code] = known->second;
    EXPECT_EQ(Text(one, "step"), step) << known->first << ": " << Text(one, "error");
    if (!code.empty()) {
      EXPECT_EQ(Text(one, "code"), code) << known->first;
    }
    EXPECT_FALSE(Text(one, "next").empty());
    EXPECT_EQ(Text(one, "peer"), owner.id().Hex());
    EXPECT_NE(ended.log.find("  " + known->first), std::string::npos) << ended.log;
  }
  EXPECT_NE(ended.log.find("connect refused"), std::string::npos) << ended.log;
  EXPECT_NE(ended.log.find("wrong peer key"), std::string::npos) << ended.log;
  EXPECT_NE(ended.log.find("next: "), std::string::npos) << ended.log;
}

TEST_F(Strangers, AFullDiskEndsThatPeerAloneAndSaysSo) {
  const std::string small = Path("small");
  std::filesystem::create_directories(small);
  if (::mount("loom", small.c_str(), "tmpfs", 0, "size=400k") != 0) {
    GTEST_SKIP() << "a small file system cannot be mounted here (it takes root)";
  }
  Peer& host = Host("host");
  const Ended ended = Run({"join", host.invite, "--dir", small + "/peer"}, 120s);
  EXPECT_NE(ended.code, 0);
  EXPECT_TRUE(ended.log.find("space") != std::string::npos ||
              ended.log.find("disk") != std::string::npos)
      << ended.log;
  EXPECT_TRUE(UntilRound({&host}, host.round + 3, 1));
  ::umount2(small.c_str(), MNT_DETACH);
}

}  // namespace
}  // namespace loom::e2e
