// Both texts are lines of "table.key = value", and keys at their default may be left out.
#include "node/order_words.h"

#include <fmt/core.h>

#include <map>
#include <optional>
#include <string_view>

namespace loom::node {
namespace {

constexpr std::string_view kDefault = "its default";

/// Calls line(key, value) for each setting.
template <class Call>
void ForEachSetting(std::string_view text, Call&& line) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view one = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::size_t equals = one.find(" = ");
    if (equals != std::string_view::npos) line(one.substr(0, equals), one.substr(equals + 3));
  }
}

}  // namespace

std::vector<SettingChange> ChangesOf(ByteView before, ByteView after) {
  std::vector<SettingChange> changes;
  if (after.empty()) return changes;
  std::map<std::string_view, std::string_view> was;
  ForEachSetting(AsText(before),
                 [&](std::string_view key, std::string_view value) { was[key] = value; });
  const auto changed = [&](std::string_view key, std::string_view old, std::string_view value) {
    changes.push_back({std::string(key), std::string(old), std::string(value)});
  };
  ForEachSetting(AsText(after), [&](std::string_view key, std::string_view value) {
    const auto old = was.find(key);
    if (old == was.end()) {
      changed(key, kDefault, value);
      return;
    }
    if (old->second != value) changed(key, old->second, value);
    was.erase(old);
  });
  for (const auto& [key, value] : was) changed(key, value, kDefault);
  return changes;
}

std::string OrderWords(const collab::Order& order, ByteView before) {
  std::string words = "the owner";
  if (order.revert)
    words += fmt::format(" took the run back to the state after round {}", *order.revert);
  std::string changed;
  for (const SettingChange& c : ChangesOf(before, order.settings)) {
    changed +=
        fmt::format("{}{} from {} to {}", changed.empty() ? "" : ", ", c.key, c.before, c.after);
  }
  if (!changed.empty()) words += (order.revert ? " and changed " : " changed ") + changed;
  if (!order.revert && changed.empty()) words += " confirmed the settings as they are";
  return words;
}

}  // namespace loom::node
