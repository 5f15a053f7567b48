// What an owner's order changes, in words and as data: for the peers that take it up and for the
// log.
#pragma once

#include <string>
#include <vector>

#include "base/id.h"
#include "collab/order.h"

namespace loom::node {

/// One key of run.toml that an order sets to another value, as canonical settings write both.
struct SettingChange {
  std::string key;
  std::string before;
  std::string after;
  bool operator==(const SettingChange&) const = default;
};

/// The keys whose values differ, in the order of `after`. `after` empty: none. A key that one of
/// the texts lacks has its default there.
std::vector<SettingChange> ChangesOf(ByteView before, ByteView after);

/// "the owner changed optim.lr from 0.002 to 0.001", "the owner took the run back to the state
/// after round 60", or both. `before` are the settings until then.
std::string OrderWords(const collab::Order& order, ByteView before);

}  // namespace loom::node
