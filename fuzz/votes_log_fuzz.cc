// Entries of votes.log as a disk may give them back: whatever they are, this key's highest
// sequence number and its promise never go down, for a vote above them could be its second. The
// input is a list of entries, each with a u16 length.
#include "collab/agreement.h"
#include "fuzz/fuzz.h"
#include "fuzz/seeds/samples.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace loom;
  fuzz::Input in(data, size);
  collab::VoterState voter;
  bool all = !in.empty();
  while (!in.empty()) {
    const collab::VoterState before = voter;
    if (const Status applied = voter.Apply(in.Chunk()); !applied) {
      fuzz::ExpectGoodError(applied.error());
      fuzz::Expect(voter.seq == before.seq && voter.promised == before.promised &&
                       voter.id == before.id && voter.sealed == before.sealed,
                   "a refused entry changes nothing");
      all = false;
    }
    fuzz::Expect(voter.seq >= before.seq, "the sequence number never goes down");
    fuzz::Expect(voter.id != before.id || voter.promised >= before.promised,
                 "a promise is never taken back");
  }
  const Term promised = voter.promised;
  voter.Reopen(voter.id);
  fuzz::Expect(voter.led >= promised, "what was led before the end is not led again");
  if (all) fuzz::Accept();
  return 0;
}

void loom::fuzz::MakeSeeds(Seeds& seeds) {
  const crypto::SigningKey key = SampleKey(1);
  const collab::KeySigner signer(key);
  const collab::Body parent = SampleBody();
  const collab::DecisionId id{1, 6, SampleHash(1)};
  Script script;
  collab::Agreement agreement(id, {parent.members[0]}, key.id(), collab::QuorumRule::kMajority,
                              signer, {});
  const auto keep = [&](const collab::Actions& actions) {
    collab::Actions more;
    for (const collab::Action& action : actions) {
      if (const auto* persist = std::get_if<collab::PersistVoter>(&action)) {
        script.Chunk(persist->entry);
        agreement.OnPersisted(persist->token, more);
      } else if (const auto* check = std::get_if<collab::CheckBody>(&action)) {
        agreement.OnBodyChecked(check->hash, more);
      }
    }
    return more;
  };
  collab::Actions actions;
  agreement.Lead(1, actions);
  for (int i = 0; i < 3; ++i) actions = keep(actions);
  agreement.Choose(1, MakeBlob(parent.Encode()), actions);
  for (int i = 0; i < 6; ++i) actions = keep(actions);
  seeds.Add("promise-and-vote", script);
  script.Chunk(collab::VoterState::SealEntry(3));
  seeds.Add("sealed", script);
}
