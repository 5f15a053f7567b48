// What an owner's order changes, in words and as data: for the peers that take it up and for the
// log.
#pragma once

#include <string>
#include <vector>

#include "base/id.h"
#include "collab/order.h"
#include "train/spec.h"

namespace loom::node {

/// The settings that an order sets to another value; `before` are those until then.
std::vector<train::SettingChange> ChangesBy(const collab::Order& order, ByteView before);

/// "the owner changed optim.lr from 0.002 to 0.001", "the owner took the run back to the state
/// after round 60", or both. `before` are the settings until then.
std::string OrderWords(const collab::Order& order, ByteView before);

}  // namespace loom::node
