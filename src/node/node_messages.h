// What nodes say to each other outside the protocol of rounds: how a joiner gets the run's constant
// parts, and where other peers are. Frame types 32 to 63; rounds use 64 and up.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/id.h"
#include "base/result.h"
#include "net/transport.h"
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

struct GetView {};  ///< "how do I look to you?"
struct View {
  std::int64_t now = 0;  ///< Unix seconds of who answers
  std::string address;   ///< remote IP:port of the asker's connection
};
struct DialBack {  ///< "can you reach me there?"; an address that the asker announced
  swarm::Address address;
};
struct DialedBack {
  enum class Outcome : std::uint8_t { kReached, kFailed, kNotTried };
  swarm::Address address;
  Outcome outcome = Outcome::kNotTried;
  net::DialStep step = net::DialStep::kResolve;  ///< kFailed
  Code code = Code::kInternal;                   ///< kFailed
  std::string text;                              ///< the failure, or why it was not tried
};

using NodeMessage = std::variant<GetRun, RunRecord, GetPieces, Pieces, Addresses, Delegate, GetView,
                                 View, DialBack, DialedBack>;

inline constexpr std::uint16_t kFirstNodeType = 32;
/// In the hello's features: this peer answers GetView and DialBack.
inline constexpr std::uint64_t kAnswersDialBack = 1;
std::uint16_t TypeOf(const NodeMessage& message);
bool IsNodeType(std::uint16_t type);
Bytes EncodeNodeMessage(const NodeMessage& message);
Result<NodeMessage> DecodeNodeMessage(std::uint16_t type, ByteView bytes);

/// A delegation as it travels, and as keys/delegation keeps it.
Bytes EncodeDelegation(const swarm::Delegation& delegation);
Result<swarm::Delegation> DecodeDelegation(ByteView bytes);

}  // namespace loom::node
