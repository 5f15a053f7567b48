// Addresses, invites (R15) and the directory.
#include "swarm/invite.h"

#include <gtest/gtest.h>

#include <set>

#include "crypto/hash.h"
#include "swarm/directory.h"

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
  EXPECT_TRUE(At("127.0.0.9:1").IsLoopback());
  EXPECT_TRUE(At("[::1]:1").IsLoopback());
  EXPECT_TRUE(At("192.168.1.1:1").IsPrivate());
  EXPECT_TRUE(At("[fd00::1]:1").IsPrivate());
  EXPECT_FALSE(At("8.8.8.8:1").IsPrivate());
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

class InviteTest : public testing::Test {
 protected:
  static crypto::SigningKey Key(std::string_view name) {
    return *crypto::SigningKey::FromSeedBytes(crypto::Sha256(AsBytes(name)).View());
  }
  Invite Draft() const {
    Invite invite;
    invite.run = *RunId::FromHex(std::string(64, 'a'));
    invite.addresses = {{At("203.0.113.5:4001"), Key("host").id()}, {At("[2001:db8::1]:4001"), {}}};
    invite.nonce[0] = std::byte{7};
    invite.expires = 1'800'000'000;
    invite.max_uses = 20;
    return invite;
  }
  crypto::SigningKey owner_ = Key("owner");
  crypto::SigningKey member_ = Key("member");
};

