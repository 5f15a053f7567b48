// Content-addressed transfer: a Fetcher gets objects by hash from several donors at once, a Donor
// answers. Both are state machines without I/O: messages, donors and time in, effects out. Nothing
// is taken on trust: a donor whose bytes do not hash to the id is named and never asked again, and
// what it owed is asked of others. State tiles, reduced round bytes, shards and tokenizers travel
// so.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "base/id.h"
#include "base/result.h"
#include "base/time.h"
#include "wire/bytes_io.h"

namespace loom::swarm {

inline constexpr std::size_t kMaxObjectBytes = (1u << 20) + (64u << 10);  ///< one piece and some
inline constexpr std::size_t kMaxIdsPerMessage = 256;
inline constexpr std::size_t kMaxWantedObjects = 1u << 22;

/// Ask for objects; the donor answers each id with ObjectData or NotHere.
struct GetObjects {
  std::vector<Hash> ids;
  void Encode(wire::Writer& out) const;
  static Result<GetObjects> Decode(ByteView in);
};
struct ObjectData {
  Hash id;
  Blob bytes;
  void Encode(wire::Writer& out) const;
  static Result<ObjectData> Decode(ByteView in);
};
/// The donor has none of these, or not now: it has too much queued for us (`busy`).
struct NotHere {
  std::vector<Hash> ids;
  bool busy = false;
  void Encode(wire::Writer& out) const;
  static Result<NotHere> Decode(ByteView in);
};

struct ObjectRef {
  Hash id;
  std::uint32_t size = 0;
};

/// Effects of a Fetcher.
struct SendGet {
  PeerId to;
  GetObjects message;
};
struct StoreObject {  ///< verified
  Hash id;
  Blob bytes;
};
struct BlameDonor {  ///< sent bytes that do not hash to the id it was asked for
  PeerId donor;
  Hash id;
  std::string reason;
};
struct FetchDone {};  ///< every wanted object is there
using FetchEffect = std::variant<SendGet, StoreObject, BlameDonor, FetchDone>;

struct DonorProgress {
  PeerId donor;
  std::uint64_t bytes = 0;
  double bytes_per_second = 0;
  std::size_t outstanding = 0;
};
struct FetchProgress {
  std::size_t objects_done = 0;
  std::size_t objects_total = 0;
  std::uint64_t bytes_done = 0;  ///< held at the start included
  std::uint64_t bytes_total = 0;
  double bytes_per_second = 0;
  std::vector<DonorProgress> donors;
  std::vector<PeerId> liars;
};

struct FetchOptions {
  std::uint64_t seed = 0;
  std::uint64_t window_bytes = 4u << 20;  ///< asked for and not yet answered, per donor
  std::size_t window_objects = 32;
  Duration first_timeout = 5s;  ///< without any answer of a donor; doubles with each in a row
  Duration max_timeout = 120s;  ///< also the longest that one object may stay unanswered
};

/// Owner thread: the reactor. Every call returns what to do now; Tick is due at NextTick().
///
/// A donor is asked for as much as it delivers in about two seconds. When it goes silent, what it
/// owed is asked of others and it gets less, later. At the end, objects that a donor sits on are
/// asked of an idle one too. Which object is asked first: the one with the fewest announced
/// holders, then by a seeded order, so that joiners of one moment fetch different things first.
class Fetcher {
 public:
  using Effects = std::vector<FetchEffect>;

  explicit Fetcher(const FetchOptions& options) : options_(options) {}

  /// Adds objects; those that `held` says are there already count as done. kLimit over
  /// kMaxObjectBytes; then none is added.
  Result<Effects> Want(const std::vector<ObjectRef>& objects,
                       const std::function<bool(const Hash&)>& held, Time now);
  /// `has` empty: the donor is asked for anything and may answer NotHere. A donor that lied before
  /// is not taken back.
  Effects AddDonor(const PeerId& donor, std::optional<std::set<Hash>> has, Time now);
  Effects RemoveDonor(const PeerId& donor, Time now);
  Effects OnData(const PeerId& from, const ObjectData& data, Time now);
  Effects OnNotHere(const PeerId& from, const NotHere& message, Time now);
  Effects Tick(Time now);

