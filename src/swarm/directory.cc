#include "swarm/directory.h"

#include <algorithm>

namespace loom::swarm {
namespace {

std::uint64_t Mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

std::uint64_t HashOf(const Address& address) {
  std::uint64_t hash = 0xcbf29ce484222325u ^ address.port;
  for (const char c : address.host) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

}  // namespace

Directory::RankKey Directory::Rank(const Address& address, const Entry& entry) const {
  // The draw differs between peers, so that joiners do not all knock at one door.
  return {!entry.worked,
          entry.failures,
          -static_cast<int>(entry.source),
          entry.order,
          static_cast<int>(address.Scope()),
          Mix(seed_ ^ HashOf(address))};
}

void Directory::Learn(const PeerId& peer, const Address& address, AddressSource source,
                      std::size_t order) {
  if ((!peer.IsZero() && peer == self_) || !address.MeansSomething(true)) return;
  const auto place = static_cast<std::uint8_t>(std::min<std::size_t>(order, UINT8_MAX));
  const auto known = entries_.find(address);
  if (known != entries_.end()) {
    Entry& entry = known->second;
    // Two homes may use the same private address, and anybody can say anything: the one whose key
    // answered there keeps it while it is connected.
    const bool proved = entry.worked && connected_.contains(entry.peer);
    if (proved && !peer.IsZero() && peer != entry.peer) return;
    const bool better = source >= entry.source;
    const bool moves = !peer.IsZero() && peer != entry.peer && (better || entry.peer.IsZero());
    if (moves) {
      if (!MakeRoomOf(peer, source)) return;
      entry.peer = peer;
    }
    if (better) {
      entry.source = source;
      entry.order = place;
    }
    return;
  }
  if (!MakeRoom(peer, source)) return;
  Entry entry;
  entry.peer = peer;
  entry.source = source;
  entry.order = place;
  entries_.emplace(address, entry);
}

void Directory::Claims(const PeerId& peer, const std::vector<Address>& addresses) {
  for (auto& [address, entry] : entries_) {
    if (entry.peer == peer && entry.source >= AddressSource::kObserved) {
      entry.source = AddressSource::kGossip;
    }
  }
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    Learn(peer, addresses[i], AddressSource::kPeer, i);
  }
}

template <class Which>
bool Directory::EraseWorst(AddressSource source, Which&& which) {
  auto worst = entries_.end();
  for (auto it = entries_.begin(); it != entries_.end(); ++it) {
    if (it->second.trying || it->second.source > source || !which(it->second)) continue;
    if (worst == entries_.end() || Rank(it->first, it->second) > Rank(worst->first, worst->second))
      worst = it;
  }
  if (worst == entries_.end()) return false;
  entries_.erase(worst);
  return true;
}

bool Directory::MakeRoomOf(const PeerId& peer, AddressSource source) {
  const auto of_peer = [&](const Entry& entry) { return entry.peer == peer; };
  const auto count =
      std::ranges::count_if(entries_, [&](const auto& item) { return of_peer(item.second); });
  if (peer.IsZero() || static_cast<std::size_t>(count) < kMaxAddressesPerPeer) return true;
  return EraseWorst(source, of_peer);
}

bool Directory::MakeRoom(const PeerId& peer, AddressSource source) {
  if (!MakeRoomOf(peer, source)) return false;
  return entries_.size() < kMaxKnownAddresses ||
         EraseWorst(source, [](const Entry& entry) { return !entry.worked || entry.failures > 0; });
}

std::vector<Directory::Candidate> Directory::Due(Time now, std::size_t max) {
  std::map<PeerId, Time> begun;  // the newest try of each peer that is being tried
  std::vector<Entries::iterator> due;
  std::size_t trying = 0;
  for (auto it = entries_.begin(); it != entries_.end(); ++it) {
    const Entry& entry = it->second;
    if (entry.trying) {
      ++trying;
      Time& newest = begun.try_emplace(entry.peer, entry.began).first->second;
      newest = std::max(newest, entry.began);
    } else if (entry.next <= now && !connected_.contains(entry.peer)) {
      due.push_back(it);
    }
  }
  std::sort(due.begin(), due.end(), [&](const auto& a, const auto& b) {
    return Rank(a->first, a->second) < Rank(b->first, b->second);
  });
  std::vector<Candidate> out;
  for (const auto& it : due) {
    if (out.size() >= max || trying >= kMaxTrying) break;
    Entry& entry = it->second;
    const auto newest = begun.find(entry.peer);
    if (!entry.peer.IsZero()) {
      if (newest != begun.end() && now - newest->second < kStagger) continue;
      begun[entry.peer] = now;
    }
    entry.trying = true;
    entry.began = now;
    ++trying;
    out.push_back({entry.peer, it->first});
  }
  return out;
}

void Directory::Connected(const Address& address, const PeerId& peer) {
  const auto it = entries_.find(address);
  if (it != entries_.end()) {
    if (peer == self_) {
      entries_.erase(it);
      return;
    }
    Entry& entry = it->second;
    Connected(peer);  // its others are tried no longer, and one of them can make room
    if (entry.peer != peer && !MakeRoomOf(peer, AddressSource::kPeer)) return;
    entry.worked = true;
    entry.trying = false;
    entry.failures = 0;
    entry.last = TryResult::kNone;
    entry.peer = peer;
    return;
  }
  Connected(peer);
}

void Directory::Connected(const PeerId& peer) {
  if (peer == self_) return;
  connected_.insert(peer);
  for (auto& [address, entry] : entries_) {
    if (entry.peer == peer) entry.trying = false;
  }
}

void Directory::Failed(const Address& address, TryResult why, Time now) {
  const auto it = entries_.find(address);
  if (it == entries_.end()) return;
  Entry& entry = it->second;
  entry.trying = false;
  entry.last = why;
  entry.failures = std::min<std::uint32_t>(entry.failures + 1, 1000);
  entry.next = now + Backoff(address, entry.failures);
}

void Directory::Closed(const PeerId& peer, Time now) {
  connected_.erase(peer);
  for (auto& [address, entry] : entries_) {
    if (entry.peer == peer && !entry.trying) {
      entry.next = now + Backoff(address, entry.failures);
    }
  }
}

bool Directory::NobodyThere(const PeerId& peer) const {
  bool refused = false;
  bool unknown = false;
  for (const auto& [address, entry] : entries_) {
    if (entry.peer != peer) continue;
    const bool closed = entry.last == TryResult::kNobody;
    if (closed && entry.worked) return true;
    // A private address that never worked from here may be another machine's in this network.
    const bool its_own = closed && address.Scope() != AddressScope::kPrivate;
    refused = refused || its_own;
    unknown = unknown || !(its_own || entry.last == TryResult::kNoRoute);
  }
  return refused && !unknown;
}

std::vector<Directory::Entries::const_iterator> Directory::Ranked(const PeerId& peer) const {
  std::vector<Entries::const_iterator> found;
  for (auto it = entries_.begin(); it != entries_.end(); ++it) {
    if (it->second.peer == peer) found.push_back(it);
  }
  std::sort(found.begin(), found.end(), [&](const auto& a, const auto& b) {
    return Rank(a->first, a->second) < Rank(b->first, b->second);
  });
  return found;
}

std::vector<Address> Directory::AddressesOf(const PeerId& peer) const {
  std::vector<Address> out;
  for (const auto& it : Ranked(peer)) out.push_back(it->first);
  return out;
}

std::vector<Address> Directory::FirstHand(const PeerId& peer) const {
  std::vector<Address> out;
  for (const auto& it : Ranked(peer)) {
    if (it->second.source == AddressSource::kPeer || it->second.worked) out.push_back(it->first);
  }
  return out;
}

std::vector<Directory::Candidate> Directory::Known() const {
  std::set<PeerId> peers;
  for (const auto& [address, entry] : entries_) {
    if (!entry.peer.IsZero()) peers.insert(entry.peer);
  }
  std::vector<Candidate> out;
  for (const PeerId& peer : peers) {
    for (const Address& address : AddressesOf(peer)) out.push_back({peer, address});
  }
  return out;
}

void Directory::Forget(const PeerId& peer) {
  connected_.erase(peer);
  std::erase_if(entries_, [&](const auto& item) { return item.second.peer == peer; });
}

Duration Directory::Backoff(const Address& address, std::uint32_t failures) const {
  Duration wait = kFirstRetry;
  for (std::uint32_t i = 1; i < failures && wait < kLastRetry; ++i) wait *= 2;
  wait = std::min(wait, Duration(kLastRetry));
  // Half of it fixed, half drawn: peers that lost the same host do not come back together.
  const std::uint64_t draw = Mix(seed_ ^ HashOf(address) ^ (std::uint64_t{failures} << 32)) % 1024;
  return wait / 2 + wait / 2 * static_cast<std::int64_t>(draw) / 1024;
}

}  // namespace loom::swarm
