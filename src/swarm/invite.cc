#include "swarm/invite.h"

#include <algorithm>
#include <chrono>

#include "crypto/hash.h"
#include "wire/bytes_io.h"

namespace loom::swarm {
namespace {

constexpr std::string_view kPrefix = "loom1";
constexpr std::string_view kAlphabet = "abcdefghijklmnopqrstuvwxyz234567";
constexpr std::string_view kInviteDomain = "loom invite 1";
constexpr std::string_view kDelegationDomain = "loom invite delegation 1";
constexpr std::size_t kChecksumBytes = 4;
constexpr std::size_t kHeadBytes = 3;
constexpr std::uint8_t kGrantsVote = 1;
constexpr std::uint8_t kHasDelegation = 2;

std::string Base32(ByteView bytes) {
  std::string out;
  std::uint32_t buffer = 0;
  int bits = 0;
  for (const std::byte byte : bytes) {
    buffer = (buffer << 8) | std::to_integer<std::uint32_t>(byte);
    bits += 8;
    while (bits >= 5) {
      bits -= 5;
      out += kAlphabet[(buffer >> bits) & 31];
    }
    buffer &= 0xffu;
  }
  if (bits > 0) out += kAlphabet[(buffer << (5 - bits)) & 31];
  return out;
}

/// Bytes of whole octets; the offset of a character that is not of the alphabet otherwise.
Result<Bytes> FromBase32(std::string_view text) {
  Bytes out;
  std::uint32_t buffer = 0;
  int bits = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char lower = text[i] >= 'A' && text[i] <= 'Z' ? static_cast<char>(text[i] + 32) : text[i];
    const std::size_t value = kAlphabet.find(lower);
    if (value == std::string_view::npos) {
      return MakeError(
          Code::kInvalid,
          fmt::format("invite: character {} cannot be part of an invite", kPrefix.size() + i + 1),
          "copy the whole line again");
    }
    buffer = ((buffer << 5) | static_cast<std::uint32_t>(value)) & 0xfffu;
    bits += 5;
    if (bits >= 8) {
      bits -= 8;
      out.push_back(static_cast<std::byte>((buffer >> bits) & 0xffu));
    }
  }
  return out;
}

std::string Utc(std::int64_t unix_seconds) {
  // Years 1970 to 9999: what lies outside is shown as a number.
  if (unix_seconds < 0 || unix_seconds > 253402300799) return fmt::format("{} s", unix_seconds);
  using namespace std::chrono;  // NOLINT: calendar names
  const sys_seconds time{seconds(unix_seconds)};
  const auto day = floor<days>(time);
  const year_month_day date(day);
  const hh_mm_ss clock(time - day);
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}:{:02} UTC", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                     clock.hours().count(), clock.minutes().count(), clock.seconds().count());
}

Bytes DelegationBody(const Delegation& delegation, const RunId& run) {
  wire::Writer out;
  out.Id(run);
  out.Raw(delegation.owner.View());
  out.Raw(delegation.member.View());
  out.Int(static_cast<std::uint64_t>(delegation.until));
  out.Bool(delegation.may_grant_vote);
  return std::move(out).Take();
}

/// Everything that is signed: the token without head, signature and checksum.
Bytes InviteBody(const Invite& invite) {
  wire::Writer out;
  out.Id(invite.run);
  out.Raw(invite.nonce);
  out.Int(static_cast<std::uint64_t>(invite.expires));
  out.Int(invite.max_uses);
  out.Int(static_cast<std::uint8_t>((invite.grants_vote ? kGrantsVote : 0) |
                                    (invite.delegation ? kHasDelegation : 0)));
  out.Int(static_cast<std::uint8_t>(invite.addresses.size()));
  for (const InviteAddress& entry : invite.addresses) {
    out.Int(static_cast<std::uint8_t>(entry.address.host.size()));
    out.Raw(AsBytes(entry.address.host));
    out.Int(entry.address.port);
    out.Bool(!entry.peer.IsZero());
    if (!entry.peer.IsZero()) out.Id(entry.peer);
  }
  out.Raw(invite.issuer.View());
  if (invite.delegation) {
    out.Raw(invite.delegation->owner.View());
    out.Int(static_cast<std::uint64_t>(invite.delegation->until));
    out.Bool(invite.delegation->may_grant_vote);
    out.Raw(invite.delegation->signature.View());
  }
  return std::move(out).Take();
}

/// Characters of the token, with its signature.
std::size_t TokenChars(const Invite& invite) {
  const std::size_t bytes =
      kHeadBytes + InviteBody(invite).size() + invite.signature.bytes.size() + kChecksumBytes;
  return kPrefix.size() + (8 * bytes + 4) / 5;
}

template <class Fixed>
Fixed GetFixed(wire::Reader& in) {
  Fixed out;
  const ByteView raw = in.Raw(out.bytes.size());
  std::copy(raw.begin(), raw.end(), out.bytes.begin());
  return out;
}

std::int64_t GetTime(wire::Reader& in) {
  const auto value = in.Int<std::uint64_t>();
  if (value > INT64_MAX) in.Fail("a time that is too large");
  return static_cast<std::int64_t>(value & INT64_MAX);
}

