#include "collab/isolation.h"

#include <algorithm>

namespace loom::collab {
namespace {

/// The parts of `members` that fall apart when the pairs in `cut` no longer hold together, and the
/// cut pairs inside a part.
Separation Separate(const std::vector<PeerId>& members, const std::set<PeerPair>& cut) {
  Separation out;
  std::set<PeerId> left(members.begin(), members.end());
  std::map<PeerId, std::size_t> group_of;
  while (!left.empty()) {
    std::vector<PeerId> group{*left.begin()};
    left.erase(left.begin());
    for (std::size_t i = 0; i < group.size(); ++i) {
      for (auto it = left.begin(); it != left.end();) {
        const bool together = !cut.contains(std::minmax(group[i], *it));
        if (together) group.push_back(*it);
        it = together ? left.erase(it) : std::next(it);
      }
    }
    std::sort(group.begin(), group.end());
    for (const PeerId& peer : group) group_of[peer] = out.groups.size();
    out.groups.push_back(std::move(group));
  }
  if (out.groups.size() == 1) out.groups.clear();
  for (const PeerPair& pair : cut) {
    if (group_of[pair.first] == group_of[pair.second]) out.pairs.push_back(pair);
  }
  return out;
}

}  // namespace

Isolations FindIsolations(const LinkReports& reports) {
  const auto linked = [&](const PeerId& a, const PeerId& b) {
    return reports.at(a).contains(b) && reports.at(b).contains(a);
  };
  std::vector<PeerId> members;
  for (const auto& [peer, links] : reports) members.push_back(peer);
  std::set<PeerPair> now;
  std::map<PeerId, std::set<PeerPair>> by_one;  // pairs that this one alone carries for
  for (std::size_t i = 0; i < members.size(); ++i) {
    for (std::size_t j = i + 1; j < members.size(); ++j) {
      if (linked(members[i], members[j])) continue;
      std::vector<PeerId> carriers;
      for (const PeerId& third : members) {
        if (third == members[i] || third == members[j]) continue;
        if (linked(third, members[i]) && linked(third, members[j])) carriers.push_back(third);
        if (carriers.size() == 2) break;
      }
      const PeerPair pair{members[i], members[j]};
      if (carriers.empty()) now.insert(pair);
      if (carriers.size() == 1) by_one[carriers[0]].insert(pair);
    }
  }
  Isolations out;
  if (!now.empty()) out.now = Separate(members, now);
  for (const auto& [carrier, cut] : by_one) {
    std::vector<PeerId> others = members;
    std::erase(others, carrier);
    out.by_one.push_back({carrier, Separate(others, cut)});
  }
  return out;
}

std::set<PeerId> CutFrom(const Separation& apart, const PeerId& who) {
  std::set<PeerId> cut;
  for (const auto& group : apart.groups) {
    if (std::find(group.begin(), group.end(), who) == group.end()) {
      cut.insert(group.begin(), group.end());
    }
  }
  for (const auto& [a, b] : apart.pairs) {
    if (a == who) cut.insert(b);
    if (b == who) cut.insert(a);
  }
  return cut;
}

}  // namespace loom::collab
