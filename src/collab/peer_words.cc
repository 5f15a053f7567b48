// Old copies of a folder (R9). Everybody keeps the newest signed word of every member and shows it
// to its owner on every connection. Who is shown a word that its own folder does not know of runs
// from an old copy: it says nothing more until a later record lists it as new. A word is believed
// for its signature alone, whoever shows it.
#include "collab/peer.h"

namespace loom::collab {

void Peer::Remember(const PeerId& from, const Word& word) {
  const Member* member = FindMember(chain_.head().body.members, from);
  if (member == nullptr) return;
  const Word* newest = NewestWord(from);
  if (newest != nullptr && newest->seq >= word.seq) return;
  if (word.SignedBy(member->key, signer_)) words_.insert_or_assign(from, word);
}

const Word* Peer::NewestWord(const PeerId& of) const {
  const auto recorded = chain_.words().find(of);
  const auto heard = words_.find(of);
  if (recorded == chain_.words().end()) return heard == words_.end() ? nullptr : &heard->second;
  if (heard == words_.end() || recorded->second.seq > heard->second.seq) return &recorded->second;
  return &heard->second;
}

void Peer::HearOwnWord(const PeerId& from, const Word& word, Effects& out) {
  const std::uint64_t own = machine_ ? machine_->seq() : voter_.seq;
  if (word.seq <= std::max(own, seen_own_seq_) || !word.SignedBy(options_.key, signer_)) return;
  seen_own_seq_ = word.seq;
  const Member* self = FindMember(chain_.head().body.members, env_.self);
  if (!rolled_back_ && self != nullptr && self->since > word.id.round) {
    // Of an earlier listing, which ended: only the count goes on from there.
    voter_.seq = std::max(voter_.seq, word.seq);
    if (machine_) machine_->SkipTo(word.seq);
    return;
  }
  // The old listing may go on until the records say otherwise; one after that word is a new one.
  rolled_back_at_ = std::max(rolled_back_at_, word.id.round);
  machine_.reset();
  if (std::exchange(rolled_back_, true)) return;
  Problem(
      from,
      fmt::format("it showed this key's word number {}, of round {}; this folder ends at {}: the "
                  "folder is an old copy",
                  word.seq, word.id.round, own),
      out);
}

// What a peer said before it held the record that lists it as new does not count against it.
void Peer::JudgeFitness(const PeerId& of, const Hello& hello) {
  const Word* newest = NewestWord(of);
  const Member* listed = FindMember(chain_.head().body.members, of);
  if (newest != nullptr && hello.seq < newest->seq && listed != nullptr &&
      hello.head.round >= listed->since && hello.head.round <= chain_.rounds()) {
    unfit_.insert(of);
  } else {
    unfit_.erase(of);
  }
  if (machine_) machine_->SetUnfit(unfit_);
}

// After a restart a member first hears from everyone it reaches, a quorum at least, so that words
// of its own key which its disk forgot are found out before it says new ones.
bool Peer::FenceOpen() const {
  if (!fence_) return true;
  std::set<PeerId> heard{env_.self};
  for (const auto& [peer, remote] : remotes_) {
    if (!remote.greeted && presence_.Present(peer) && IsMember(chain_.head().body.members, peer))
      return false;
    if (remote.greeted) heard.insert(peer);
  }
  return IsQuorum(chain_.head().body.members, heard, chain_.config().quorum);
}

// What the others said while this peer started anew behind open links is lost.
void Peer::AskForHellos(Time now, Effects& out) {
  if (FenceOpen() || now - fence_asked_ < env_.timing.quiet) return;
  fence_asked_ = now;
  for (const PeerId& peer : presence_.connected) {
    if (!remotes_[peer].greeted) SayHello(peer, out);
  }
}

}  // namespace loom::collab
