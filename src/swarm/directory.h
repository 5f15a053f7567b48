// Where peers may be found: every address heard of, from invites, records, the peer itself and
// other peers, in the order in which they are worth trying, with back-off. It dials nothing: the
// node asks Due() and reports back.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "base/id.h"
#include "base/time.h"
#include "swarm/address.h"

namespace loom::swarm {

inline constexpr std::size_t kMaxAddressesPerPeer = 8;
inline constexpr std::size_t kMaxKnownAddresses = 4096;
inline constexpr Duration kFirstRetry = 500ms;
inline constexpr Duration kLastRetry = 60s;

/// How an address came to us; a better source is tried earlier and forgotten later.
enum class AddressSource : std::uint8_t {
  kGossip,  ///< a peer told us about another
  kInvite,
  kRecord,  ///< in a committed record
  kPeer,    ///< the peer itself, on an authenticated connection
};

/// Owner thread: the reactor.
class Directory {
 public:
  struct Candidate {
    PeerId peer;  ///< zero when only the address is known
    Address address;
  };

  Directory(const PeerId& self, std::uint64_t seed) : self_(self), seed_(seed) {}

  /// Adds or improves an address. Our own id and what exceeds the caps is left out (gossip first).
  void Learn(const PeerId& peer, const Address& address, AddressSource source);
  /// Addresses to dial now: at most one per peer and `max` in all, best first; none for peers that
  /// are connected. Each is then being tried until Connected or Failed.
  std::vector<Candidate> Due(Time now, std::size_t max);
  /// When Due may have something again.
  std::optional<Time> NextDue() const;
  /// The dialled address turned out to be `peer` (who may differ from the one expected).
  void Connected(const Address& address, const PeerId& peer);
  void Failed(const Address& address, Time now);
  /// The peer's last connection closed: it is tried again soon.
  void Closed(const PeerId& peer, Time now);
  /// Known addresses of a peer, best first, to tell others.
  std::vector<Address> AddressesOf(const PeerId& peer) const;
  void Forget(const PeerId& peer);
  std::size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    PeerId peer;
    AddressSource source = AddressSource::kGossip;
    std::uint32_t failures = 0;
    bool worked = false;  ///< was connected once
    bool trying = false;
    Time next{};
  };
  /// What worked, failures, source, reach, a seeded draw: smaller is tried earlier.
  using RankKey = std::tuple<bool, std::uint32_t, int, int, std::uint64_t>;
  RankKey Rank(const Address& address, const Entry& entry) const;
  bool MakeRoom(const PeerId& peer, AddressSource source);
  Duration Backoff(const Address& address, std::uint32_t failures) const;

  PeerId self_;
  std::uint64_t seed_;
  std::map<Address, Entry> entries_;
  std::set<PeerId> connected_;
};

}  // namespace loom::swarm
