// Where peers may be found: every address heard of, from invites, the peer itself and other peers,
// in the order in which they are worth trying, with back-off. The addresses of one peer are tried
// side by side with a short stagger, as RFC 8305 does. It dials nothing: the node asks Due() and
// reports back.
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
inline constexpr std::size_t kMaxTrying = 64;
inline constexpr Duration kStagger = 250ms;  ///< before a peer's next address is tried, too
inline constexpr Duration kFirstRetry = 500ms;
inline constexpr Duration kLastRetry = 60s;

/// How an address came to us; a better source is tried earlier and forgotten later.
enum class AddressSource : std::uint8_t {
  kGossip,    ///< a peer told us about another
  kInvite,    ///< an invite, or this peer's own folder
  kObserved,  ///< where its connection came from, with the port that it says it listens on
  kPeer,      ///< the peer itself, on an authenticated connection
};

/// What became of the last try of an address.
enum class TryResult : std::uint8_t {
  kNone,     ///< not tried, or it worked
  kNobody,   ///< the machine answers, nothing listens there
  kNoRoute,  ///< this machine has no way there
  kFailed,   ///< anything else
};

/// Owner thread: the reactor.
class Directory {
 public:
  struct Candidate {
    PeerId peer;  ///< zero when only the address is known
    Address address;
    auto operator<=>(const Candidate&) const = default;
    bool operator==(const Candidate&) const = default;
  };

  Directory(const PeerId& self, std::uint64_t seed) : self_(self), seed_(seed) {}

  /// Adds or improves an address. Our own id, what means nothing on any machine, and what exceeds
  /// the caps is left out (gossip first), and so is where another, connected peer was found.
  /// `order`: its place in the list it came in, best first.
  void Learn(const PeerId& peer, const Address& address, AddressSource source,
             std::size_t order = 0);
  /// All that a peer says of itself now, best first; what it said before sinks to gossip.
  void Claims(const PeerId& peer, const std::vector<Address>& addresses);
  /// Addresses to dial now: `max` in all, best first, kStagger between those of one peer; none for
  /// peers that are connected. Each is then being tried until Connected or Failed.
  std::vector<Candidate> Due(Time now, std::size_t max);
  /// The dialled address turned out to be `peer` (who may differ from the one expected); its other
  /// tries are over.
  void Connected(const Address& address, const PeerId& peer);
  /// The peer is connected by a way that was not dialled from here.
  void Connected(const PeerId& peer);
  void Failed(const Address& address, TryResult why, Time now);
  /// The peer's last connection closed: it is tried again soon.
  void Closed(const PeerId& peer, Time now);
  /// Nothing listens where the peer was found before, or at any address of it that this machine has
  /// a way to; of a private one that never worked from here nothing follows.
  bool NobodyThere(const PeerId& peer) const;
  /// Known addresses of a peer, best first.
  std::vector<Address> AddressesOf(const PeerId& peer) const;
  /// Those known at first hand: the peer said so itself, or they worked. What others may be told.
  std::vector<Address> FirstHand(const PeerId& peer) const;
  /// Every address whose peer is known; a peer's best first.
  std::vector<Candidate> Known() const;
  void Forget(const PeerId& peer);
  std::size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    PeerId peer;
    AddressSource source = AddressSource::kGossip;
    std::uint8_t order = 0;
    std::uint32_t failures = 0;
    TryResult last = TryResult::kNone;
    bool worked = false;  ///< was connected once
    bool trying = false;
    Time began{};  ///< the last try
    Time next{};
  };
  using Entries = std::map<Address, Entry>;
  /// What worked, failures, source, place, scope, a seeded draw: smaller is tried earlier.
  using RankKey = std::tuple<bool, std::uint32_t, int, int, int, std::uint64_t>;
  RankKey Rank(const Address& address, const Entry& entry) const;
  /// Room for one more address from such a source: in all, and of the peer. False: there is none.
  bool MakeRoom(const PeerId& peer, AddressSource source);
  bool MakeRoomOf(const PeerId& peer, AddressSource source);
  /// The worst of those that are not being tried and came from no better source.
  template <class Which>
  bool EraseWorst(AddressSource source, Which&& which);
  Duration Backoff(const Address& address, std::uint32_t failures) const;
  std::vector<Entries::const_iterator> Ranked(const PeerId& peer) const;

  PeerId self_;
  std::uint64_t seed_;
  Entries entries_;
  std::set<PeerId> connected_;
};

}  // namespace loom::swarm
