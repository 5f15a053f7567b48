// What an owner key may order of a living run (R14): other settings from here on, a return to an
// older state, or both. An order is signed and numbered; the members take it up by a record of
// their own, with the usual quorum. And what an owner key may do when there is no quorum any more:
// seal the survivors, then sign a reset.
#pragma once

#include <functional>
#include <optional>

#include "base/id.h"
#include "collab/signer.h"
#include "collab/sync_config.h"
#include "wire/bytes_io.h"

namespace loom::collab {

inline constexpr std::size_t kMaxSettingsBytes = 64U << 10;

struct Order {
  std::uint64_t number = 0;     ///< one more than the run has taken up
  std::optional<Round> revert;  ///< go back to the state after this record
  Bytes settings;               ///< canonical text from here on; empty: as they are
  crypto::PublicKey owner;
  crypto::Signature signature;  ///< over Text()
  bool operator==(const Order&) const = default;
  Bytes Text(const RunId& run) const;
  void Encode(wire::Writer& out) const;
  static Order Decode(wire::Reader& in);
};
inline constexpr std::string_view kOrderDomain = "loom order";

/// The owner's word to vote no more below an era, or (`end`) that the reset will not come.
struct Seal {
  Era era = 0;
  bool end = false;
  crypto::PublicKey owner;
  crypto::Signature signature;
  bool operator==(const Seal&) const = default;
  Bytes Text(const RunId& run) const;
  void Encode(wire::Writer& out) const;
  static Seal Decode(wire::Reader& in);
};
inline constexpr std::string_view kSealDomain = "loom seal";

/// Under an owner's signature of its hash a record needs no quorum: a reset, and the body that its
/// survivors may already have agreed on.
inline constexpr std::string_view kResetDomain = "loom reset";
inline constexpr std::string_view kCertifyDomain = "loom certify";

/// The round settings of an amended spec; an error when this program does not know a key, or when
/// the change from `before` is none that a living run can take.
using ReadSettings = std::function<Result<SyncConfig>(ByteView before, ByteView after)>;

}  // namespace loom::collab
