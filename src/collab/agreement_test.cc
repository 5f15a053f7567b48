// The agreement core by hand: each rule once, and the traces that broke earlier wordings of the
// rules (1, 2, 4). Every interleaving of small configurations is in agreement_model_test.cc.
#include "collab/agreement.h"

#include <gtest/gtest.h>

#include "collab/agreement_explorer.h"

namespace loom::collab {
namespace {

using testing::MakeMembers;
using testing::TrustingSigner;

Blob MakeBody(const std::vector<Member>& next_members, std::string_view what) {
  Body body;
  body.round = 1;
  body.members = next_members;
  body.payload = ToBytes(AsBytes(what));
  return MakeBlob(body.Encode());
}

template <class T>
std::vector<T> All(const Actions& actions) {
  std::vector<T> found;
  for (const Action& action : actions) {
    if (const auto* t = std::get_if<T>(&action)) found.push_back(*t);
  }
  return found;
}

template <class T>
bool Has(const Actions& actions) {
  return !All<T>(actions).empty();
}

DecisionId FirstRound() {
  return {.era = 0, .round = 1, .parent = crypto::Sha256(AsBytes("genesis"))};
}

/// One member with its disk. Every body it is shown is right.
struct Peer {
  Peer(const std::vector<Member>& list, std::size_t self, const Signer& sign,
       QuorumRule quorum = QuorumRule::kMajority)
      : members(list),
        id(list[self].id),
        rule(quorum),
        signer(&sign),
        core(FirstRound(), list, id, quorum, sign, disk) {}

  void Restart() { core = Agreement(FirstRound(), members, id, rule, *signer, disk); }

  /// Syncs every write, checks every body, and returns what is left to do outside.
  Actions Settle(Actions todo) {
    Actions rest;
    for (std::size_t k = 0; k < todo.size(); ++k) {
      Actions more;
      const Action action = todo[k];
      if (const auto* write = std::get_if<PersistVoter>(&action)) {
        EXPECT_TRUE(disk.Apply(write->entry).ok());
        core.OnPersisted(write->token, more);
      } else if (const auto* check = std::get_if<CheckBody>(&action)) {
        core.OnBodyChecked(check->hash, more);
      } else {
        rest.push_back(action);
      }
      todo.insert(todo.end(), more.begin(), more.end());
    }
    return rest;
  }

  Actions Lead(Term term) {
    Actions out;
    core.Lead(term, out);
    return Settle(out);
  }
  Actions Choose(Term term, Blob body) {
    Actions out;
    core.Choose(term, std::move(body), out);
    return Settle(out);
  }
  Actions Hear(const SendPrepare& m, const Peer& from) {
    Actions out;
    core.OnPrepare(from.id, m.term, out);
    return Settle(out);
  }
  Actions Hear(const SendPromise& m) {
    Actions out;
    core.OnPromise(m.promise, out);
    return Settle(out);
  }
  Actions Hear(const SendProposal& m, const Peer& from) {
    Actions out;
    core.OnProposal(from.id, m.term, m.body, out);
    return Settle(out);
  }
  Actions Hear(const SendVote& m) {
    Actions out;
    core.OnVote(m.vote, out);
    return Settle(out);
  }