  /// When Tick has something to do; none when nothing is outstanding.
  std::optional<Time> NextTick() const;
  bool done() const { return objects_done_ == objects_.size(); }
  /// Some object is missing that no present donor may have: more donors are needed.
  bool starved() const;
  FetchProgress Progress(Time now) const;

 private:
  struct Object {
    std::uint32_t size = 0;
    std::uint64_t order = 0;
    std::uint32_t holders = 0;  ///< donors that announced it
    std::uint32_t askers = 0;   ///< donors that owe it to us now
    bool done = false;
    std::set<PeerId> refused;  ///< donors that do not have it
  };
  struct Peer {
    std::optional<std::set<Hash>> has;
    std::map<Hash, Time> asked;  ///< and when
    std::uint64_t asked_bytes = 0;
    std::uint64_t bytes = 0;
    std::size_t window = 2;     ///< objects; grows with every answer, shrinks with a timeout
    double rate = 0;            ///< bytes per second, smoothed; 0 = unknown
    Time progress{};            ///< last answer, or the first request after being idle
    std::uint32_t strikes = 0;  ///< timeouts and busy answers in a row
    Time not_before{};
    bool exhausted = false;  ///< nothing wanted that it may have, when last looked
  };
  using WantedKey = std::tuple<std::uint32_t, std::uint64_t, Hash>;

  static WantedKey KeyOf(const Hash& id, const Object& object) {
    return {object.holders, object.order, id};
  }
  bool MayHave(const PeerId& id, const Peer& peer, const Hash& object, const Object& state) const;
  bool HasRoom(const Peer& peer) const;
  std::optional<Hash> Pick(const PeerId& id, const Peer& peer) const;
  void Ask(Peer& peer, const Hash& object);
  void Drop(const PeerId& donor);
  /// The donor no longer owes the object; it is wanted again unless it is done or owed by another.
  void Release(Peer& peer, const Hash& object);
  void ReleaseAll(Peer& peer);
  void Strike(Peer& peer);
  Duration TimeoutOf(const Peer& peer) const;
  void Assign(Effects& out);
  Effects Finish(Effects out);

  FetchOptions options_;
  Time now_{};
  std::unordered_map<Hash, Object> objects_;
  std::set<WantedKey> wanted_;
  std::map<PeerId, Peer> peers_;
  std::set<PeerId> liars_;
  std::size_t objects_done_ = 0;
  std::uint64_t bytes_done_ = 0;
  std::uint64_t bytes_total_ = 0;
  std::uint64_t bytes_fetched_ = 0;
  std::optional<Time> started_;
  bool told_done_ = false;
};

/// Serves objects. Owner thread: the reactor; the lookup may be answered later from the storage
/// thread, so it is split in two: Ask says what to look up, Found sends it.
class Donor {
 public:
  struct Limits {
    std::uint64_t peer_bytes = 16u << 20;  ///< queued to one peer and not yet written to its socket
    std::size_t peer_requests = 256;
  };
  struct Lookup {
    PeerId peer;
    Hash id;
  };
  struct Answer {
    PeerId to;
    std::variant<ObjectData, NotHere> message;
  };
  struct Step {
    std::vector<Lookup> lookups;
    std::vector<Answer> answers;
  };
  /// Size of an object that can be served, or none.
  using SizeOf = std::function<std::optional<std::uint32_t>(const Hash&)>;

  Donor(const Limits& limits, SizeOf size_of) : limits_(limits), size_of_(std::move(size_of)) {}

  Step OnGet(const PeerId& from, const GetObjects& message);
  /// The bytes of a lookup, or null when they could not be read.
  Step Found(const PeerId& peer, const Hash& id, std::shared_ptr<const Bytes> bytes);
  /// The socket took the answer: its bytes no longer count.
  void Written(const PeerId& peer, std::uint64_t bytes);
  void RemovePeer(const PeerId& peer) { peers_.erase(peer); }
  std::uint64_t outstanding(const PeerId& peer) const;

 private:
  struct Peer {
    std::map<Hash, std::uint32_t> looking;
    std::uint64_t bytes = 0;
  };
  Limits limits_;
  SizeOf size_of_;
  std::map<PeerId, Peer> peers_;
};

}  // namespace loom::swarm
