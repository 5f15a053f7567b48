// Who decides (rules R2, R8, R10): quorums, seniority and the leader of a term are pure functions
// of the members that the parent record lists.
#pragma once

#include <set>
#include <span>
#include <vector>

#include "collab/record.h"
#include "collab/sync_config.h"

namespace loom::collab {

/// Members in order of seniority: listed longest first, then by id.
void SortBySeniority(std::vector<Member>& members);

/// True when `who` decides for `members` (in seniority order). Peers that are not members count for
/// nothing. No members means no quorum.
bool IsQuorum(std::span<const Member> members, const std::set<PeerId>& who, QuorumRule rule);

/// The leader of term t of round r: member (r + t) mod n. Requires: members is not empty.
const PeerId& LeaderOf(std::span<const Member> members, Round round, Term term);

bool IsMember(std::span<const Member> members, const PeerId& peer);
const Member* FindMember(std::span<const Member> members, const PeerId& peer);

/// The fewest further members, most senior first, that would make `present` a quorum; empty when it
/// already is one. What `status` prints as waits_for (rule R13).
std::vector<PeerId> MissingForQuorum(std::span<const Member> members, std::set<PeerId> present,
                                     QuorumRule rule);

/// Members whose single loss would leave `present` without a quorum ("if X dies this run waits").
std::vector<PeerId> Critical(std::span<const Member> members, const std::set<PeerId>& present,
                             QuorumRule rule);

}  // namespace loom::collab
