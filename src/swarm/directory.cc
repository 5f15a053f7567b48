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
  // Smaller is better: what worked before, few failures, better sources, addresses that can work
  // from everywhere; then a seeded order, so that joiners do not all knock at one door.
  const int scope = address.IsLoopback() ? 2 : address.IsPrivate() ? 1 : 0;
  return {!entry.worked, entry.failures, -static_cast<int>(entry.source), scope,
          Mix(seed_ ^ HashOf(address))};
}

void Directory::Learn(const PeerId& peer, const Address& address, AddressSource source) {
  if (!peer.IsZero() && peer == self_) return;
  const auto known = entries_.find(address);
  if (known != entries_.end()) {
    Entry& entry = known->second;
    if (source >= entry.source) {
      entry.source = source;
      if (!peer.IsZero()) entry.peer = peer;
    } else if (entry.peer.IsZero()) {
      entry.peer = peer;
    }
    return;
  }
  if (!MakeRoom(peer, source)) return;
  Entry entry;
  entry.peer = peer;
  entry.source = source;
  entries_.emplace(address, entry);
}

bool Directory::MakeRoom(const PeerId& peer, AddressSource source) {
  std::size_t of_peer = 0;
  auto worst = entries_.end();
  auto worst_of_peer = entries_.end();
  const auto worse = [&](auto a, auto b) {
    return b == entries_.end() || Rank(a->first, a->second) > Rank(b->first, b->second);
  };
  for (auto it = entries_.begin(); it != entries_.end(); ++it) {
    const bool same = !peer.IsZero() && it->second.peer == peer;
    of_peer += same ? 1 : 0;
    if (it->second.trying || it->second.source > source) continue;
    if (it->second.worked && it->second.failures == 0) continue;
    if (same && worse(it, worst_of_peer)) worst_of_peer = it;
    if (worse(it, worst)) worst = it;
  }
  if (of_peer >= kMaxAddressesPerPeer) {
    if (worst_of_peer == entries_.end()) return false;
    entries_.erase(worst_of_peer);
  } else if (entries_.size() >= kMaxKnownAddresses) {
    if (worst == entries_.end()) return false;
    entries_.erase(worst);
  }
  return true;
}

std::vector<Directory::Candidate> Directory::Due(Time now, std::size_t max) {
  std::set<PeerId> busy;
  std::vector<std::map<Address, Entry>::iterator> due;
  for (auto it = entries_.begin(); it != entries_.end(); ++it) {
    if (it->second.trying && !it->second.peer.IsZero()) busy.insert(it->second.peer);
    if (!it->second.trying && it->second.next <= now && !connected_.contains(it->second.peer)) {
      due.push_back(it);
    }
  }
  std::sort(due.begin(), due.end(), [&](const auto& a, const auto& b) {
    return Rank(a->first, a->second) < Rank(b->first, b->second);
  });
  std::vector<Candidate> out;
  for (const auto& it : due) {
    if (out.size() >= max) break;
    Entry& entry = it->second;
    if (!entry.peer.IsZero() && !busy.insert(entry.peer).second) continue;
    entry.trying = true;
    out.push_back({entry.peer, it->first});
  }
  return out;
}

std::optional<Time> Directory::NextDue() const {
  std::set<PeerId> busy;
  for (const auto& [address, entry] : entries_) {
    if (entry.trying && !entry.peer.IsZero()) busy.insert(entry.peer);
  }
  std::optional<Time> next;
  for (const auto& [address, entry] : entries_) {
    if (entry.trying || connected_.contains(entry.peer) || busy.contains(entry.peer)) continue;
    if (!next || entry.next < *next) next = entry.next;
  }
  return next;
}

void Directory::Connected(const Address& address, const PeerId& peer) {
  const auto it = entries_.find(address);
  if (it != entries_.end()) {
    if (peer == self_) {
      entries_.erase(it);
      return;
    }
    it->second.trying = false;
    it->second.worked = true;
    it->second.failures = 0;
    it->second.peer = peer;
  }
  if (peer != self_) connected_.insert(peer);
}

void Directory::Failed(const Address& address, Time now) {
  const auto it = entries_.find(address);
  if (it == entries_.end()) return;
  Entry& entry = it->second;
  entry.trying = false;
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

std::vector<Address> Directory::AddressesOf(const PeerId& peer) const {
  std::vector<std::map<Address, Entry>::const_iterator> found;
  for (auto it = entries_.begin(); it != entries_.end(); ++it) {
    if (it->second.peer == peer) found.push_back(it);
  }
  std::sort(found.begin(), found.end(), [&](const auto& a, const auto& b) {
    return Rank(a->first, a->second) < Rank(b->first, b->second);
  });
  std::vector<Address> out;
  out.reserve(found.size());
  for (const auto& it : found) out.push_back(it->first);
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
