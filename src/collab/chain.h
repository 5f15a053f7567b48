// The records a peer holds, oldest first, each checked against its parent: the body follows from
// the parent, and the certificate's signed votes are a quorum of the parent's members (rules R1,
// R10).
#pragma once

#include <deque>
#include <map>
#include <set>
#include <vector>

#include "collab/ledger.h"
#include "collab/quorum.h"
#include "collab/record.h"
#include "collab/signer.h"
#include "collab/word.h"

namespace loom::collab {

class Chain {
 public:
  /// `genesis` was checked with CheckGenesis.
  /// `read` is asked for the settings of orders; without it none that has any is taken up.
  Chain(Record genesis, const SyncConfig& config, std::size_t num_tiles, const Signer& signer,
        ReadSettings read = {});

  /// The owner's signature and the first body's form; the run's id is the record's hash.
  static Status CheckGenesis(const Record& genesis, const Signer& signer);
  static constexpr std::string_view kGenesisDomain = "loom genesis";

  /// Ok and kept when the record follows the head. Errors name what does not fit.
  Status Append(Record record);
  /// The same for a record read back from the own disk: links and bodies are checked, signatures
  /// are not.
  Status AppendOwn(Record record);

  /// Whether the record's body follows the head, whoever agreed on it.
  Status Follows(const Record& record) const;
  /// Frees of the records before `round` what nothing is checked against any more: members, work,
  /// tiles, votes. They stay links, with numbers, hash, root and order; whole they are on disk.
  void ThinOut(Round round);
  /// Whether At(round) is still as it was appended.
  bool Whole(Round round) const { return round == 0 || round >= thinned_; }

  /// What can be checked of an order before a record takes it up: it is an owner's, in its turn,
  /// with settings that this program can take.
  Status CheckOrder(const Order& order) const;
  /// A record that returns to an older state says of it what that state's own record says.
  Status CheckRevert(const Body& body) const;
  /// Whether an owner of this run signed the seal.
  Status CheckSeal(const Seal& seal) const;
  /// Whether an owner of this run signed the record: a reset, or a body that a reset certifies.
  Status CertifiedByOwner(const Record& record) const;

  const Record& head() const { return records_.back(); }
  /// The settings after the head. The address stays as they change.
  const SyncConfig& config() const { return config_; }
  /// Their canonical text, as the last order that changed them gave it, or as genesis has it.
  const Bytes& settings() const { return settings_; }
  /// The newest reset; nullptr: none.
  const Record* last_reset() const { return last_reset_ == 0 ? nullptr : &records_[last_reset_]; }
  std::vector<Round> Ancestors(Round round) const;  ///< as Ancestry
  const Record& genesis() const { return records_.front(); }
  RunId run() const;
  Round rounds() const { return head().body.round; }
  /// Requires: round <= rounds().
  const Record& At(Round round) const { return records_[round]; }
  /// All but genesis.
  std::vector<Record> TakeRecords() &&;

  /// Peers that some record listed as members: they need no invite to come back.
  bool WasMember(const PeerId& peer) const { return ever_.contains(peer); }
  bool Banned(const PeerId& peer) const { return banned_.contains(peer); }
  std::uint32_t InviteUses(const Hash& invite) const;
  /// The newest vote of every key in the certificates (R9).
  const std::map<PeerId, Word>& words() const { return words_; }

 private:
  Status Certified(const Record& record) const;
  bool IsOwner(const crypto::PublicKey& key) const;
  void Keep(Record record);

  SyncConfig config_;
  Bytes settings_;
  ReadSettings read_;
  std::vector<crypto::PublicKey> owners_;
  Round last_reset_ = 0;
  std::size_t num_tiles_;
  const Signer* signer_;
  std::deque<Record> records_;
  Round thinned_ = 1;  ///< records from here on are whole, and genesis
  std::set<PeerId> ever_;
  std::set<PeerId> banned_;
  std::map<Hash, std::uint32_t> invite_uses_;
  std::map<PeerId, Word> words_;
};

/// What an owner signs of the tiles of `part.run`, whose hashes are `tiles`.
inline constexpr std::string_view kReducedDomain = "loom reduced";
Bytes PartText(const DecisionId& id, const PartSignature& part, std::span<const Hash> tiles);

}  // namespace loom::collab