  std::vector<Member> members;
  PeerId id;
  QuorumRule rule;
  const Signer* signer;
  VoterState disk;
  Agreement core;
};

class AgreementTest : public ::testing::Test {
 protected:
  TrustingSigner signer_;
  std::vector<Member> three_ = MakeMembers(3);
  Blob x_ = MakeBody(three_, "x"), y_ = MakeBody(three_, "y");
  // Round 1: term 0 is led by members[1], term 1 by members[2], term 2 by members[0].
  Peer a_{three_, 1, signer_}, b_{three_, 2, signer_}, c_{three_, 0, signer_};
};

TEST_F(AgreementTest, R2TheLeaderWritesBeforeItProposesAndNeverTwiceInATerm) {
  Actions out;
  ASSERT_TRUE(a_.core.MayLead(0));
  EXPECT_FALSE(b_.core.MayLead(0));
  a_.core.Lead(0, out);
  ASSERT_TRUE(Has<MayChoose>(out));
  out.clear();
  a_.core.Choose(0, x_, out);
  EXPECT_TRUE(Has<PersistVoter>(out));
  EXPECT_FALSE(Has<SendProposal>(out));
  EXPECT_FALSE(a_.core.OwnProposal());
  const Actions later = a_.Settle(out);
  ASSERT_EQ(All<SendProposal>(later).size(), 1U);
  ASSERT_TRUE(a_.core.OwnProposal());
  EXPECT_EQ(*a_.core.OwnProposal()->body, *x_);
  a_.Restart();
  EXPECT_FALSE(a_.core.MayLead(0));
  EXPECT_TRUE(a_.core.MayLead(3));
}

TEST_F(AgreementTest, R2WhatWasOpenAtTheEndIsNotLedAgain) {
  a_.disk.Reopen(FirstRound());  // it may have sent plans, of which no disk knows
  a_.Restart();
  EXPECT_FALSE(a_.core.MayLead(0));
  EXPECT_TRUE(a_.core.MayLead(3));
  b_.disk.seq = 7;
  b_.disk.promised = 9;  // in an older decision
  b_.disk.id.round = 0;
  b_.disk.Reopen(FirstRound());
  b_.Restart();
  EXPECT_TRUE(b_.core.MayLead(1));
  EXPECT_EQ(b_.disk.seq, 7U);
}

TEST_F(AgreementTest, R3WordsLeaveOnlyFromTheDisk) {
  Actions out;
  c_.core.OnProposal(a_.id, 0, x_, out);
  ASSERT_EQ(All<CheckBody>(out).size(), 1U);
  out.clear();
  c_.core.OnBodyChecked(BodyHash(*x_), out);
  ASSERT_EQ(All<PersistVoter>(out).size(), 1U);
  EXPECT_FALSE(Has<SendVote>(out));
  EXPECT_FALSE(c_.core.DurableVote());
  // Asked for a promise meanwhile: it waits for the disk too, and tells of the vote before it.
  Actions asked;
  c_.core.OnPrepare(b_.id, 1, asked);
  EXPECT_FALSE(Has<SendPromise>(asked));
  const Actions vote = c_.Settle(out);
  ASSERT_EQ(All<SendVote>(vote).size(), 1U);
  EXPECT_TRUE(c_.core.DurableVote());
  const Actions promise = c_.Settle(asked);
  ASSERT_EQ(All<SendPromise>(promise).size(), 1U);
  ASSERT_TRUE(All<SendPromise>(promise)[0].promise.last);
  EXPECT_EQ(All<SendPromise>(promise)[0].promise.last->vote.body, BodyHash(*x_));
}

TEST_F(AgreementTest, R3ACrashBeforeTheSyncLosesOnlyWhatNobodyHeard) {
  Actions out;
  c_.core.OnProposal(a_.id, 0, x_, out);
  c_.core.OnBodyChecked(BodyHash(*x_), out);
  c_.Restart();
  EXPECT_FALSE(c_.core.last_vote());
  EXPECT_EQ(c_.core.promised(), 0U);
  EXPECT_TRUE(Has<SendVote>(c_.Hear(SendProposal{0, x_}, a_)));
}

TEST_F(AgreementTest, R3ARestoredMemberKeepsPromiseVoteAndSequence) {
  c_.Hear(SendProposal{0, x_}, a_);
  c_.Hear(SendPrepare{1}, b_);
  const std::uint64_t seq = c_.core.seq();
  c_.Restart();
  EXPECT_EQ(c_.core.promised(), 1U);
  EXPECT_EQ(c_.core.seq(), seq);
  ASSERT_TRUE(c_.core.DurableVote());
  EXPECT_EQ(c_.core.DurableVote()->body, BodyHash(*x_));
  EXPECT_TRUE(Has<SendNack>(c_.Hear(SendProposal{0, y_}, a_)));
  const Actions again = c_.Hear(SendPrepare{1}, b_);
  ASSERT_EQ(All<SendPromise>(again).size(), 1U);
  EXPECT_EQ(All<SendPromise>(again)[0].promise.last->vote.body, BodyHash(*x_));
  EXPECT_GT(All<SendPromise>(again)[0].promise.seq, seq);
}

TEST_F(AgreementTest, R3OneVoteATerm) {
  EXPECT_TRUE(Has<SendVote>(c_.Hear(SendProposal{0, x_}, a_)));
  const Actions other = c_.Hear(SendProposal{0, y_}, a_);
  EXPECT_FALSE(Has<SendVote>(other));
  EXPECT_FALSE(Has<CheckBody>(other));
}

TEST_F(AgreementTest, R4TheVoteOfTheHighestTermIsProposedUnchanged) {
  a_.Hear(SendProposal{0, x_}, a_);
  b_.Hear(SendProposal{1, y_}, b_);
  c_.Lead(2);
  const Actions from_a = a_.Hear(SendPrepare{2}, c_);
  const Actions from_b = b_.Hear(SendPrepare{2}, c_);
  ASSERT_TRUE(Has<SendPromise>(from_a) && Has<SendPromise>(from_b));
  Peer same = c_;
  // Its own promise and one that voted are a quorum; the body is not its to choose.
  const Actions proposed = same.Hear(All<SendPromise>(from_b)[0]);
  EXPECT_FALSE(Has<MayChoose>(proposed));
  ASSERT_EQ(All<SendProposal>(proposed).size(), 1U);
  EXPECT_EQ(*All<SendProposal>(proposed)[0].body, *y_);
  EXPECT_EQ(*All<SendProposal>(c_.Hear(All<SendPromise>(from_a)[0]))[0].body, *x_);
}

TEST_F(AgreementTest, R4OnlyWhenNobodyVotedMayItChoose) {
  b_.Lead(1);
  const Actions promise = a_.Hear(SendPrepare{1}, b_);
  const Actions out = b_.Hear(All<SendPromise>(promise)[0]);
  ASSERT_EQ(All<MayChoose>(out).size(), 1U);
  EXPECT_EQ(All<MayChoose>(out)[0].term, 1U);
}

TEST_F(AgreementTest, R4AQuorumOfEqualVotesAmongThePromisesIsTheRecord) {
  a_.Hear(SendProposal{0, x_}, a_);
  c_.Hear(SendProposal{0, x_}, a_);
  Actions lead;
  b_.core.Lead(1, lead);  // its own promise is not on disk yet: the other two are the quorum
  EXPECT_TRUE(b_.Hear(All<SendPromise>(a_.Hear(SendPrepare{1}, b_))[0]).empty());
  const Actions out = b_.Hear(All<SendPromise>(c_.Hear(SendPrepare{1}, b_))[0]);
  EXPECT_FALSE(Has<SendProposal>(out));
  ASSERT_EQ(All<Decided>(out).size(), 1U);
  EXPECT_EQ(All<Decided>(out)[0].record.hash, BodyHash(*x_));
  EXPECT_EQ(All<Decided>(out)[0].record.term, 0U);
}

TEST_F(AgreementTest, VotesAndBodyInAnyOrderMakeTheRecord) {
  const Actions from_a = a_.Hear(SendProposal{0, x_}, a_);
  const Actions from_c = c_.Hear(SendProposal{0, x_}, a_);
  b_.Hear(All<SendVote>(from_a)[0]);
  EXPECT_FALSE(Has<Decided>(b_.Hear(All<SendVote>(from_c)[0])))
      << "votes for a body nobody has shown";
  const Actions out = b_.Hear(SendProposal{0, x_}, a_);
  ASSERT_EQ(All<Decided>(out).size(), 1U);
  const Record record = All<Decided>(out)[0].record;
  EXPECT_EQ(record.hash, BodyHash(*x_));
  EXPECT_EQ(record.votes.size(), 2U);
  EXPECT_TRUE(b_.core.decided());
}

TEST_F(AgreementTest, R8TwoVotesOfOneTermAreEvidence) {
  const Vote for_x{.peer = a_.id, .term = 0, .body = BodyHash(*x_), .seq = 1, .signature = {}};
  const Vote for_y{.peer = a_.id, .term = 0, .body = BodyHash(*y_), .seq = 2, .signature = {}};
  EXPECT_FALSE(Has<Evidence>(c_.Hear(SendVote{for_x})));
  EXPECT_FALSE(Has<Evidence>(c_.Hear(SendVote{for_x}))) << "the same word again is no lie";
  const Actions out = c_.Hear(SendVote{for_y});
  ASSERT_EQ(All<Evidence>(out).size(), 1U);
  EXPECT_EQ(All<Evidence>(out)[0].first, for_x);
  EXPECT_EQ(All<Evidence>(out)[0].second, for_y);
  EXPECT_EQ(All<Evidence>(out)[0].id, FirstRound());
  EXPECT_EQ(c_.core.votes(), std::vector<Vote>{for_x}) << "the first word counts, once";
}

TEST_F(AgreementTest, R8TwoThirdsNeedsAllOfThree) {
  Peer p(three_, 0, signer_, QuorumRule::kTwoThirds);
  const Actions own = p.Hear(SendProposal{0, x_}, a_);
  EXPECT_FALSE(Has<Decided>(own));
  Vote vote = All<SendVote>(own)[0].vote;
  vote.peer = a_.id;
  EXPECT_FALSE(Has<Decided>(p.Hear(SendVote{vote})));
  vote.peer = b_.id;
  EXPECT_TRUE(Has<Decided>(p.Hear(SendVote{vote})));
}

TEST_F(AgreementTest, ALateLeaderIsToldThePromise) {
  c_.Hear(SendPrepare{1}, b_);
  const Actions proposal = c_.Hear(SendProposal{0, x_}, a_);
  ASSERT_EQ(All<SendNack>(proposal).size(), 1U);
  EXPECT_EQ(All<SendNack>(proposal)[0].to, a_.id);
  EXPECT_EQ(All<SendNack>(proposal)[0].promised, 1U);
  c_.Lead(2);
  const Actions prepare = c_.Hear(SendPrepare{1}, b_);
  ASSERT_EQ(All<SendNack>(prepare).size(), 1U);
  EXPECT_EQ(All<SendNack>(prepare)[0].promised, 2U);
}

TEST_F(AgreementTest, WhatWasSaidIsSaidAgainWhenAsked) {
  const Actions first = c_.Hear(SendProposal{0, x_}, a_);
  const Actions second = c_.Hear(SendProposal{0, x_}, a_);
  ASSERT_EQ(All<SendVote>(second).size(), 1U);
  EXPECT_EQ(All<SendVote>(second)[0].vote, All<SendVote>(first)[0].vote);
  const Actions promise = c_.Hear(SendPrepare{1}, b_);
  const Actions again = c_.Hear(SendPrepare{1}, b_);
  ASSERT_EQ(All<SendPromise>(again).size(), 1U);
  EXPECT_EQ(All<SendPromise>(again)[0].promise.seq, All<SendPromise>(promise)[0].promise.seq);
}

TEST_F(AgreementTest, OnlyTheLeaderOfATermIsHeardInIt) {
  EXPECT_TRUE(c_.Hear(SendProposal{0, x_}, b_).empty());
  EXPECT_TRUE(c_.Hear(SendPrepare{1}, a_).empty());
  EXPECT_TRUE(c_.Hear(SendPrepare{0}, a_).empty()) << "term 0 needs no preparation";
}

TEST_F(AgreementTest, R7AnEntryOfAnotherDecisionStartsANewStateAndKeepsTheSequence) {
  c_.Hear(SendProposal{0, x_}, a_);
  c_.Hear(SendPrepare{1}, b_);
  const VoterState old = c_.disk;
  ASSERT_EQ(old.seq, 2U);
  const DecisionId next{.era = 0, .round = 2, .parent = BodyHash(*x_)};
  Agreement second(next, three_, c_.id, QuorumRule::kMajority, signer_, old);
  EXPECT_EQ(second.promised(), 0U);
  EXPECT_FALSE(second.last_vote());
  EXPECT_EQ(second.seq(), 2U);
  Actions out;
  second.OnPrepare(LeaderOf(three_, 2, 1), 1, out);
  ASSERT_EQ(All<PersistVoter>(out).size(), 1U);
  VoterState disk = old;
  ASSERT_TRUE(disk.Apply(All<PersistVoter>(out)[0].entry).ok());
  EXPECT_EQ(disk.id, next);
  EXPECT_EQ(disk.promised, 1U);
  EXPECT_EQ(disk.seq, 3U);
  EXPECT_FALSE(disk.vote);
}

TEST_F(AgreementTest, ADamagedEntryIsAnErrorAndChangesNothing) {
  Actions out;
  c_.core.OnPrepare(b_.id, 1, out);
  Bytes entry = All<PersistVoter>(out)[0].entry;
  VoterState state;
  EXPECT_FALSE(state.Apply(ByteView(entry).first(entry.size() - 1)).ok());
  entry.push_back(std::byte{0});
  EXPECT_FALSE(state.Apply(entry).ok());
  entry.pop_back();
  entry[0] = std::byte{9};
  EXPECT_FALSE(state.Apply(entry).ok());
  EXPECT_FALSE(state.Apply({}).ok());
  EXPECT_EQ(state.promised, 0U);
  EXPECT_EQ(state.id, DecisionId{});
}

TEST_F(AgreementTest, PromisesSurviveTheWire) {
  c_.Hear(SendProposal{0, x_}, a_);
  const Promise promise = All<SendPromise>(c_.Hear(SendPrepare{1}, b_))[0].promise;
  wire::Writer out;
  promise.Encode(out);
  wire::Reader in(out.bytes());
  const Promise read = Promise::Decode(in);
  ASSERT_TRUE(in.Finish("promise").ok());
  EXPECT_EQ(read.peer, promise.peer);
  EXPECT_EQ(read.term, promise.term);
  EXPECT_EQ(read.seq, promise.seq);
  ASSERT_TRUE(read.last);
  EXPECT_EQ(read.last->vote, promise.last->vote);
  EXPECT_EQ(*read.last->body, *x_);
  wire::Reader cut(ByteView(out.bytes()).first(out.bytes().size() / 2));
  Promise::Decode(cut);
  EXPECT_FALSE(cut.Finish("promise").ok());
}

// A proposes X in term 0. B, with promises of A and B, proposes Y in term 1; B and C vote Y:
// record. C must not vote for the old X, and when it leads term 2 with A it finds Y.
TEST_F(AgreementTest, Trace1AVoteRaisesThePromise) {
  Actions lead;
  a_.core.Lead(0, lead);
  b_.Lead(1);
  const Actions promise = a_.Hear(SendPrepare{1}, b_);
  b_.Hear(All<SendPromise>(promise)[0]);
  const Actions proposed = b_.Choose(1, y_);
  ASSERT_EQ(All<SendProposal>(proposed).size(), 1U);
  const Actions voted = c_.Hear(All<SendProposal>(proposed)[0], b_);
  ASSERT_EQ(All<SendVote>(voted).size(), 1U);
  ASSERT_TRUE(Has<Decided>(b_.Hear(All<SendVote>(voted)[0])));

  EXPECT_EQ(c_.core.promised(), 1U);
  EXPECT_TRUE(Has<SendNack>(c_.Hear(SendProposal{0, x_}, a_)));
  c_.Restart();
  EXPECT_EQ(c_.core.promised(), 1U);
  EXPECT_TRUE(Has<SendNack>(c_.Hear(SendProposal{0, x_}, a_)));
  c_.Lead(2);
  const Actions second = a_.Hear(SendPrepare{2}, c_);
  const Actions out = c_.Hear(All<SendPromise>(second)[0]);
  ASSERT_EQ(All<SendProposal>(out).size(), 1U);
  EXPECT_EQ(*All<SendProposal>(out)[0].body, *y_);
}

// A and B certify Y; B learns it and restarts. With the record on disk it is in the next decision,
// where nothing of this one meets it; what it must never be is in this one without its vote.
TEST_F(AgreementTest, Trace2AVoteIsOnDiskUntilTheRecordIs) {
  const Actions proposed = [&] {
    b_.Lead(1);
    b_.Hear(All<SendPromise>(c_.Hear(SendPrepare{1}, b_))[0]);
    return b_.Choose(1, y_);
  }();
  c_.Hear(All<SendProposal>(proposed)[0], b_);
  c_.Restart();
  ASSERT_TRUE(c_.core.last_vote());
  EXPECT_TRUE(Has<SendNack>(c_.Hear(SendProposal{0, x_}, a_)));
  // The first entry of the next decision ends the memory of this one: hence the record before it.
  const DecisionId next{.era = 0, .round = 2, .parent = BodyHash(*y_)};
  Agreement second(next, three_, c_.id, QuorumRule::kMajority, signer_, c_.disk);
  Actions out;
  second.OnPrepare(LeaderOf(three_, 2, 1), 1, out);
  ASSERT_TRUE(c_.disk.Apply(All<PersistVoter>(out)[0].entry).ok());
  c_.Restart();
  EXPECT_FALSE(c_.core.last_vote());
  EXPECT_EQ(c_.core.promised(), 0U);
}

// Of two, the senior votes for its own delisting: a record by the tie-break alone. It keeps serving
// its vote, from which the junior gets the record; then the junior decides alone.
TEST_F(AgreementTest, Trace4TheSeniorOfTwoDelistsItself) {
  const std::vector<Member> two = MakeMembers(2);
  const std::vector<Member> one = {two[1]};
  const Blob leave = MakeBody(one, "the senior leaves");
  Peer senior(two, 0, signer_);
  Peer junior(two, 1, signer_);
  const Actions own = senior.Hear(SendProposal{0, leave}, junior);
  ASSERT_TRUE(Has<Decided>(own));
  Peer alone = junior;
  EXPECT_FALSE(Has<Decided>(alone.Hear(SendProposal{0, leave}, junior)))
      << "the junior is half, not senior";
  alone.Restart();
  ASSERT_EQ(All<SendVote>(senior.Hear(SendProposal{0, leave}, junior)).size(), 0U)
      << "it has decided";
  ASSERT_TRUE(senior.core.DurableVote());
  EXPECT_FALSE(Has<Decided>(alone.Hear(SendProposal{0, leave}, junior)));
  ASSERT_TRUE(Has<Decided>(alone.Hear(SendVote{*senior.core.DurableVote()})));

  const DecisionId next{.era = 0, .round = 2, .parent = BodyHash(*leave)};
  Agreement gone(next, one, two[0].id, QuorumRule::kMajority, signer_, senior.disk);
  EXPECT_FALSE(gone.MayLead(0));
  Actions out;
  gone.OnPrepare(two[1].id, 1, out);
  gone.OnProposal(two[1].id, 0, leave, out);
  EXPECT_TRUE(out.empty());
  Agreement left(next, one, two[1].id, QuorumRule::kMajority, signer_, alone.disk);
  EXPECT_TRUE(left.MayLead(0));
}

TEST(AgreementSignatures, ForgedAndForeignWordsCountForNothing) {
  std::vector<crypto::SigningKey> keys;
  std::vector<Member> members;
  for (int i = 0; i < 3; ++i) {
    keys.push_back(crypto::SigningKey::Generate());
    members.push_back(
        {.key = keys.back().public_key(), .id = keys.back().id(), .since = static_cast<Round>(i)});
  }
  const Blob x = MakeBody(members, "x");
  const Blob y = MakeBody(members, "y");
  const KeySigner sign0(keys[0]), sign1(keys[1]), sign2(keys[2]);
  Peer c(members, 0, sign0), a(members, 1, sign1), b(members, 2, sign2);

  const Vote good = All<SendVote>(a.Hear(SendProposal{0, x}, a))[0].vote;
  Vote of_another = good;
  of_another.peer = b.id;
  Vote changed = good;
  changed.body = BodyHash(*y);
  EXPECT_TRUE(c.Hear(SendVote{of_another}).empty());
  EXPECT_TRUE(c.Hear(SendVote{changed}).empty());
  EXPECT_TRUE(c.core.votes().empty());
  // R7: the same words about another parent do not verify.
  DecisionId other = FirstRound();
  other.parent = BodyHash(*y);
  Agreement elsewhere(other, members, c.id, QuorumRule::kMajority, sign0, {});
  Actions out;
  elsewhere.OnVote(good, out);
  EXPECT_TRUE(elsewhere.votes().empty());
  c.Hear(SendVote{good});
  EXPECT_EQ(c.core.votes().size(), 1U);

  b.Lead(1);
  const Promise promise = All<SendPromise>(a.Hear(SendPrepare{1}, b))[0].promise;
  Promise hides_the_vote = promise;
  hides_the_vote.last.reset();
  EXPECT_TRUE(b.Hear(SendPromise{b.id, hides_the_vote}).empty());
  ASSERT_TRUE(promise.last);
  Promise other_body = promise;
  other_body.last = CastVote{promise.last->vote, y};
  EXPECT_TRUE(b.Hear(SendPromise{b.id, other_body}).empty());
  EXPECT_TRUE(b.core.Preparing(1));
  const Actions proposed = b.Hear(SendPromise{b.id, promise});
  ASSERT_EQ(All<SendProposal>(proposed).size(), 1U);
  EXPECT_EQ(*All<SendProposal>(proposed)[0].body, *x);
}

}  // namespace
}  // namespace loom::collab
