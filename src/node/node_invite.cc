// Who may come in (R15): invites that this node signs, strangers at the door, joiners to be listed.
#include <algorithm>

#include "base/log.h"
#include "node/node.h"
#include "node/owner_key.h"
#include "swarm/own_addresses.h"

namespace loom::node {

Result<std::string> Node::MakeInvite(std::int64_t seconds, std::uint32_t uses,
                                     const std::string& owner_key) {
  const auto owner = OwnerKey(owner_key);
  const std::int64_t now = reactor_.WallSeconds();
  const bool delegated = !owner && delegation_ && delegation_->until > now;
  if (!owner && !delegated) return owner.error();
  swarm::Invite invite;
  invite.run = run_->id;
  std::vector<std::pair<PeerId, std::vector<swarm::Address>>> others;
  if (peer_) {
    for (const collab::Member& m : peer_->chain().head().body.members) {
      if (m.id != key_.id()) others.emplace_back(m.id, directory_.FirstHand(m.id));
    }
  }
  invite.addresses = swarm::InviteAddresses(key_.id(), own_addresses_, others);
  if (invite.addresses.empty()) {
    return MakeError(Code::kInvalid, "this peer listens nowhere, so an invite would lead nowhere",
                     "start it with: loom host RUN.toml --dir DIR");
  }
  crypto::RandomBytes(invite.nonce);
  invite.expires = now + seconds;
  invite.max_uses = uses;
  swarm::FitInvite(invite);
  if (delegated) invite.delegation = delegation_;
  LOOM_ASSIGN(const swarm::Invite made,
              swarm::SignInvite(std::move(invite), delegated ? key_ : *owner));
  return swarm::EncodeInvite(made);
}

Status Node::DelegateTo(const ControlRequest& request) {
  const std::string& peer = request.peer;
  LOOM_ASSIGN(const crypto::SigningKey owner, OwnerKey(request.owner_key));
  const collab::Member* found = nullptr;
  for (const collab::Member& m : peer_->chain().head().body.members) {
    if (peer.empty() || !m.id.Hex().starts_with(peer)) continue;
    if (found != nullptr) {
      return MakeError(Code::kInvalid, fmt::format("two members' ids begin with {:.64}", peer),
                       "give more of it");
    }
    found = &m;
  }
  if (found == nullptr) {
    return MakeError(Code::kNotFound, fmt::format("no member's id begins with '{:.64}'", peer),
                     "loom status lists the members");
  }
  const swarm::Delegation delegation = swarm::MakeDelegation(
      owner, run_->id, found->key, reactor_.WallSeconds() + request.seconds, true);
  if (found->id == key_.id()) {
    OnDelegation(delegation);
    return {};
  }
  if (!up_.contains(found->id)) {
    return MakeError(Code::kUnreachable, fmt::format("{} is not connected", found->id.Short()),
                     "try again when it is, or from a peer that is connected to it");
  }
  SendNode(found->id, Delegate{delegation});
  return {};
}

void Node::OnDelegation(const swarm::Delegation& delegation) {
  const auto& owners = run_ ? run_->content.owners : std::vector<crypto::PublicKey>{};
  if (!run_ || delegation.member != key_.public_key() ||
      std::find(owners.begin(), owners.end(), delegation.owner) == owners.end() ||
      !swarm::VerifyDelegation(delegation, run_->id)) {
    return;
  }
  delegation_ = delegation;
  const bool posted = storage_->Post([this, bytes = EncodeDelegation(delegation)] {
    if (const Status kept = folder_.WriteKey("delegation", bytes); !kept)
      Log(LogLevel::kWarn, "invite", "{}", kept.error().ToString());
  });
  if (!posted) Log(LogLevel::kWarn, "invite", "the delegation was not written down");
  Event({{"event", json::Value("delegated")}, {"until", json::Value(delegation.until)}});
  Say("An owner lets this peer sign invites: loom invite makes them.");
}

// R15: any member admits on an owner's word, as often as the invite says, counted in records.
Result<collab::Admission> Node::CheckInvite(const std::string& token,
                                            const collab::Chain& chain) const {
  if (token.empty()) {
    return MakeError(Code::kRefused, "this run needs an invite",
                     "ask a member for a loom1... invite");
  }
  LOOM_ASSIGN(const swarm::Invite invite, swarm::ParseInvite(token));
  if (invite.run != run_->id) return MakeError(Code::kRefused, "the invite is for another run");
  LOOM_RETURN_IF_ERROR(swarm::CheckInviteTime(invite, reactor_.WallSeconds()));
  LOOM_RETURN_IF_ERROR(swarm::CheckInviteAuthority(invite, run_->content.owners));
  Hash id;
  std::copy(invite.nonce.begin(), invite.nonce.end(), id.bytes.begin());
  if (chain.InviteUses(id) >= invite.max_uses) {
    return MakeError(
        Code::kRefused,
        fmt::format("the invite is used up: {} of {} uses", chain.InviteUses(id), invite.max_uses),
        "ask for a new one: loom invite --dir DIR");
  }
  return collab::Admission{id, invite.max_uses - chain.InviteUses(id)};
}

// At the door: members past and present are known by their key, everybody else shows an invite.
// Nothing of the run, not even its first record, leaves for a stranger without one. A node that is
// not up to date yet cannot tell, has nothing to give, and lets the others judge.
std::optional<std::string> Node::AdmitPeer(const net::PeerInfo& peer) const {
  if (!peer_ || peer_->state() == collab::PeerState::kSyncing) return std::nullopt;
  const collab::Chain& chain = peer_->chain();
  if (chain.Banned(peer.id)) return "this key is banned from the run";
  if (chain.WasMember(peer.id)) return std::nullopt;
  const auto invite = CheckInvite(std::string(AsText(peer.hello)), chain);
  if (!invite) return invite.error().ToString();
  return std::nullopt;
}

}  // namespace loom::node
