// An invite is one line, "loom1…", with which a stranger joins a run: which run, where its members
// are, until when and how often it may be used, and the signature of somebody who may invite: an
// owner, or a member that an owner delegated to (R15). It pins the run; genesis is checked against
// the run id after it is fetched, and the owner keys of genesis against the invite.
//
//   token = "loom1" | base32(body | SHA-256(body)[0..4))     lower case, no padding
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/id.h"
#include "base/result.h"
#include "crypto/keys.h"
#include "swarm/address.h"

namespace loom::swarm {

inline constexpr std::size_t kMaxInviteAddresses = 8;
inline constexpr std::size_t kMaxInviteChars = 4096;
inline constexpr std::uint8_t kInviteVersion = 1;

/// A member that can be dialled; a zero peer id means "whoever answers for the run".
struct InviteAddress {
  Address address;
  PeerId peer;
  bool operator==(const InviteAddress&) const = default;
};

/// An owner's word that a member's key may sign invites of this run until a time.
struct Delegation {
  crypto::PublicKey owner{};
  crypto::PublicKey member{};
  std::int64_t until = 0;  ///< Unix seconds
  bool may_grant_vote = false;
  crypto::Signature signature{};
  bool operator==(const Delegation&) const = default;
};

Delegation MakeDelegation(const crypto::SigningKey& owner, const RunId& run,
                          const crypto::PublicKey& member, std::int64_t until, bool may_grant_vote);
/// Whether the owner's signature is right for this run. Time is not looked at.
bool VerifyDelegation(const Delegation& delegation, const RunId& run);

using InviteNonce = std::array<std::byte, 16>;

struct Invite {
  RunId run;
  std::vector<InviteAddress> addresses;  ///< best first
  InviteNonce nonce{};                   ///< identifies the invite where uses are counted
  std::int64_t expires = 0;              ///< Unix seconds
  std::uint32_t max_uses = 1;
  bool grants_vote = true;
  crypto::PublicKey issuer{};
  std::optional<Delegation> delegation;  ///< when the issuer is not an owner
  crypto::Signature signature{};

  bool operator==(const Invite&) const = default;
};

/// Takes addresses from the end, but for the first one, until the token fits kMaxInviteChars.
void FitInvite(Invite& invite);
/// Fills in issuer and signature. kInvalid: no address, too many, a zero number of uses; kLimit: a
/// token longer than kMaxInviteChars.
Result<Invite> SignInvite(Invite invite, const crypto::SigningKey& issuer);
std::string EncodeInvite(const Invite& invite);
/// Checks form, checksum and signatures, each failure with its own message: wrong prefix, a
/// character that cannot be, truncated, typo, unknown version, wrong signature.
Result<Invite> ParseInvite(std::string_view token);
/// kRefused, with both times in UTC, when the invite or its delegation has expired.
Status CheckInviteTime(const Invite& invite, std::int64_t now_unix);
/// kRefused unless an owner in the list stands behind the invite and what it grants.
Status CheckInviteAuthority(const Invite& invite, std::span<const crypto::PublicKey> owners);

}  // namespace loom::swarm
