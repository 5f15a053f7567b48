// Whose loss would cut whom off. Two members reach each other by a link of their own or through one
// third that has a link to both: a relay carries one hop (R35), so a longer way round, which keeps
// a graph connected, is none. For `status`; nothing is decided by it.
#pragma once

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/id.h"

namespace loom::collab {

/// Whom each member says it has a link to. A link counts when both ends say so; who has not said
/// anything is left out.
using LinkReports = std::map<PeerId, std::set<PeerId>>;
using PeerPair = std::pair<PeerId, PeerId>;  ///< smaller id first

/// Members that cannot reach each other, told shortly.
struct Separation {
  /// At least two, or none: nobody of one group reaches anybody of another. Each sorted, by first.
  std::vector<std::vector<PeerId>> groups;
  /// Pairs inside a group (or when there are no groups), in order.
  std::vector<PeerPair> pairs;
};

struct Isolation {
  PeerId without;  ///< if this one goes
  Separation apart;
};

struct Isolations {
  Separation now;                 ///< those who cannot reach each other as it is
  std::vector<Isolation> by_one;  ///< what the loss of one more member would add, by its id
};

Isolations FindIsolations(const LinkReports& reports);

/// Whom `who` does not reach.
std::set<PeerId> CutFrom(const Separation& apart, const PeerId& who);

}  // namespace loom::collab
