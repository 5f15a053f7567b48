// What nodes say to each other outside the protocol of rounds: how a joiner gets the run's constant
// parts, and where other peers are. Frame types 32 to 63; rounds use 64 and up.
#pragma once

#include <variant>
#include <vector>

#include "base/id.h"
#include "base/result.h"
#include "store/piece_list.h"
#include "swarm/address.h"
#include "swarm/invite.h"
#include "wire/bytes_io.h"

namespace loom::node {

inline constexpr std::size_t kMaxToldAddresses = 256;

struct GetRun {};  ///< "send me the genesis record"
struct RunRecord {
  Bytes record;
};
struct GetPieces {  ///< "which pieces make this object?"
  Hash object;
};
struct Pieces {
  Hash object;
  store::PieceList list;
};
struct Addresses {
  struct Entry {
    PeerId peer;
    swarm::Address address;
  };
  std::vector<Entry> entries;
};

struct Delegate {  ///< an owner's word that the receiver may sign invites
  swarm::Delegation delegation;
};

using NodeMessage = std::variant<GetRun, RunRecord, GetPieces, Pieces, Addresses, Delegate>;

inline constexpr std::uint16_t kFirstNodeType = 32;
std::uint16_t TypeOf(const NodeMessage& message);
bool IsNodeType(std::uint16_t type);
Bytes EncodeNodeMessage(const NodeMessage& message);
Result<NodeMessage> DecodeNodeMessage(std::uint16_t type, ByteView bytes);

/// A delegation as it travels, and as keys/delegation keeps it.
Bytes EncodeDelegation(const swarm::Delegation& delegation);
Result<swarm::Delegation> DecodeDelegation(ByteView bytes);

}  // namespace loom::node