InviteAddress GetAddress(wire::Reader& in) {
  InviteAddress entry;
  const std::size_t length = in.Int<std::uint8_t>();
  const std::string host(AsText(in.Raw(length)));
  const auto port = in.Int<std::uint16_t>();
  if (in.Bool()) {
    entry.peer = in.GetId<PeerTag>();
    if (entry.peer.IsZero()) in.Fail("a peer id of zeros");
  }
  // The text form is the one that is checked: a host that prints to another address is refused.
  const auto parsed = ParseAddress(Address{host, port}.ToString());
  if (parsed && *parsed == Address{host, port}) {
    entry.address = *parsed;
  } else {
    in.Fail("a host that is no address");
  }
  return entry;
}

Result<Invite> DecodeBody(ByteView body) {
  wire::Reader in(body);
  Invite invite;
  invite.run = in.GetId<RunTag>();
  const ByteView nonce = in.Raw(invite.nonce.size());
  std::copy(nonce.begin(), nonce.end(), invite.nonce.begin());
  invite.expires = GetTime(in);
  invite.max_uses = in.Int<std::uint32_t>();
  const auto flags = in.Int<std::uint8_t>();
  if ((flags & ~(kGrantsVote | kHasDelegation)) != 0) in.Fail("an unknown flag");
  invite.grants_vote = (flags & kGrantsVote) != 0;
  const std::size_t addresses = in.Int<std::uint8_t>();
  if (addresses < 1 || addresses > kMaxInviteAddresses) in.Fail("a strange number of addresses");
  for (std::size_t i = 0; i < addresses && in.ok(); ++i) {
    invite.addresses.push_back(GetAddress(in));
  }
  invite.issuer = GetFixed<crypto::PublicKey>(in);
  if ((flags & kHasDelegation) != 0) {
    Delegation delegation;
    delegation.owner = GetFixed<crypto::PublicKey>(in);
    delegation.member = invite.issuer;
    delegation.until = GetTime(in);
    delegation.may_grant_vote = in.Bool();
    delegation.signature = GetFixed<crypto::Signature>(in);
    invite.delegation = delegation;
  }
  invite.signature = GetFixed<crypto::Signature>(in);
  if (invite.max_uses == 0) in.Fail("zero uses");
  LOOM_RETURN_IF_ERROR(in.Finish("invite"));
  return invite;
}

}  // namespace

Delegation MakeDelegation(const crypto::SigningKey& owner, const RunId& run,
                          const crypto::PublicKey& member, std::int64_t until,
                          bool may_grant_vote) {
  Delegation out{owner.public_key(), member, until, may_grant_vote, {}};
  out.signature = owner.Sign(kDelegationDomain, DelegationBody(out, run));
  return out;
}

bool VerifyDelegation(const Delegation& delegation, const RunId& run) {
  return crypto::Verify(delegation.owner, kDelegationDomain, DelegationBody(delegation, run),
                        delegation.signature);
}

void FitInvite(Invite& invite) {
  while (invite.addresses.size() > 1 && TokenChars(invite) > kMaxInviteChars) {
    invite.addresses.pop_back();
  }
}

Result<Invite> SignInvite(Invite invite, const crypto::SigningKey& issuer) {
  if (invite.addresses.empty() || invite.addresses.size() > kMaxInviteAddresses) {
    return MakeError(Code::kInvalid, fmt::format("an invite carries 1 to {} addresses, not {}",
                                                 kMaxInviteAddresses, invite.addresses.size()));
  }
  for (const InviteAddress& entry : invite.addresses) {
    LOOM_ASSIGN(const Address parsed, ParseAddress(entry.address.ToString()));
    if (parsed != entry.address) {
      return MakeError(Code::kInvalid, fmt::format("'{}' is no address", entry.address.host));
    }
  }
  if (invite.max_uses == 0 || invite.expires < 0) {
    return MakeError(Code::kInvalid, "an invite needs at least one use and a time of expiry");
  }
  invite.issuer = issuer.public_key();
  if (invite.delegation && invite.delegation->member != invite.issuer) {
    return MakeError(Code::kInvalid, "the delegation is for another key than the one that signs");
  }
  if (TokenChars(invite) > kMaxInviteChars) {
    return MakeError(Code::kLimit, fmt::format("an invite of {} characters, the limit is {}",
                                               TokenChars(invite), kMaxInviteChars));
  }
  invite.signature = issuer.Sign(kInviteDomain, InviteBody(invite));
  return invite;
}

std::string EncodeInvite(const Invite& invite) {
  Bytes body = InviteBody(invite);
  wire::Writer out;
  out.Int(kInviteVersion);
  out.Int(static_cast<std::uint16_t>(body.size() + invite.signature.bytes.size()));
  out.Raw(body);
  out.Raw(invite.signature.View());
  const Hash check = crypto::Sha256(out.bytes());
  out.Raw(check.View().first(kChecksumBytes));
  return std::string(kPrefix) + Base32(out.bytes());
}

