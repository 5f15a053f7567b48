// What a round agrees on (rule R1). A Body says everything about the round and nothing about how it
// was agreed; its hash is what the chain links. The certificate beside it (term, signed votes,
// owners' signatures of what they reduced) proves that a quorum of the parent's members agreed, and
// who made the bytes; certificates of one body may differ between peers.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "agreed/fixed_point.h"
#include "agreed/step.h"
#include "base/id.h"
#include "base/time.h"
#include "collab/order.h"
#include "collab/worker.h"
#include "crypto/keys.h"
#include "wire/bytes_io.h"

namespace loom::collab {

inline constexpr std::size_t kMaxMembers = 1024;
inline constexpr std::size_t kMaxTiles = 1U << 20;
inline constexpr std::size_t kMaxTensors = 1U << 16;
inline constexpr std::size_t kMaxRanges = 4096;
inline constexpr std::size_t kMaxParts = 1U << 16;  ///< signatures of owners in one certificate
inline constexpr std::size_t kMaxBodyBytes = 64U << 20;
inline constexpr std::size_t kMaxStartFiles = 16;
inline constexpr std::size_t kMaxStartName = 64;  ///< bytes

enum class Kind : std::uint8_t {
  kGenesis,
  kStep,
  kReset,  ///< an owner names who goes on after its parent, in a new era (R14)
};
std::string_view KindName(Kind kind);

/// A peer that votes. Listed in order of seniority: `since` ascending, then id.
struct Member {
  crypto::PublicKey key;
  PeerId id;        ///< crypto::PeerIdOf(key)
  Round since = 0;  ///< the record that listed it, without a break since
  /// Smoothed over its contributions; 0 = not known yet. Only sizes and places work.
  std::uint32_t tokens_per_second = 0;
  bool operator==(const Member&) const = default;
};

/// One worker's part in the reduce: a prefix of the ranges the parent record issued to it. In exact
/// mode always all of them, computed by any member; several workers may share a commitment.
struct Contribution {
  WorkerIndex worker = 0;
  PeerId peer;
  std::uint64_t samples = 0;
  std::uint64_t tokens = 0;
  std::uint32_t millis = 0;  ///< compute time it reports; only sizes the next ranges
  std::vector<Range> ranges;
  Hash commitment;
  bool operator==(const Contribution&) const = default;
};

enum class Fate : std::uint8_t { kUsed, kLost, kReturned };
std::string_view FateName(Fate fate);

struct RangeFate {
  WorkerIndex worker = 0;
  Range range;
  Fate fate = Fate::kUsed;
  bool operator==(const RangeFate&) const = default;
};

/// A logical worker of the next round. A worker whose host is not a member sleeps (no ranges).
struct WorkerEntry {
  WorkerIndex worker = 0;
  PeerId host;
  std::vector<Range> issued;
  bool operator==(const WorkerEntry&) const = default;
};

struct InviteUse {
  Hash invite;
  PeerId peer;
  bool operator==(const InviteUse&) const = default;
};

struct Body {
  RunId run;  ///< zero in the genesis body, whose hash it is
  Era era = 0;
  Round round = 0;
  Hash parent;
  Kind kind = Kind::kStep;
  std::uint32_t arithmetic = 1;
  std::vector<Member> members;  ///< of the next round
  std::vector<Contribution>
      contributions;  ///< ascending by worker: the canonical order of the reduce
  std::vector<RangeFate> fates;
  std::vector<Hash> tiles;   ///< hash of each encoded tile of the result
  std::uint64_t tokens = 0;  ///< used by the run up to and with this round
  std::uint64_t steps = 0;   ///< records with contributions up to and with this one
  /// Exact mode: of each tensor, over the units of the last step; empty before the first (R25).
  std::vector<agreed::Exponent> exponents;
  std::uint64_t next_sample = 0;  ///< the data cursor
  std::vector<Range> returned;    ///< issued again before the cursor moves
  std::vector<WorkerEntry> workers;
  std::vector<InviteUse> invite_uses;
  std::vector<PeerId> bans;    ///< keys that signed two votes of one term (R8) or came back twice
  std::uint64_t orders = 0;    ///< of owners, taken up by the run up to and with this record
  std::optional<Order> order;  ///< the one that this record takes up; it has no contributions
  Hash root;                   ///< Merkle root of the state after this round
  Bytes payload;               ///< genesis: the encoded Genesis; empty otherwise

