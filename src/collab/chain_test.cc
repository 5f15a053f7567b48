// The chain takes a record only with a quorum of valid votes of the parent's members for exactly
// this body, and only as the next link (R1, R9, R10). Real Ed25519 keys.
#include "collab/chain.h"

#include <gtest/gtest.h>

#include "crypto/hash.h"

namespace loom::collab {
namespace {

constexpr std::size_t kTiles = 2;

crypto::SigningKey KeyAt(std::uint64_t n) {
  crypto::Seed seed;
  seed.bytes = crypto::Sha256(AsBytes(fmt::format("chain test {}", n))).bytes;
  return crypto::SigningKey::FromSeed(seed);
}

SyncConfig Config() {
  SyncConfig config;
  config.inner_steps = 2;
  config.batch = 2;
  return config;
}

class ChainTest : public ::testing::Test {
 protected:
  ChainTest() {
    for (std::uint64_t n = 0; n < 5; ++n) keys_.push_back(KeyAt(n));
    Genesis genesis;
    genesis.owners = {keys_[0].public_key()};
    genesis.name = "test";
    const Body body =
        GenesisBody(genesis.Encode(), keys_[0].public_key(), crypto::Sha256(AsBytes("w")), config_);
    genesis_ = Record::FromBody(MakeBlob(body.Encode())).value();
    genesis_.owner = keys_[0].Sign(Chain::kGenesisDomain, genesis_.hash.View());
    signer_ = std::make_unique<KeySigner>(keys_[0]);
    chain_ = std::make_unique<Chain>(genesis_, config_, kTiles, *signer_);
  }

  /// The next record: nobody worked, `stay` of the members remain and one may join.
  Record Next(std::optional<std::uint64_t> join = {}, std::size_t leave = 99) const {
    const Record& head = chain_->head();
    Choices choices;
    for (std::size_t i = 0; i < head.body.members.size(); ++i) {
      if (i != leave) choices.stay.push_back(head.body.members[i].id);
    }
    if (join) choices.join.push_back({keys_[*join].public_key(), crypto::Sha256(AsBytes("inv"))});
    choices.root = head.body.root;
    const Body body = NextBody(head.body, head.hash, chain_->run(), config_, choices);
    return Record::FromBody(MakeBlob(body.Encode())).value();
  }

  Vote VoteOf(std::uint64_t key, const Record& record, Term term = 0, std::uint64_t seq = 1) const {
    Vote vote;
    vote.peer = keys_[key].id();
    vote.term = term;
    vote.body = record.hash;
    vote.seq = seq;
    const DecisionId id{record.body.era, record.body.round, record.body.parent};
    vote.signature = keys_[key].Sign(kVoteDomain, VoteText(id, vote));
    return vote;
  }

  Record Voted(Record record, const std::vector<std::uint64_t>& voters) const {
    for (const std::uint64_t k : voters) record.votes.push_back(VoteOf(k, record));
    return record;
  }

  void Append(Record record) {
    const Status ok = chain_->Append(std::move(record));
    ASSERT_TRUE(ok.ok()) << ok.error().ToString();
  }

  /// Members 0, 1 and 2, three records.
  void ListThree() {
    Append(Voted(Next(1), {0}));
    Append(Voted(Next(2), {0, 1}));
    Append(Voted(Next(), {0, 2}));
  }

