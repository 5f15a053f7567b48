// One member's part of single decisions, among four others who may say anything in anybody's name,
// with a disk that is slow and a process that is killed. What must hold whatever the others do
// (R1-R3): it votes once a term, never below its promise, says nothing that its disk does not hold,
// and a restart changes none of it.
#include "collab/agreement.h"

#include <map>

#include "fuzz/fuzz.h"
#include "fuzz/harness/machine.h"
#include "fuzz/seeds/samples.h"

namespace loom::fuzz {
namespace {

using collab::Actions;

constexpr std::size_t kMembers = 5;
constexpr std::size_t kBodies = 3;

class Member {
 public:
  Member() : signer_(Key(0)) {
    id_ = {1, 6, SampleHash(1)};
    for (std::size_t i = 0; i < kMembers; ++i)
      members_.push_back({Key(i), crypto::PeerIdOf(Key(i)), 0, 0});
    for (std::size_t i = 0; i < kBodies; ++i) {
      collab::Body body = SampleBody();
      body.round = 6;
      body.tokens = i;
      bodies_.push_back(MakeBlob(body.Encode()));
    }
    Restart();
  }

  void Step(Input& in) {
    Actions out;
    const std::size_t from = in.Below(kMembers);
    switch (in.Below(10)) {
      case 0:
        agreement_->OnPrepare(members_[from].id, in.Byte(), out);
        break;
      case 1: {
        collab::Promise promise;
        promise.peer = members_[from].id;
        promise.term = in.Byte();
        promise.seq = in.Byte();
        if (in.Byte() % 2 == 1) promise.last = {VoteOf(from, in), Body(in)};
        promise.signature = ForgedSignature();
        agreement_->OnPromise(promise, out);
        break;
      }
      case 2: {
        const Term term = in.Byte();
        agreement_->OnProposal(members_[from].id, term, Body(in), out);
        break;
      }
      case 3:
        agreement_->OnVote(VoteOf(from, in), out);
        break;
      case 4:
        if (!checks_.empty()) {
          agreement_->OnBodyChecked(checks_.back(), out);
          checks_.pop_back();
        }
        break;
      case 5:
      case 6:
        if (!writes_.empty()) {
          disk_.push_back(writes_.front().entry);
          const std::uint64_t token = writes_.front().token;
          writes_.erase(writes_.begin());
          Durable();
          agreement_->OnPersisted(token, out);
        }
        break;
      case 7: {
        const Term term = in.Byte();
        if (agreement_->MayLead(term)) agreement_->Lead(term, out);
        break;
      }
      case 8:
        if (choosing_) {
          agreement_->Choose(*choosing_, Body(in), out);
          choosing_.reset();
        }
        break;
      default:
        Restart();
        return;
    }
    Carry(out);
  }
  bool decided() const { return agreement_->decided(); }
  bool voted() const { return !voted_.empty(); }

 private:
  static crypto::PublicKey Key(std::size_t i) {
    crypto::PublicKey key;
    key.bytes[0] = static_cast<std::byte>(i + 1);
    return key;
  }

  Blob Body(Input& in) {
    const std::size_t which = in.Byte();
    if (which < 250) return bodies_[which % kBodies];
    return MakeBlob(ToBytes(in.Chunk()));
  }

  collab::Vote VoteOf(std::size_t from, Input& in) {
    collab::Vote vote;
    vote.peer = members_[from].id;
    vote.term = in.Byte();
    vote.body = collab::BodyHash(*bodies_[in.Below(kBodies)]);
    vote.seq = in.Byte();
    vote.signature = ForgedSignature();
    return vote;
  }

  void Restart() {
    writes_.clear();
    checks_.clear();
    choosing_.reset();
    const collab::VoterState state = Durable();
    collab::VoterState restored = state;
    if (restored.id == id_) restored.Reopen(id_);
    agreement_.emplace(id_, members_, members_[0].id, collab::QuorumRule::kMajority, signer_,
                       restored);
  }