Result<Invite> ParseInvite(std::string_view token) {
  while (!token.empty() &&
         std::string_view(" \t\r\n").find(token.front()) != std::string_view::npos) {
    token.remove_prefix(1);
  }
  while (!token.empty() &&
         std::string_view(" \t\r\n").find(token.back()) != std::string_view::npos) {
    token.remove_suffix(1);
  }
  const auto same = [](char given, char wanted) {
    return (given >= 'A' && given <= 'Z' ? given - 'A' + 'a' : given) == wanted;
  };
  if (!std::ranges::equal(token.substr(0, kPrefix.size()), kPrefix, same)) {
    return MakeError(Code::kInvalid,
                     fmt::format("invite: starts with '{}', an invite starts with '{}'",
                                 token.substr(0, kPrefix.size()), kPrefix),
                     "copy the whole line that `loom host` or `loom invite` printed");
  }
  if (token.size() > kMaxInviteChars) {
    return MakeError(Code::kLimit, fmt::format("invite: {} characters, the limit is {}",
                                               token.size(), kMaxInviteChars));
  }
  LOOM_ASSIGN(const Bytes bytes, FromBase32(token.substr(kPrefix.size())));
  const ByteView view = bytes;
  const auto truncated = [&] {
    return MakeError(
        Code::kInvalid,
        fmt::format("invite: truncated, {} characters are not all of it", token.size()),
        "copy the whole line again");
  };
  if (view.size() < kHeadBytes + kChecksumBytes) return truncated();
  wire::Reader head(view.first(kHeadBytes));
  const auto version = head.Int<std::uint8_t>();
  const std::size_t length = head.Int<std::uint16_t>();
  const ByteView checked = view.first(view.size() - kChecksumBytes);
  const Hash check = crypto::Sha256(checked);
  const ByteView given = view.last(kChecksumBytes);
  if (!std::equal(given.begin(), given.end(), check.bytes.begin())) {
    if (version == kInviteVersion && view.size() < kHeadBytes + length + kChecksumBytes) {
      return truncated();
    }
    return MakeError(Code::kInvalid, "invite: a typo, its checksum does not match",
                     "copy the whole line again");
  }
  if (version != kInviteVersion) {
    return MakeError(
        Code::kInvalid,
        fmt::format("invite: of version {}, this program reads {}", version, kInviteVersion),
        "use the version of loom that the host runs");
  }
  if (checked.size() != kHeadBytes + length) {
    return MakeError(Code::kInvalid, fmt::format("invite: {} bytes, its head says {}",
                                                 checked.size() - kHeadBytes, length));
  }
  const ByteView content = checked.subspan(kHeadBytes);
  LOOM_ASSIGN(Invite invite, DecodeBody(content));
  // One invite, one text: whatever decodes but would be written otherwise is refused as well.
  if (EncodeInvite(invite) != std::string(kPrefix) + Base32(view)) {
    return MakeError(Code::kInvalid, "invite: not in its canonical form");
  }
  if (!crypto::Verify(invite.issuer, kInviteDomain,
                      content.first(content.size() - invite.signature.bytes.size()),
                      invite.signature)) {
    return MakeError(Code::kInvalid, "invite: the signature is wrong",
                     "it was changed after it was made; ask for a new one");
  }
  if (invite.delegation && !VerifyDelegation(*invite.delegation, invite.run)) {
    return MakeError(Code::kInvalid, "invite: the owner's signature under its delegation is wrong",
                     "ask an owner of the run for an invite");
  }
  return invite;
}

Status CheckInviteTime(const Invite& invite, std::int64_t now_unix) {
  if (now_unix >= invite.expires) {
    return MakeError(
        Code::kRefused,
        fmt::format("invite: expired at {}, it is now {}", Utc(invite.expires), Utc(now_unix)),
        "ask for a new one, or set the clock of this machine");
  }
  if (invite.delegation && now_unix >= invite.delegation->until) {
    return MakeError(Code::kRefused,
                     fmt::format("invite: its issuer was allowed to invite until {}, it is now {}",
                                 Utc(invite.delegation->until), Utc(now_unix)),
                     "ask an owner of the run for a new one, or set the clock of this machine");
  }
  return {};
}

Status CheckInviteAuthority(const Invite& invite, std::span<const crypto::PublicKey> owners) {
  const auto is_owner = [&](const crypto::PublicKey& key) {
    return std::find(owners.begin(), owners.end(), key) != owners.end();
  };
  if (is_owner(invite.issuer)) return {};
  if (!invite.delegation || !is_owner(invite.delegation->owner)) {
    return MakeError(Code::kRefused,
                     fmt::format("invite: signed by {}, who may not invite to run {}",
                                 invite.issuer.Hex(), invite.run.Short()),
                     "ask an owner of the run for an invite");
  }
  if (invite.grants_vote && !invite.delegation->may_grant_vote) {
    return MakeError(Code::kRefused, "invite: grants a vote, which its issuer may not do",
                     "ask an owner of the run for an invite");
  }
  return {};
}

}  // namespace loom::swarm