  SyncConfig config_ = Config();
  std::vector<crypto::SigningKey> keys_;
  Record genesis_;
  std::unique_ptr<KeySigner> signer_;
  std::unique_ptr<Chain> chain_;
};

TEST_F(ChainTest, ItGrowsByRecordsWithAQuorumOfVotes) {
  ListThree();
  EXPECT_EQ(chain_->rounds(), 3U);
  EXPECT_EQ(chain_->head().body.members.size(), 3U);
  EXPECT_TRUE(chain_->WasMember(keys_[2].id()));
  EXPECT_FALSE(chain_->WasMember(keys_[3].id()));
  EXPECT_EQ(chain_->InviteUses(crypto::Sha256(AsBytes("inv"))), 2U);
}

TEST_F(ChainTest, OnlyTheOwnersSignatureMakesAGenesis) {
  EXPECT_TRUE(Chain::CheckGenesis(genesis_, *signer_).ok());
  Record none = genesis_;
  none.owner.reset();
  EXPECT_FALSE(Chain::CheckGenesis(none, *signer_).ok());
  Record other = genesis_;
  other.owner = keys_[1].Sign(Chain::kGenesisDomain, genesis_.hash.View());
  EXPECT_FALSE(Chain::CheckGenesis(other, *signer_).ok());
  Record domain = genesis_;
  domain.owner = keys_[0].Sign(kVoteDomain, genesis_.hash.View());
  EXPECT_FALSE(Chain::CheckGenesis(domain, *signer_).ok());
  EXPECT_FALSE(Chain::CheckGenesis(Next(), *signer_).ok());
}

TEST_F(ChainTest, R10AWrongQuorumIsRefused) {
  ListThree();
  EXPECT_FALSE(chain_->Append(Voted(Next(), {})).ok());
  EXPECT_FALSE(chain_->Append(Voted(Next(), {1})).ok());
  EXPECT_FALSE(chain_->Append(Voted(Next(), {1, 1})).ok()) << "one member twice";
  EXPECT_FALSE(chain_->Append(Voted(Next(), {1, 3})).ok()) << "a stranger";
  EXPECT_FALSE(chain_->Append(Voted(Next(), {0, 1, 3})).ok()) << "a stranger beside a quorum";
  EXPECT_TRUE(chain_->Append(Voted(Next(), {1, 2})).ok());
}

TEST_F(ChainTest, R10OfTwoTheSeniorsVoteIsAQuorumAndTheJuniorsIsNot) {
  Append(Voted(Next(1), {0}));
  EXPECT_FALSE(chain_->Append(Voted(Next(), {1})).ok());
  EXPECT_TRUE(chain_->Append(Voted(Next(), {0})).ok());
}

TEST_F(ChainTest, AMembersLastVoteCountsByTheParentsList) {
  ListThree();
  Append(Voted(Next({}, 2), {0, 2}));  // 2 votes for its own leaving
  EXPECT_FALSE(chain_->Append(Voted(Next(), {1, 2})).ok()) << "it has no vote any more";
  EXPECT_TRUE(chain_->Append(Voted(Next(), {0, 1})).ok());
}

TEST_F(ChainTest, R1OwnersSignaturesAreCheckedAgainstTheTiles) {
  ListThree();
  const Body& parent = chain_->head().body;
  const WorkerEntry& worker = parent.workers.at(0);
  Choices choices;
  for (const Member& m : parent.members) choices.stay.push_back(m.id);
  const std::uint64_t samples = CountSamples(worker.issued);
  choices.contributions.push_back(
      {worker.worker, worker.host, samples, samples, 1, worker.issued, Hash{}});
  choices.tiles = {crypto::Sha256(AsBytes("a")), crypto::Sha256(AsBytes("b"))};
  choices.root = crypto::Sha256(AsBytes("next"));
  const Body body = NextBody(parent, chain_->head().hash, chain_->run(), config_, choices);
  Record good = Voted(Record::FromBody(MakeBlob(body.Encode())).value(), {0, 1});
  const DecisionId id{body.era, body.round, body.parent};
  PartSignature part{keys_[2].id(), 0, 1, {1, 1}, {}};
  part.signature =
      keys_[2].Sign(kReducedDomain, PartText(id, part, std::span(body.tiles).subspan(1, 1)));
  good.parts.push_back(part);
  const auto refused = [&](auto&& change) {
    Record record = good;
    change(record.parts[0]);
    return !chain_->Append(std::move(record)).ok();
  };
  EXPECT_TRUE(refused([](PartSignature& p) { p.run.first = 0; }));
  EXPECT_TRUE(refused([](PartSignature& p) { p.run.count = 2; }));
  EXPECT_TRUE(refused([](PartSignature& p) { p.run = {0xFFFFFFFF, 2}; }));
  EXPECT_TRUE(refused([](PartSignature& p) { ++p.attempt; }));
  EXPECT_TRUE(refused([&](PartSignature& p) { p.owner = keys_[1].id(); }));
  EXPECT_TRUE(refused([&](PartSignature& p) { p.owner = keys_[4].id(); }));
  const auto again = Record::Decode(good.Encode());
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->parts, good.parts);
  Append(good);
}

TEST_F(ChainTest, R1ForgedVotesAreRefused) {
  ListThree();
  const Record good = Voted(Next(), {0, 1});
  const auto refused = [&](auto&& change) {
    Record record = good;
    change(record);
    return !chain_->Append(std::move(record)).ok() && chain_->rounds() == 3;
  };
  for (std::size_t byte = 0; byte < 64; byte += 7) {
    EXPECT_TRUE(refused([&](Record& r) { r.votes[0].signature.bytes[byte] ^= std::byte{0x10}; }));
  }
  EXPECT_TRUE(refused([&](Record& r) { r.votes[1].peer = keys_[2].id(); }));
  EXPECT_TRUE(refused([](Record& r) { ++r.votes[0].seq; }));
  EXPECT_TRUE(refused([](Record& r) { ++r.term; }));
  EXPECT_TRUE(refused([](Record& r) {
    ++r.term;
    for (Vote& v : r.votes) ++v.term;
  }));
  EXPECT_TRUE(refused([&](Record& r) {  // a good vote of another decision
    r.votes[0] = chain_->At(3).votes[0];
  }));
  EXPECT_TRUE(refused([&](Record& r) {  // a good vote for another body of this decision
    r.votes[0] = VoteOf(0, Next({}, 2));
  }));
  EXPECT_TRUE(refused([&](Record& r) {  // votes of two terms do not add up
    r.votes[1] = VoteOf(1, r, 1);
  }));
  EXPECT_TRUE(chain_->Append(good).ok());
}

TEST_F(ChainTest, R1AWrongParentIsRefused) {
  ListThree();
  const Record fourth = Voted(Next(), {0, 1});
  const Record other = Voted(Next(3), {0, 1});
  EXPECT_FALSE(chain_->Append(chain_->At(3)).ok()) << "a record twice";
  EXPECT_FALSE(chain_->Append(chain_->At(1)).ok()) << "an old record";
  Append(fourth);
  EXPECT_FALSE(chain_->Append(other).ok()) << "the other record of the round";
  const Record fifth = Voted(Next(), {0, 1});
  Chain behind(genesis_, config_, kTiles, *signer_);
  EXPECT_FALSE(behind.Append(fifth).ok()) << "records are missing between";
  for (Round r = 1; r <= 4; ++r) EXPECT_TRUE(behind.Append(chain_->At(r)).ok()) << r;
  EXPECT_TRUE(behind.Append(fifth).ok());
}

// A body that does not follow is refused even with everybody's votes; the own disk is checked too.
TEST_F(ChainTest, R1ATamperedBodyIsRefusedWithAnyVotes) {
  ListThree();
  const Body good = Next().body;
  const auto refused = [&](auto&& change) {
    Body body = good;
    change(body);
    const Record record = Voted(Record::FromBody(MakeBlob(body.Encode())).value(), {0, 1, 2});
    return !chain_->Append(record).ok() && !chain_->AppendOwn(record).ok();
  };
  EXPECT_TRUE(refused([](Body& b) { ++b.tokens; }));
  EXPECT_TRUE(refused([](Body& b) { ++b.next_sample; }));
  EXPECT_TRUE(refused([](Body& b) { b.root.bytes[0] ^= std::byte{1}; }));
  EXPECT_TRUE(refused([](Body& b) { b.tiles.resize(kTiles); }));
  EXPECT_TRUE(refused([](Body& b) { b.run.bytes[3] ^= std::byte{1}; }));
  EXPECT_TRUE(refused([](Body& b) { b.members[0].since = 1; }));
  EXPECT_TRUE(refused([](Body& b) { ++b.era; }));
}

// Any flipped bit of an encoded record: it does not decode, does not follow or is not certified.
TEST_F(ChainTest, R1AnyFlippedBitOfARecordIsFound) {
  ListThree();
  const Bytes good = Voted(Next(), {0, 1}).Encode();
  for (std::size_t at = 0; at < good.size(); ++at) {
    Bytes bytes = good;
    bytes[at] ^= std::byte{0x04};
    auto record = Record::Decode(bytes);
    if (!record) continue;
    EXPECT_FALSE(chain_->Append(std::move(*record)).ok()) << "byte " << at;
  }
  EXPECT_TRUE(chain_->Append(Record::Decode(good).value()).ok());
}

TEST_F(ChainTest, R9TheHighestWordOfEveryKeyIsKnown) {
  Append([&] {
    Record r = Next(1);
    r.votes.push_back(VoteOf(0, r, 0, 17));
    return r;
  }());
  Append([&] {
    Record r = Next();
    r.votes.push_back(VoteOf(0, r, 0, 12));
    r.votes.push_back(VoteOf(1, r, 0, 3));
    return r;
  }());
  EXPECT_EQ(chain_->words().at(keys_[0].id()).seq, 17U);
  EXPECT_EQ(chain_->words().at(keys_[1].id()).seq, 3U);
}

}  // namespace
}  // namespace loom::collab