  collab::VoterState Durable() {
    collab::VoterState state;
    for (const Bytes& entry : disk_) {
      const Status applied = state.Apply(entry);
      Expect(applied.ok(), "what was written can be read");
    }
    durable_ = state;
    return state;
  }

  void Carry(const Actions& actions) {
    for (const collab::Action& action : actions) {
      if (const auto* persist = std::get_if<collab::PersistVoter>(&action)) {
        writes_.push_back(*persist);
      } else if (const auto* check = std::get_if<collab::CheckBody>(&action)) {
        checks_.push_back(check->hash);
      } else if (const auto* choose = std::get_if<collab::MayChoose>(&action)) {
        choosing_ = choose->term;
      } else if (const auto* vote = std::get_if<collab::SendVote>(&action)) {
        Said(vote->vote);
      } else if (const auto* promise = std::get_if<collab::SendPromise>(&action)) {
        Expect(durable_.promised >= promise->promise.term,
               "a promise is on disk before it is said");
        promised_ = std::max(promised_, promise->promise.term);
      } else if (const auto* decided = std::get_if<collab::Decided>(&action)) {
        Expect(decided->record.hash == collab::BodyHash(*decided->record.encoded),
               "a record has its body's hash");
        Expect(decided->record.votes.size() >= 3, "a record has a quorum of votes");
      } else if (const auto* evidence = std::get_if<collab::Evidence>(&action)) {
        Expect(evidence->first.peer == evidence->second.peer &&
                   evidence->first.term == evidence->second.term &&
                   evidence->first.body != evidence->second.body,
               "evidence of a lie is one");
      }
    }
  }

  void Said(const collab::Vote& vote) {
    if (vote.peer != members_[0].id) return;
    const auto [known, fresh] = voted_.try_emplace(vote.term, vote.body);
    Expect(known->second == vote.body, "there is one vote a term");
    Expect(durable_.vote && durable_.vote->vote.term >= vote.term,
           "a vote is on disk before it is said");
    Expect(!fresh || vote.term >= promised_, "there is no new vote below a promise");
  }

  collab::DecisionId id_;
  std::vector<collab::Member> members_;
  ForgeableSigner signer_;
  std::vector<Blob> bodies_;
  std::optional<collab::Agreement> agreement_;
  std::vector<collab::PersistVoter> writes_;
  std::vector<Bytes> disk_;
  collab::VoterState durable_;
  std::vector<Hash> checks_;
  std::optional<Term> choosing_;
  std::map<Term, Hash> voted_;
  Term promised_ = 0;
};

}  // namespace
}  // namespace loom::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace loom;
  fuzz::Input in(data, size);
  fuzz::Member member;
  for (std::size_t steps = 0; steps < 200 && !in.empty() && !member.decided(); ++steps)
    member.Step(in);
  if (member.voted()) fuzz::Accept();
  return 0;
}

void loom::fuzz::MakeSeeds(Seeds& seeds) {
  // Term 0 of another leader, and the votes of a quorum.
  Script script;
  for (const std::size_t leader : {1U, 0U}) script.Byte(leader).Byte(2U).Byte(0U).Byte(1U);
  script.Byte(0).Byte(4).Byte(0).Byte(5).Byte(0).Byte(5);
  const Script voted = script;
  seeds.Add("votes", voted);
  for (const std::size_t from : {1U, 2U, 3U}) script.Byte(from).Byte(3U).Byte(0U).Byte(1U).Byte(9U);
  seeds.Add("decides", script);
  Script leads;
  leads.Byte(0).Byte(7).Byte(5).Byte(0).Byte(5);
  for (const std::size_t from : {1U, 2U, 3U})
    leads.Byte(from).Byte(1).Byte(5).Byte(9).Byte(from % 2).Byte(2).Byte(1).Byte(3).Byte(1);
  leads.Byte(0).Byte(8).Byte(2).Byte(0).Byte(4).Byte(0).Byte(5).Byte(0).Byte(9);
  seeds.AddRefused("leads-and-restarts", leads.bytes());
}
