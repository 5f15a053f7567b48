// Two members that cannot reach each other talk through a third (R35). Everyone says whom it is
// connected to; a member without a link of its own for two seconds is reached through the first who
// has one. Relayed members work and vote like any other; they own no part of the reduce as long as
// somebody else can.
#include <algorithm>

#include "collab/peer.h"

namespace loom::collab {
namespace {

constexpr std::string_view kRelayDomain = "loom relay";
constexpr Duration kUnlinkedLimit = 2s;

}  // namespace

bool Peer::CanRelay(const PeerId& carrier, const PeerId& to) const {
  const auto remote = remotes_.find(carrier);
  return direct_.contains(carrier) && presence_.Present(carrier) && remote != remotes_.end() &&
         remote->second.greeted &&
         std::find(remote->second.hello.links.begin(), remote->second.hello.links.end(), to) !=
             remote->second.hello.links.end();
}

void Peer::ConsiderRelays(Time now, Effects& out) {
  const std::vector<Member> members = chain_.head().body.members;
  for (const Member& m : members) {
    if (m.id == env_.self) continue;
    if (direct_.contains(m.id) || presence_.gone.contains(m.id)) {
      unlinked_since_.erase(m.id);
      continue;
    }
    const auto via = via_.find(m.id);
    if (via != via_.end() && CanRelay(via->second, m.id)) continue;
    if (via != via_.end()) {
      via_.erase(via);
      Detach(m.id, false, now, out);
    }
    const Time since = unlinked_since_.try_emplace(m.id, now).first->second;
    if (now - since < kUnlinkedLimit) continue;
    for (const PeerId& carrier : direct_) {
      if (!CanRelay(carrier, m.id)) continue;
      via_[m.id] = carrier;
      Attach(m.id, now, out);
      break;
    }
  }
  std::erase_if(via_, [&](const auto& entry) {
    if (IsMember(members, entry.first)) return false;
    presence_.connected.erase(entry.first);
    remotes_.erase(entry.first);
    return true;
  });
  presence_.partial.clear();
  for (const Member& m : members) {
    const auto remote = remotes_.find(m.id);
    if (m.id == env_.self || remote == remotes_.end() || !remote->second.greeted) continue;
    const auto& links = remote->second.hello.links;
    const bool all = std::all_of(members.begin(), members.end(), [&](const Member& other) {
      return other.id == m.id || !(other.id == env_.self || presence_.Present(other.id)) ||
             std::find(links.begin(), links.end(), other.id) != links.end();
    });
    if (!all || via_.contains(m.id)) presence_.partial.insert(m.id);
  }
}

// Sends to a member without a link of its own go, signed, through its carrier.
void Peer::Route(Effects& out) const {
  if (via_.empty()) return;
  for (Effect& effect : out) {
    auto* send = std::get_if<Send>(&effect);
    if (send == nullptr || direct_.contains(send->to)) continue;
    const auto via = via_.find(send->to);
    if (via == via_.end()) continue;
    Relay relay{env_.self, send->to, TypeOf(send->message), EncodeMessage(send->message), {}};
    relay.signature = signer_.Sign(kRelayDomain, relay.Text());
    *send = Send{via->second, std::move(relay)};
  }
}

void Peer::OnRelay(const PeerId& from, Relay& relay, Time now, Effects& out) {
  const auto& members = chain_.head().body.members;
  if (relay.to != env_.self) {
    if (relay.from == from && direct_.contains(relay.to) && IsMember(members, from)) {
      const PeerId to = relay.to;
      out.push_back(Send{to, std::move(relay)});
    }
    return;
  }
  const Member* author = FindMember(members, relay.from);
  if (author == nullptr || !presence_.connected.contains(relay.from) ||
      !signer_.Verify(author->key, kRelayDomain, relay.Text(), relay.signature)) {
    return;
  }
  auto message = DecodeMessage(relay.type, relay.payload);
  if (!message || std::holds_alternative<Relay>(*message)) return;
  Dispatch(relay.from, *message, now, out);
}

}  // namespace loom::collab
