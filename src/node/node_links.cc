// What the transport tells: links that come and go, and the frames that arrive over them.
#include <algorithm>

#include "base/human.h"
#include "base/log.h"
#include "base/memory.h"
#include "node/interfaces.h"
#include "node/node.h"

namespace loom::node {

void Node::RefreshOwnAddresses(Time now) {
  constexpr Duration kEvery = 5s;  // a laptop moves
  if (ports_.empty() || (own_addresses_read_ != Time{} && now - own_addresses_read_ < kEvery))
    return;
  own_addresses_read_ = now;
  std::vector<swarm::Listening> listening;
  for (std::size_t i = 0; i < options_.listen.size() && i < ports_.size(); ++i) {
    const auto where = net::HostPort::Parse(options_.listen[i]);
    if (where) listening.push_back({where->host, ports_[i]});
  }
  std::optional<swarm::Address> announced;
  if (auto address = swarm::ParseAddress(options_.local.announce)) announced = *std::move(address);
  auto own = swarm::OwnAddresses(announced, listening, InterfaceAddresses());
  if (own == own_addresses_) return;
  own_addresses_ = std::move(own);
  std::vector<std::string> texts;
  texts.reserve(own_addresses_.size());
  for (const swarm::Address& address : own_addresses_) texts.push_back(address.ToString());
  transport_->SetAnnounce(std::move(texts));
}

void Node::LearnInvite(const swarm::Invite& invite) {
  for (std::size_t i = 0; i < invite.addresses.size(); ++i) {
    const swarm::InviteAddress& at = invite.addresses[i];
    directory_.Learn(at.peer, at.address, swarm::AddressSource::kInvite, i);
  }
}

// What a peer says of itself, where it was found, and where its connection came from.
void Node::LearnAddresses(const net::PeerInfo& info) {
  const auto remote = swarm::ParseAddress(info.address);
  const bool over_loopback = remote && remote->IsLoopback();
  if (over_loopback) same_machine_.insert(info.id);
  std::vector<swarm::Address> claimed;
  for (const std::string& text : info.announced) {
    const auto address = swarm::ParseAddress(text);
    if (address && address->MeansSomething(over_loopback)) claimed.push_back(*address);
  }
  directory_.Claims(info.id, claimed);
  neighbours_[info.id] = {claimed, remote ? std::optional(*remote) : std::nullopt, info.features,
                          info.version};
  if (!info.dialled_by_us && remote && info.listen_port != 0) {
    const swarm::Address observed{remote->host, info.listen_port};
    directory_.Learn(info.id, observed, swarm::AddressSource::kObserved, claimed.size());
  }
  const auto dialled = swarm::ParseAddress(info.dialled);
  if (dialled) {
    dialling_.erase(info.dialled);
    directory_.Connected(*dialled, info.id);
  } else {
    directory_.Connected(info.id);
  }
  SaveAddresses();
}

// The newcomer hears of everybody, and everybody connected of the newcomer.
void Node::TellAddresses(const net::PeerInfo& info) {
  constexpr std::size_t kEach = 4;
  const auto add = [&](Addresses& told, const PeerId& whom, bool over_loopback) {
    std::size_t count = 0;
    for (const swarm::Address& address : directory_.FirstHand(whom)) {
      if (count == kEach || told.entries.size() == kMaxToldAddresses) return;
      if (!address.MeansSomething(over_loopback)) continue;
      told.entries.push_back({whom, address});
      ++count;
    }
  };
  std::set<PeerId> known = up_;
  if (peer_) {
    for (const collab::Member& m : peer_->chain().head().body.members) known.insert(m.id);
  }
  known.erase(info.id);
  known.erase(key_.id());
  Addresses others;
  for (const PeerId& peer : known) add(others, peer, same_machine_.contains(info.id));
  if (!others.entries.empty()) SendNode(info.id, others);
  for (const PeerId& other : up_) {
    if (other == info.id) continue;
    Addresses newcomer;
    add(newcomer, info.id, same_machine_.contains(other));
    if (!newcomer.entries.empty()) SendNode(other, newcomer);
  }
}

void Node::OnAddresses(const PeerId& from, const Addresses& told) {
  const std::size_t before = directory_.size();
  const bool over_loopback = same_machine_.contains(from);
  for (std::size_t i = 0; i < told.entries.size(); ++i) {
    const auto& [peer, address] = told.entries[i];
    if (peer.IsZero() || !address.MeansSomething(over_loopback)) continue;
    directory_.Learn(peer, address, swarm::AddressSource::kGossip, i);
  }
  if (directory_.size() != before) SaveAddresses();
  DialDue();
}

void Node::OnPeerUp(const net::PeerInfo& info) {
  if (stopping_) {  // it answers nobody any more, also while it measures its last state
    reactor_.Post([this, id = info.id] { transport_->Disconnect(id, "this peer stops"); });
    return;
  }
  reached_ = true;
  up_.insert(info.id);
  last_refusal_.clear();
  reach_.Reached(info.id);
  LearnAddresses(info);
  TellAddresses(info);
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
  outbox_.Forget(peer);
  same_machine_.erase(peer);
  neighbours_.erase(peer);
  if (up_.empty()) alone_since_ = reactor_.Now();
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
  // Its buffers were megabytes, and lie between what stays.
  (void)storage_->Post([] { ReleaseFreeMemory(); });
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
  auto message = collab::DecodeMessage(frame.type, frame.payload);
  if (!message) {
    Log(LogLevel::kWarn, "net", "{} sent a bad message: {}", peer.Short(), message.error().message);
    transport_->Disconnect(peer, message.error().message);
    return;
  }
  if (data_fetcher_) OnBootstrapObject(peer, *message);
  if (!peer_) {
    if (const auto* get = std::get_if<swarm::GetObjects>(&*message)) ServeData(peer, *get);
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

// Another home may use the same private addresses: what is found there is this machine itself.
std::optional<Error> Node::OwnAddressToo(const std::string& text) const {
  const auto address = swarm::ParseAddress(text);
  if (!address || address->Scope() != swarm::AddressScope::kPrivate) return std::nullopt;
  const bool own = std::any_of(own_addresses_.begin(), own_addresses_.end(),
                               [&](const auto& a) { return a.host == address->host; });
  if (!own) return std::nullopt;
  return MakeError(Code::kConflict, fmt::format("{} is an address of this machine, too", text));
}

void Node::OnDialFailed(const std::string& address, net::DialStep failed, const Error& why) {
  const auto own = failed == net::DialStep::kConnect || failed == net::DialStep::kPin
                       ? OwnAddressToo(address)
                       : std::nullopt;
  const auto it = dialling_.find(address);
  if (it != dialling_.end()) {
    const bool connecting = failed == net::DialStep::kConnect;
    const auto result = connecting && why.code == Code::kRefused       ? swarm::TryResult::kNobody
                        : connecting && why.code == Code::kUnreachable ? swarm::TryResult::kNoRoute
                                                                       : swarm::TryResult::kFailed;
    directory_.Failed(it->second.address, result, reactor_.Now());
    const PeerId expected = it->second.peer;
    dialling_.erase(it);
    if (result == swarm::TryResult::kNobody && !expected.IsZero() &&
        directory_.NobodyThere(expected)) {
      Step([&](collab::Peer& core, Time now, collab::Effects& out) {
        core.OnNobodyThere(expected, now, out);
      });
    }
  }
  const net::DialStep step = own ? net::DialStep::kConnect : failed;
  const Error& error = own ? *own : why;
  Log(LogLevel::kDebug, "net", "{}: {} failed: {}", address, net::DialStepName(step),
      error.message);
  if (reach_.Failed(address, step, error)) {
    json::Object event = reach_.Json(address);
    event.insert(event.begin(), {"event", json::Value("unreached")});
    Event(std::move(event));
  }
  if (step == net::DialStep::kHello) Refused(address, error);
}

void Node::Refused(const std::string& address, const Error& error) {
  if (!up_.empty() || (error.code != Code::kRefused && error.code != Code::kConflict)) return;
  const NodeEnd end{collab::PeerState::kFailed,
                    fmt::format("{} refused this peer: {}", address, error.message), error.code,
                    error.hint};
  // A member that says no to the invite will say it again: no need to wait for the others' silence.
  if (!reached_ && !peer_) return Stop(end);
  // Another process has this identity, say all that answer. One liar cannot stop a peer that
  // reaches anybody else.
  if (error.code == Code::kConflict && reactor_.Now() - alone_since_ > 10s) return Stop(end);
  if (std::exchange(last_refusal_, error.message) == error.message) return;
  Say(fmt::format("Refused by {}: {}{}{}.", address, error.message, error.hint.empty() ? "" : "; ",
                  error.hint));
}

// While nobody is connected: that the search goes on, and how it stands.
void Node::ShowSearch(Time now) {
  const Duration alone = now - alone_since_;
  const Duration pause = alone < 30s ? Duration(2s) : Duration(60s);
  const bool lone = peer_ && peer_->chain().head().body.members.size() <= 1;
  if (!options_.progress || !up_.empty() || lone || reach_.tried() == 0) return;
  if (alone < 2s || now - search_shown_ < pause) return;
  search_shown_ = now;
  options_.progress(
      fmt::format("looking for the others: {} tried, none answers as a member; "
                  "{:.0f} s (loom status shows each)",
                  Counted(reach_.tried(), "address", "addresses"), Seconds(alone)));
}

void Node::OnRefused(const std::string& remote, const std::string& text) {
  Log(LogLevel::kDebug, "net", "{}: {}", remote, text);
}

void Node::OnSendSpace(const PeerId& peer, net::Channel channel) {
  if (channel == net::Channel::kBulk) outbox_.OnSpace(peer);
}

}  // namespace loom::node
