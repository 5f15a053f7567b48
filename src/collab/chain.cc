#include "collab/chain.h"

#include <algorithm>
#include <iterator>

#include "crypto/hash.h"

namespace loom::collab {

Chain::Chain(Record genesis, const SyncConfig& config, std::size_t num_tiles, const Signer& signer,
             ReadSettings read)
    : config_(config), read_(std::move(read)), num_tiles_(num_tiles), signer_(&signer) {
  if (auto content = Genesis::Decode(genesis.body.payload)) {
    owners_ = std::move(content->owners);
    settings_ = std::move(content->spec);
  }
  Keep(std::move(genesis));
}

bool Chain::IsOwner(const crypto::PublicKey& key) const {
  return std::ranges::find(owners_, key) != owners_.end();
}

Status Chain::CheckSeal(const Seal& seal) const {
  if (IsOwner(seal.owner) &&
      signer_->Verify(seal.owner, kSealDomain, seal.Text(run()), seal.signature)) {
    return {};
  }
  return MakeError(Code::kRefused, "no owner key of this run signed the seal");
}

Status Chain::CheckOrder(const Order& order) const {
  if (!IsOwner(order.owner) ||
      !signer_->Verify(order.owner, kOrderDomain, order.Text(run()), order.signature)) {
    return MakeError(Code::kRefused, "no owner key of this run signed the order");
  }
  if (order.number != head().body.orders + 1) {
    return MakeError(Code::kConflict,
                     fmt::format("the order has number {}, the run has taken up {}", order.number,
                                 head().body.orders));
  }
  if (order.revert && *order.revert > rounds()) {
    return MakeError(Code::kInvalid, fmt::format("the order returns to round {}, the newest is {}",
                                                 *order.revert, rounds()));
  }
  if (order.settings.empty()) return {};
  if (!read_) return MakeError(Code::kRefused, "settings cannot be changed here");
  const auto read = read_(settings_, order.settings);
  return read ? Status() : Status(read.error());
}

Status Chain::CheckRevert(const Body& body) const {
  if (!Reverts(body)) return {};
  const Body& target = At(*body.order->revert).body;
  if (body.root == target.root && body.steps == target.steps && body.exponents == target.exponents)
    return {};
  return MakeError(Code::kInvalid,
                   fmt::format("record {}: it returns to round {} with another state than that has",
                               body.round, target.round));
}

std::vector<Round> Chain::Ancestors(Round round) const {
  return Ancestry(round, [this](Round r) -> const Body& { return At(r).body; });
}

Status Chain::CheckGenesis(const Record& genesis, const Signer& signer) {
  const Body& body = genesis.body;
  if (body.kind != Kind::kGenesis || body.round != 0 || body.members.size() != 1) {
    return MakeError(Code::kCorrupt, "the genesis record is not one");
  }
  LOOM_ASSIGN(const Genesis content, Genesis::Decode(body.payload));
  const bool signed_by_owner =
      genesis.owner &&
      std::any_of(content.owners.begin(), content.owners.end(), [&](const auto& key) {
        return signer.Verify(key, kGenesisDomain, genesis.hash.View(), *genesis.owner);
      });
  if (!signed_by_owner) {
    return MakeError(Code::kRefused, "no owner key signed the genesis record",
                     "ask the owner of the run for a new invite");
  }
  return {};
}

RunId Chain::run() const {
  RunId run;
  run.bytes = genesis().hash.bytes;
  return run;
}

std::uint32_t Chain::InviteUses(const Hash& invite) const {
  const auto it = invite_uses_.find(invite);
  return it == invite_uses_.end() ? 0 : it->second;
}

Status Chain::Follows(const Record& record) const {
  if (record.body.parent != head().hash || record.body.round != head().body.round + 1 ||
      (record.body.kind == Kind::kReset ? record.body.era <= head().body.era
                                        : record.body.era != head().body.era)) {
    return MakeError(
        Code::kConflict,
        fmt::format("record {} (parent {}) does not follow record {} ({})", record.body.round,
                    record.body.parent.Short(), head().body.round, head().hash.Short()));
  }
  LOOM_RETURN_IF_ERROR(
      CheckNextBody(head().body, head().hash, run(), config_, num_tiles_, record.body));
  if (record.body.order) {
    LOOM_RETURN_IF_ERROR(CheckOrder(*record.body.order));
  }
  return CheckRevert(record.body);
}

Status Chain::CertifiedByOwner(const Record& record) const {
  const std::string_view domain = record.body.kind == Kind::kReset ? kResetDomain : kCertifyDomain;
  if (record.owner && std::ranges::any_of(owners_, [&](const crypto::PublicKey& key) {
        return signer_->Verify(key, domain, record.hash.View(), *record.owner);
      })) {
    return {};
  }
  return MakeError(Code::kRefused,
                   fmt::format("record {}: no owner key of this run signed it", record.body.round));
}

Status Chain::Certified(const Record& record) const {
  if (record.body.kind == Kind::kReset || record.owner) return CertifiedByOwner(record);
  const DecisionId id{record.body.era, record.body.round, record.body.parent};
  std::set<PeerId> who;
  for (const Vote& vote : record.votes) {
    const Member* member = FindMember(head().body.members, vote.peer);
    if (member == nullptr || vote.term != record.term || vote.body != record.hash ||
        !signer_->Verify(member->key, kVoteDomain, VoteText(id, vote), vote.signature)) {
      return MakeError(Code::kRefused, fmt::format("record {}: the vote of {} is not valid",
                                                   record.body.round, vote.peer.Short()));
    }
    who.insert(vote.peer);
  }
  if (!IsQuorum(head().body.members, who, config_.quorum)) {
    return MakeError(Code::kRefused,
                     fmt::format("record {}: {} votes are no quorum of {} members",
                                 record.body.round, who.size(), head().body.members.size()));
  }
  const std::vector<Hash>& tiles = record.body.tiles;
  for (const PartSignature& part : record.parts) {
    const Member* owner = FindMember(head().body.members, part.owner);
    if (owner == nullptr || part.run.count == 0 || part.run.first >= tiles.size() ||
        part.run.count > tiles.size() - part.run.first ||
        !signer_->Verify(
            owner->key, kReducedDomain,
            PartText(id, part, std::span(tiles).subspan(part.run.first, part.run.count)),
            part.signature)) {
      return MakeError(Code::kRefused,
                       fmt::format("record {}: the word of {} for tiles {} to {} is not valid",
                                   record.body.round, part.owner.Short(), part.run.first,
                                   std::uint64_t{part.run.first} + part.run.count - 1));
    }
  }
  return {};
}

Status Chain::Append(Record record) {
  LOOM_RETURN_IF_ERROR(Follows(record));
  LOOM_RETURN_IF_ERROR(Certified(record));
  Keep(std::move(record));
  return {};
}

Status Chain::AppendOwn(Record record) {
  LOOM_RETURN_IF_ERROR(Follows(record));
  Keep(std::move(record));
  return {};
}

void Chain::ThinOut(Round round) {
  const auto free = [](auto&... lists) { (std::decay_t<decltype(lists)>().swap(lists), ...); };
  for (; thinned_ < std::min(round, rounds()); ++thinned_) {
    Record& record = records_[thinned_];
    Body& body = record.body;
    record.encoded.reset();
    free(record.votes, record.parts, body.members, body.contributions, body.fates, body.tiles,
         body.returned, body.workers, body.invite_uses, body.bans);
  }
}

std::vector<Record> Chain::TakeRecords() && {
  return {std::make_move_iterator(records_.begin() + 1), std::make_move_iterator(records_.end())};
}

void Chain::Keep(Record record) {
  for (const Member& m : record.body.members) ever_.insert(m.id);
  for (const PeerId& p : record.body.bans) banned_.insert(p);
  for (const InviteUse& u : record.body.invite_uses) ++invite_uses_[u.invite];
  // The votes beside an owner's signature are nobody's proof: they were not checked.
  if (record.body.kind != Kind::kReset && !record.owner) {
    const DecisionId id{record.body.era, record.body.round, record.body.parent};
    for (const Vote& vote : record.votes) {
      Word& newest = words_[vote.peer];
      if (vote.seq > newest.seq) newest = Word::Of(id, vote);
    }
  }
  if (record.body.kind == Kind::kReset) last_reset_ = record.body.round;
  if (record.body.order && !record.body.order->settings.empty()) {
    const Bytes& settings = record.body.order->settings;
    if (auto config = read_(settings_, settings)) config_ = std::move(*config);
    settings_ = settings;
  }
  records_.push_back(std::move(record));
}

Bytes PartText(const DecisionId& id, const PartSignature& part, std::span<const Hash> tiles) {
  wire::Writer out;
  id.Encode(out);
  out.Int(part.term);
  out.Int(part.attempt);
  out.Int(part.run.first);
  out.Int(part.run.count);
  out.Id(crypto::MerkleRoot(tiles));
  return std::move(out).Take();
}

}  // namespace loom::collab
