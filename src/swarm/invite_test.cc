// Invites (R15).
#include "swarm/invite.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>

#include "crypto/hash.h"

namespace loom::swarm {
namespace {

Address At(std::string_view text) { return *ParseAddress(text); }

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
  std::string loud = token;
  for (char& c : loud) c = static_cast<char>(std::toupper(c));
  EXPECT_TRUE(ParseInvite(loud).ok()) << "as a form in capitals gives it back";
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

TEST_F(InviteTest, AddressesThatDoNotFitTheTokenAreLeftOutFromTheEnd) {
  Invite draft = Draft();
  draft.addresses.clear();
  for (char c = 'a'; c < 'a' + 8; ++c) {
    std::string host;
    for (int label = 0; label < 4; ++label) host += std::string(62, c) + ".";
    host.pop_back();
    draft.addresses.push_back({Address{host, 65535}, Key("host").id()});
  }
  draft.delegation = MakeDelegation(owner_, draft.run, member_.public_key(), 1'900'000'000, true);
  EXPECT_EQ(SignInvite(draft, member_).error().code, Code::kLimit);
  const auto all = draft.addresses;
  FitInvite(draft);
  ASSERT_LT(draft.addresses.size(), 8u);
  EXPECT_TRUE(std::equal(draft.addresses.begin(), draft.addresses.end(), all.begin()));
  const auto signed_one = SignInvite(draft, member_);
  ASSERT_TRUE(signed_one) << signed_one.error().ToString();
  const std::string token = EncodeInvite(*signed_one);
  EXPECT_LE(token.size(), kMaxInviteChars);
  EXPECT_TRUE(ParseInvite(token));
  draft.addresses = {all.begin(),
                     all.begin() + static_cast<std::ptrdiff_t>(draft.addresses.size()) + 1};
  EXPECT_FALSE(SignInvite(draft, member_)) << "one more would be too long";
}

}  // namespace
}  // namespace loom::swarm
