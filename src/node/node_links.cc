// What the transport tells: links that come and go, and the frames that arrive over them.
#include "base/log.h"
#include "node/node.h"

namespace loom::node {

void Node::OnPeerUp(const net::PeerInfo& info) {
  if (stopping_) return;
  reached_ = true;
  up_.insert(info.id);
  last_refusal_.clear();
  std::vector<std::string> texts = info.announced;
  if (info.listen_port != 0) {
    const auto colon = info.address.rfind(':');
    if (colon != std::string::npos)
      texts.push_back(info.address.substr(0, colon + 1) + std::to_string(info.listen_port));
  }
  for (const std::string& text : texts) {
    if (auto address = swarm::ParseAddress(text)) {
      directory_.Learn(info.id, *address, swarm::AddressSource::kPeer);
      if (known_address_.emplace(info.id, *address).second) SaveAddresses();
    }
  }
  for (const auto& [text, dialled] : dialling_) {
    if (info.dialled_by_us && text == info.address) directory_.Connected(dialled.address, info.id);
  }
  const auto known = known_address_.find(info.id);
  if (known != known_address_.end()) directory_.Connected(known->second, info.id);
  Addresses told;
  for (const auto& [peer, address] : known_address_) {
    if (peer != info.id && told.entries.size() < kMaxToldAddresses)
      told.entries.push_back({peer, address});
  }
  if (!told.entries.empty()) SendNode(info.id, told);
  if (known != known_address_.end()) {  // and the others hear of the newcomer
    for (const PeerId& other : up_) {
      if (other != info.id) SendNode(other, Addresses{{{info.id, known->second}}});
    }
  }
  Event({{"event", json::Value("connected")},
         {"peer", json::Value(info.id.Hex())},
         {"address", json::Value(info.address)}});
  if (peer_) {
    Step([&](collab::Peer& core, Time now, collab::Effects& out) {
      core.OnPeerUp(info.id, now, out);
    });
  } else {
    BeginBootstrap();
  }
}

void Node::OnPeerDown(const PeerId& peer, net::DownReason reason, const std::string& detail) {
  if (stopping_) return;
  up_.erase(peer);
  directory_.Closed(peer, reactor_.Now());
  const bool refused = reason == net::DownReason::kRefusedRedial;
  Log(LogLevel::kDebug, "net", "{} is down: {} {}", peer.Short(), net::DownReasonName(reason),
      detail);
  Event({{"event", json::Value("disconnected")},
         {"peer", json::Value(peer.Hex())},
         {"gone", json::Value(refused)},
         {"reason",
          json::Value(detail.empty() ? std::string(net::DownReasonName(reason)) : detail)}});
  if (data_fetcher_) CarryDataFetch(data_fetcher_->RemoveDonor(peer, reactor_.Now()));
  Step([&](collab::Peer& core, Time now, collab::Effects& out) {
    core.OnPeerDown(peer, refused, now, out);
  });
}

void Node::OnFrame(const PeerId& peer, net::Channel, net::Frame frame) {
  if (stopping_) return;
  if (IsNodeType(frame.type)) {
    auto message = DecodeNodeMessage(frame.type, *frame.payload);
    if (!message) {
      transport_->Disconnect(peer, message.error().message);
      return;
    }
    OnNodeMessage(peer, std::move(*message));
    return;
  }
  auto message = collab::DecodeMessage(frame.type, *frame.payload);
  if (!message) {
    Log(LogLevel::kWarn, "net", "{} sent a bad message: {}", peer.Short(), message.error().message);
    transport_->Disconnect(peer, message.error().message);
    return;
  }
  if (data_fetcher_) OnBootstrapObject(peer, *message);
  if (!peer_) {  // still starting: say so, instead of letting the other wait
    if (const auto* get = std::get_if<swarm::GetObjects>(&*message)) {
      SendCore(peer, swarm::NotHere{get->ids, true});
    }
  }
  Step([&](collab::Peer& core, Time now, collab::Effects& out) {
    core.OnMessage(peer, std::move(*message), now, out);
  });
}

void Node::OnPeerSilent(const PeerId& peer) {
  Step([&](collab::Peer& core, Time now, collab::Effects& out) {
    core.OnPeerSilent(peer, true, now, out);
  });
}

void Node::OnPeerHeard(const PeerId& peer) {
  Step([&](collab::Peer& core, Time now, collab::Effects& out) {
    core.OnPeerSilent(peer, false, now, out);
  });
}

void Node::OnDialFailed(const std::string& address, net::DialStep step, const Error& error) {
  const auto it = dialling_.find(address);
  if (it != dialling_.end()) {
    directory_.Failed(it->second.address, reactor_.Now());
    const PeerId expected = it->second.peer;
    if (step == net::DialStep::kConnect && error.code == Code::kRefused && !expected.IsZero()) {
      Step([&](collab::Peer& core, Time now, collab::Effects& out) {
        core.OnNobodyThere(expected, now, out);
      });
    }
    dialling_.erase(it);
  }
  Log(LogLevel::kDebug, "net", "{}: {} failed: {}", address, net::DialStepName(step),
      error.message);
  if (!reached_ && reach_failures_.size() < 64) {
    reach_failures_.push_back(
        fmt::format("{}: {}: {}", address, net::DialStepName(step), error.message));
  }
  if (step == net::DialStep::kHello && error.code == Code::kRefused && up_.empty() && peer_ &&
      std::exchange(last_refusal_, error.message) != error.message) {
    Say(fmt::format("Refused by {}: {}.", address, error.message));
  }
  // A member that says no to the invite will say it again: no need to wait for the others' silence.
  if (!reached_ && !peer_ && step == net::DialStep::kHello && error.code == Code::kRefused) {
    Stop({collab::PeerState::kFailed,
          fmt::format("{} refused this peer: {}", address, error.message)});
  }
}

void Node::OnRefused(const std::string& remote, const std::string& text) {
  Log(LogLevel::kDebug, "net", "{}: {}", remote, text);
}

void Node::OnSendSpace(const PeerId&, net::Channel) {}

}  // namespace loom::node
