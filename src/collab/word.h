// A member's word as others keep it (rule R9): of a vote or a promise what was signed, and the
// signature, without the body. A peer that came back from an old copy of its folder is shown the
// newest word of its own key; it believes nothing that it did not sign.
#pragma once

#include <string_view>

#include "collab/agreement.h"

namespace loom::collab {

inline constexpr std::string_view kVoteDomain = "loom vote";
inline constexpr std::string_view kPromiseDomain = "loom promise";

/// The texts under the signatures of a vote and of a promise.
Bytes VoteText(const DecisionId& id, const Vote& vote);
Bytes PromiseText(const DecisionId& id, const Promise& promise);

struct Word {
  enum class Kind : std::uint8_t { kNone, kVote, kPromise };
  Kind kind = Kind::kNone;
  DecisionId id;
  Term term = 0;
  std::uint64_t seq = 0;     ///< in the order in which its key signed; 0: no word
  Hash body;                 ///< of a vote
  std::optional<Vote> last;  ///< of a promise: the last vote before it
  crypto::Signature signature;

  static Word Of(const DecisionId& id, const Vote& vote);
  static Word Of(const DecisionId& id, const Promise& promise);

  /// Whether `key` signed it. No key has signed kNone.
  bool SignedBy(const crypto::PublicKey& key, const Signer& signer) const;

  bool operator==(const Word&) const = default;
  void Encode(wire::Writer& out) const;
  static Word Decode(wire::Reader& in);
};

}  // namespace loom::collab
