#include "node/order_words.h"

#include <fmt/core.h>

namespace loom::node {

std::vector<train::SettingChange> ChangesBy(const collab::Order& order, ByteView before) {
  if (order.settings.empty()) return {};
  return train::ChangesOf(AsText(before), AsText(order.settings));
}

std::string OrderWords(const collab::Order& order, ByteView before) {
  std::string words = "the owner";
  if (order.revert)
    words += fmt::format(" took the run back to the state after round {}", *order.revert);
  std::string changed;
  for (const train::SettingChange& c : ChangesBy(order, before)) {
    changed +=
        fmt::format("{}{} from {} to {}", changed.empty() ? "" : ", ", c.key, c.before, c.after);
  }
  if (!changed.empty()) words += (order.revert ? " and changed " : " changed ") + changed;
  if (!order.revert && changed.empty()) words += " confirmed the settings as they are";
  return words;
}

}  // namespace loom::node