TEST_F(InviteTest, R15RoundTripOnOneLine) {
  const auto invite = SignInvite(Draft(), owner_);
  ASSERT_TRUE(invite);
  const std::string token = EncodeInvite(*invite);
  EXPECT_TRUE(token.starts_with("loom1"));
  EXPECT_EQ(token.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789"), std::string::npos);
  EXPECT_LT(token.size(), 500u);
  const auto parsed = ParseInvite("  " + token + "\n");
  ASSERT_TRUE(parsed) << parsed.error().ToString();
  EXPECT_EQ(*parsed, *invite);
  const std::vector owners{owner_.public_key()};
  EXPECT_TRUE(CheckInviteAuthority(*parsed, owners));
  EXPECT_TRUE(CheckInviteTime(*parsed, 1'799'999'999));
}

TEST_F(InviteTest, EachKindOfBadInviteHasItsOwnMessage) {
  const std::string token = EncodeInvite(*SignInvite(Draft(), owner_));
  const auto message = [](const std::string& text) {
    const auto parsed = ParseInvite(text);
    return parsed ? std::string("ok") : parsed.error().message;
  };
  EXPECT_NE(message("magnet:?xt=1").find("starts with"), std::string::npos);
  EXPECT_NE(message("").find("starts with"), std::string::npos);
  EXPECT_NE(message(token.substr(0, token.size() - 30)).find("truncated"), std::string::npos);
  EXPECT_NE(message("loom1").find("truncated"), std::string::npos);
  std::string typo = token;
  typo[100] = typo[100] == 'a' ? 'b' : 'a';
  EXPECT_NE(message(typo).find("typo"), std::string::npos);
  typo[100] = '!';
  EXPECT_NE(message(typo).find("character 101"), std::string::npos) << message(typo);
  EXPECT_EQ(ParseInvite("loom1" + std::string(kMaxInviteChars, 'a')).error().code, Code::kLimit);

  // Changed after it was signed, and whole again: only the signature shows it.
  Invite changed = *SignInvite(Draft(), owner_);
  changed.max_uses = 1000;
  EXPECT_NE(message(EncodeInvite(changed)).find("signature is wrong"), std::string::npos);

  const Status expired = CheckInviteTime(Draft(), 1'800'000'060);
  ASSERT_FALSE(expired);
  EXPECT_EQ(expired.error().code, Code::kRefused);
  EXPECT_NE(expired.error().message.find("2027-01-15 08:00:00 UTC"), std::string::npos);
  EXPECT_NE(expired.error().message.find("2027-01-15 08:01:00 UTC"), std::string::npos);
}

TEST_F(InviteTest, EveryFlippedBitAndEveryCutIsRefused) {
  const std::string token = EncodeInvite(*SignInvite(Draft(), owner_));
  for (std::size_t i = 0; i < token.size(); ++i) {
    std::string bad = token;
    bad[i] = bad[i] == 'q' ? 'r' : 'q';
    EXPECT_FALSE(ParseInvite(bad)) << "character " << i;
    EXPECT_FALSE(ParseInvite(token.substr(0, i))) << "cut to " << i;
  }
}

TEST_F(InviteTest, R15AMemberInvitesByDelegation) {
  const std::vector owners{owner_.public_key()};
  Invite draft = Draft();
  const auto alone = SignInvite(draft, member_);
  ASSERT_TRUE(alone);
  EXPECT_EQ(CheckInviteAuthority(*alone, owners).error().code, Code::kRefused);

  draft.delegation = MakeDelegation(owner_, draft.run, member_.public_key(), 1'700'000'000, false);
  const auto token = EncodeInvite(*SignInvite(draft, member_));
  const auto parsed = ParseInvite(token);
  ASSERT_TRUE(parsed) << parsed.error().ToString();
  EXPECT_FALSE(CheckInviteAuthority(*parsed, owners)) << "may not grant a vote";
  draft.grants_vote = false;
  const auto guest = ParseInvite(EncodeInvite(*SignInvite(draft, member_)));
  ASSERT_TRUE(guest);
  EXPECT_TRUE(CheckInviteAuthority(*guest, owners));
  EXPECT_TRUE(CheckInviteTime(*guest, 1'699'999'999));
  EXPECT_FALSE(CheckInviteTime(*guest, 1'700'000'001)) << "the delegation ended first";

  // A delegation of another run, or of nobody we know, is worth nothing.
  draft.delegation =
      MakeDelegation(owner_, *RunId::FromHex(std::string(64, 'b')), member_.public_key(), 1, true);
  EXPECT_FALSE(ParseInvite(EncodeInvite(*SignInvite(draft, member_))));
  draft.delegation = MakeDelegation(Key("stranger"), draft.run, member_.public_key(), 1, true);
  const auto strange = ParseInvite(EncodeInvite(*SignInvite(draft, member_)));
  ASSERT_TRUE(strange);
  EXPECT_FALSE(CheckInviteAuthority(*strange, owners));
  EXPECT_FALSE(SignInvite(draft, Key("third"))) << "delegated to somebody else";
}

TEST_F(InviteTest, RefusesToSignWhatNobodyCouldUse) {
  Invite draft = Draft();
  draft.addresses.clear();
  EXPECT_FALSE(SignInvite(draft, owner_));
  draft = Draft();
  draft.max_uses = 0;
  EXPECT_FALSE(SignInvite(draft, owner_));
  draft = Draft();
  draft.addresses[0].address.host = "no such host";
  EXPECT_FALSE(SignInvite(draft, owner_));
  draft.addresses.assign(9, {At("a:1"), {}});
  EXPECT_FALSE(SignInvite(draft, owner_));
}

PeerId Peer(int i) {
  PeerId id;
  id.bytes[0] = static_cast<std::byte>(i);
  id.bytes[1] = static_cast<std::byte>(i >> 8);
  id.bytes[31] = std::byte{1};
  return id;
}

TEST(Directory, TriesBetterSourcesFirstAndBacksOff) {
  Directory directory(Peer(0), 7);
  const Time start{};
  directory.Learn(Peer(0), At("self:1"), AddressSource::kPeer);
  directory.Learn(Peer(1), At("gossip:1"), AddressSource::kGossip);
  directory.Learn(Peer(1), At("direct:1"), AddressSource::kPeer);
  directory.Learn({}, At("invite:1"), AddressSource::kInvite);
  EXPECT_EQ(directory.size(), 3u) << "never ourselves";
  auto due = directory.Due(start, 10);
  ASSERT_EQ(due.size(), 2u) << "one address of a peer at a time";
  EXPECT_EQ(due[0].address, At("direct:1"));
  EXPECT_EQ(due[1].address, At("invite:1"));
  EXPECT_TRUE(directory.Due(start, 10).empty()) << "both are being tried";

  directory.Failed(At("direct:1"), start);
  due = directory.Due(start, 10);
  ASSERT_EQ(due.size(), 1u);
  EXPECT_EQ(due[0].address, At("gossip:1")) << "the other address of the same peer";
  directory.Connected(At("gossip:1"), Peer(1));
  directory.Connected(At("invite:1"), Peer(2));
  EXPECT_TRUE(directory.Due(start + 1h, 10).empty());
  EXPECT_FALSE(directory.NextDue());

  directory.Closed(Peer(1), start);
  ASSERT_TRUE(directory.NextDue());
  due = directory.Due(start + 2s, 10);
  ASSERT_EQ(due.size(), 1u);
  EXPECT_EQ(due[0].address, At("gossip:1")) << "what worked comes first";
}

TEST(Directory, BackoffGrowsToItsLimitWithJitter) {
  std::set<Duration> firsts;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Directory directory(Peer(0), seed);
    directory.Learn(Peer(1), At("a:1"), AddressSource::kInvite);
    Time now{};
    Duration last{};
    for (int i = 0; i < 20; ++i) {
      ASSERT_EQ(directory.Due(now, 1).size(), 1u);
      directory.Failed(At("a:1"), now);
      last = *directory.NextDue() - now;
      if (i == 0) firsts.insert(last);
      EXPECT_GE(last, kFirstRetry / 2);
      EXPECT_LE(last, kLastRetry);
      now = *directory.NextDue();
    }
    EXPECT_GE(last, kLastRetry / 2);
  }
  EXPECT_GT(firsts.size(), 10u);
}

TEST(Directory, CapsHoldAndBetterKnowledgeReplacesWorse) {
  Directory directory(Peer(0), 1);
  for (std::uint16_t i = 1; i <= 100; ++i) {
    directory.Learn(Peer(1), Address{"a", i}, AddressSource::kGossip);
  }
  EXPECT_EQ(directory.AddressesOf(Peer(1)).size(), kMaxAddressesPerPeer);
  directory.Learn(Peer(1), At("record:1"), AddressSource::kRecord);
  EXPECT_EQ(directory.AddressesOf(Peer(1)).size(), kMaxAddressesPerPeer);
  EXPECT_EQ(directory.AddressesOf(Peer(1))[0], At("record:1"));
  for (int i = 2; i < 4300; ++i) {
    directory.Learn(Peer(i), Address{fmt::format("h{}", i), 1}, AddressSource::kGossip);
  }
  EXPECT_LE(directory.size(), kMaxKnownAddresses);
  EXPECT_EQ(directory.AddressesOf(Peer(1))[0], At("record:1")) << "gossip never displaces it";
  directory.Forget(Peer(1));
  EXPECT_TRUE(directory.AddressesOf(Peer(1)).empty());
}

TEST(Directory, AnAddressThatLeadsToOurselvesIsForgotten) {
  Directory directory(Peer(0), 1);
  directory.Learn({}, At("me:1"), AddressSource::kInvite);
  ASSERT_EQ(directory.Due(Time{}, 1).size(), 1u);
  directory.Connected(At("me:1"), Peer(0));
  EXPECT_EQ(directory.size(), 0u);
}

}  // namespace
}  // namespace loom::swarm