  bool operator==(const Body&) const = default;
  Bytes Encode() const;
  static Result<Body> Decode(ByteView bytes);
};

/// SHA-256 of "loom body" and the encoding: the link of the chain.
Hash BodyHash(ByteView encoded_body);

/// A member's signed word for a body. `seq` numbers everything a key signs in votes and promises
/// (R9).
struct Vote {
  PeerId peer;
  Term term = 0;
  Hash body;
  std::uint64_t seq = 0;
  crypto::Signature signature;
  bool operator==(const Vote&) const = default;
  void Encode(wire::Writer& out) const;
  static Vote Decode(wire::Reader& in);
};

/// Tiles [first, first + count).
struct TileRun {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  bool operator==(const TileRun&) const = default;
  bool Contains(std::uint32_t tile) const { return tile >= first && tile - first < count; }
};

/// An owner's signed word for tiles that it reduced and sent to all (R20).
struct PartSignature {
  PeerId owner;
  Term term = 0;
  std::uint32_t attempt = 0;
  TileRun run;
  crypto::Signature signature;
  bool operator==(const PartSignature&) const = default;
  void Encode(wire::Writer& out) const;
  static PartSignature Decode(wire::Reader& in);
};

/// A body and the proof that it was agreed.
struct Record {
  Blob encoded;  ///< the body's bytes as they were agreed; never re-encoded
  Body body;
  Hash hash;
  Term term = 0;
  std::vector<Vote> votes;                 ///< empty for genesis
  std::vector<PartSignature> parts;        ///< those that its holder received; any number
  std::optional<crypto::Signature> owner;  ///< genesis, resets: an owner's signature of the hash

  static Result<Record> FromBody(Blob encoded);
  Bytes Encode() const;
  static Result<Record> Decode(ByteView bytes);
};

/// The longest work of a contributor; nullopt: nobody worked.
std::optional<Duration> SlowestWork(const Record& record);
/// The clock of the step that a body takes. Requires: it has contributions.
agreed::StepClock ClockOf(const Body& body);

/// What the genesis record carries beside the first root and members.
struct ObjectRef {
  Hash id;
  std::uint64_t size = 0;
  bool operator==(const ObjectRef&) const = default;
};
struct NamedObject {
  std::string name;
  ObjectRef ref;
  bool operator==(const NamedObject&) const = default;
};
struct Genesis {
  Bytes spec;  ///< canonical bytes of the agreed settings
  Hash nonce;
  std::vector<crypto::PublicKey> owners;
  ObjectRef tokenizer;
  std::vector<ObjectRef> train_shards;
  std::vector<ObjectRef> val_shards;
  Bytes dataset;             ///< manifest of the token shards, as `data` writes it
  Hash probe;                ///< exact mode: train::ProbeKernels of the founder (R27); else zero
  std::int64_t created = 0;  ///< Unix seconds, for people
  std::string name;          ///< for people, at most 64 bytes
  /// Files of the model, maybe of an adapter too, with the first weights; empty: drawn by the seed.
  /// Encoded only where there is one, so that runs from before it keep their id.
  std::vector<NamedObject> start;

  Bytes Encode() const;
  static Result<Genesis> Decode(ByteView bytes);
};

/// Round, hash and root of a record: what peers tell each other about how far they are.
struct Head {
  Era era = 0;
  Round round = 0;
  Hash hash;
  Hash root;
  bool operator==(const Head&) const = default;
};
Head HeadOf(const Record& record);
/// Whether the record returns to the state of an older one.
bool Reverts(const Body& body);
/// The records by whose states the state after `round` came, newest first, down to 0: those that an
/// order has returned from are left out. `at` gives the body of a round above 0.
std::vector<Round> Ancestry(Round round, const std::function<const Body&(Round)>& at);

}  // namespace loom::collab
