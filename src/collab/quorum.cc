#include "collab/quorum.h"

#include <algorithm>
#include <tuple>

namespace loom::collab {

void SortBySeniority(std::vector<Member>& members) {
  std::sort(members.begin(), members.end(), [](const Member& a, const Member& b) {
    return std::tie(a.since, a.id) < std::tie(b.since, b.id);
  });
}

bool IsQuorum(std::span<const Member> members, const std::set<PeerId>& who, QuorumRule rule) {
  if (members.empty()) return false;
  const auto count = static_cast<std::size_t>(std::count_if(
      members.begin(), members.end(), [&](const Member& m) { return who.contains(m.id); }));
  if (rule == QuorumRule::kTwoThirds) return 3 * count > 2 * members.size();
  if (2 * count == members.size()) return who.contains(members[0].id);
  return 2 * count > members.size();
}

const PeerId& LeaderOf(std::span<const Member> members, Round round, Term term) {
  LOOM_CHECK(!members.empty());
  return members[(round + term) % members.size()].id;
}

const Member* FindMember(std::span<const Member> members, const PeerId& peer) {
  const auto it =
      std::find_if(members.begin(), members.end(), [&](const Member& m) { return m.id == peer; });
  return it == members.end() ? nullptr : &*it;
}

bool IsMember(std::span<const Member> members, const PeerId& peer) {
  return FindMember(members, peer) != nullptr;
}

std::vector<PeerId> MissingForQuorum(std::span<const Member> members, std::set<PeerId> present,
                                     QuorumRule rule) {
  std::vector<PeerId> missing;
  for (const Member& m : members) {
    if (IsQuorum(members, present, rule)) break;
    if (present.insert(m.id).second) missing.push_back(m.id);
  }
  return missing;
}

std::vector<PeerId> Critical(std::span<const Member> members, const std::set<PeerId>& present,
                             QuorumRule rule) {
  std::vector<PeerId> critical;
  for (const Member& m : members) {
    if (!present.contains(m.id)) continue;
    std::set<PeerId> rest = present;
    rest.erase(m.id);
    if (!IsQuorum(members, rest, rule)) critical.push_back(m.id);
  }
  return critical;
}

}  // namespace loom::collab
