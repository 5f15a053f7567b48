// Two members that cannot reach each other talk through a third (R35). Everyone says whom it hears
// by a link of its own; a member whose own link is closed or silent is reached through the first
// who hears it, at once, so that it is left out of nothing. Relayed members work and vote like any
// other; they own no part of the reduce as long as somebody else can.
#include <algorithm>

#include "collab/peer.h"

namespace loom::collab {
namespace {

constexpr std::string_view kRelayDomain = "loom relay";

}  // namespace

bool Peer::CanRelay(const PeerId& carrier, const PeerId& to) const {
  const auto remote = remotes_.find(carrier);
  return direct_.contains(carrier) && !mute_.contains(carrier) && remote != remotes_.end() &&
         remote->second.greeted &&
         std::find(remote->second.hello.links.begin(), remote->second.hello.links.end(), to) !=
             remote->second.hello.links.end();
}

std::optional<PeerId> Peer::FindCarrier(const PeerId& to) const {
  if (!IsMember(chain_.head().body.members, to)) return std::nullopt;
  for (const PeerId& carrier : direct_) {
    if (CanRelay(carrier, to)) return carrier;
  }
  return std::nullopt;
}

void Peer::ConsiderRelays(Time now, Effects& out) {
  const std::vector<Member> members = chain_.head().body.members;
  for (const Member& m : members) {
    if (m.id == env_.self || (direct_.contains(m.id) && !mute_.contains(m.id))) continue;
    const auto via = via_.find(m.id);
    if (via != via_.end() && CanRelay(via->second, m.id)) continue;
    if (const auto carrier = FindCarrier(m.id)) {
      via_[m.id] = *carrier;
      if (!presence_.connected.contains(m.id)) {
        Attach(m.id, now, out);
      } else if (presence_.silent.erase(m.id) > 0) {
        SayHello(m.id, out);
        if (machine_) machine_->OnPresence(now, out);
      }
    } else if (via != via_.end()) {
      via_.erase(via);
      if (direct_.contains(m.id)) {
        Silence(m.id, now, out);
      } else {
        Detach(m.id, now, out);
      }
    }
  }
  std::erase_if(via_, [&](const auto& entry) {
    if (IsMember(members, entry.first)) return false;
    if (direct_.contains(entry.first)) {
      presence_.silent.insert(entry.first);
    } else {
      presence_.connected.erase(entry.first);
      remotes_.erase(entry.first);
    }
    return true;
  });
}

// Who is not linked to every present member owns no part, if others can.
void Peer::FindPartial() {
  const std::vector<Member>& members = chain_.head().body.members;
  presence_.partial.clear();
  if (!via_.empty()) presence_.partial.insert(env_.self);
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
void Peer::Route(Effects& out) {
  if (via_.empty()) return;
  for (Effect& effect : out) {
    auto* send = std::get_if<Send>(&effect);
    if (send == nullptr) continue;
    const auto via = via_.find(send->to);
    if (via == via_.end()) continue;
    Relay relay{env_.self,
                send->to,
                options_.session + ++relays_sent_,
                TypeOf(send->message),
                EncodeMessage(send->message),
                {}};
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
  // Bulk and control overtake each other; within each of them an older number is a repetition.
  std::uint64_t& newest = relays_heard_[{relay.from, IsBulk(relay)}];
  if (relay.number <= newest) return;
  newest = relay.number;
  auto message = DecodeMessage(relay.type, MakeBlob(std::move(relay.payload)));
  if (!message || std::holds_alternative<Relay>(*message)) return;
  Dispatch(relay.from, *message, now, out);
}

}  // namespace loom::collab
