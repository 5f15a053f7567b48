#include "collab/word.h"

#include <algorithm>

namespace loom::collab {
namespace {

Bytes TextOfPromise(const DecisionId& id, Term term, std::uint64_t seq, const Vote* last) {
  wire::Writer out;
  id.Encode(out);
  out.Int(term);
  out.Int(seq);
  out.Bool(last != nullptr);
  if (last != nullptr) last->Encode(out);
  return std::move(out).Take();
}

Bytes TextOfVote(const DecisionId& id, Term term, const Hash& body, std::uint64_t seq) {
  wire::Writer out;
  id.Encode(out);
  out.Int(term);
  out.Id(body);
  out.Int(seq);
  return std::move(out).Take();
}

}  // namespace

Bytes VoteText(const DecisionId& id, const Vote& vote) {
  return TextOfVote(id, vote.term, vote.body, vote.seq);
}

Bytes PromiseText(const DecisionId& id, const Promise& promise) {
  return TextOfPromise(id, promise.term, promise.seq, promise.last ? &promise.last->vote : nullptr);
}

Word Word::Of(const DecisionId& id, const Vote& vote) {
  return {.kind = Kind::kVote,
          .id = id,
          .term = vote.term,
          .seq = vote.seq,
          .body = vote.body,
          .last = {},
          .signature = vote.signature};
}

Word Word::Of(const DecisionId& id, const Promise& promise) {
  Word word{.kind = Kind::kPromise,
            .id = id,
            .term = promise.term,
            .seq = promise.seq,
            .body = {},
            .last = {},
            .signature = promise.signature};
  if (promise.last) word.last = promise.last->vote;
  return word;
}

bool Word::SignedBy(const crypto::PublicKey& key, const Signer& signer) const {
  switch (kind) {
    case Kind::kNone:
      return false;
    case Kind::kVote:
      return signer.Verify(key, kVoteDomain, TextOfVote(id, term, body, seq), signature);
    case Kind::kPromise:
      return signer.Verify(key, kPromiseDomain,
                           TextOfPromise(id, term, seq, last ? &*last : nullptr), signature);
  }
  return false;
}

void Word::Encode(wire::Writer& out) const {
  out.Int(static_cast<std::uint8_t>(kind));
  if (kind == Kind::kNone) return;
  id.Encode(out);
  out.Int(term);
  out.Int(seq);
  if (kind == Kind::kVote) {
    out.Id(body);
  } else {
    out.Bool(last.has_value());
    if (last) last->Encode(out);
  }
  out.Raw(signature.bytes);
}

Word Word::Decode(wire::Reader& in) {
  Word word;
  const auto kind = in.Int<std::uint8_t>();
  if (kind > static_cast<std::uint8_t>(Kind::kPromise)) {
    in.Fail("a word that is neither vote nor promise");
    return word;
  }
  word.kind = static_cast<Kind>(kind);
  if (word.kind == Kind::kNone) return word;
  word.id = DecisionId::Decode(in);
  word.term = in.Int<Term>();
  word.seq = in.Int<std::uint64_t>();
  if (word.kind == Kind::kVote) {
    word.body = in.GetId<HashTag>();
  } else if (in.Bool()) {
    word.last = Vote::Decode(in);
  }
  const ByteView raw = in.Raw(word.signature.bytes.size());
  std::copy(raw.begin(), raw.end(), word.signature.bytes.begin());
  return word;
}

}  // namespace loom::collab
