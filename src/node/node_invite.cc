// Who may come in (R15): invites that this node signs, strangers at the door, joiners to be listed.
#include <algorithm>

#include "node/node.h"
#include "node/owner_key.h"
#include "swarm/own_addresses.h"

namespace loom::node {

Result<std::string> Node::MakeInvite(std::int64_t seconds, std::uint32_t uses) {
  LOOM_ASSIGN(const crypto::SigningKey owner, OwnerKey());
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
  invite.expires = reactor_.WallSeconds() + seconds;
  invite.max_uses = uses;
  swarm::FitInvite(invite);
  LOOM_ASSIGN(const swarm::Invite made, swarm::SignInvite(std::move(invite), owner));
  return swarm::EncodeInvite(made);
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
