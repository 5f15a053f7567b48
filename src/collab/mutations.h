// Defects that the mutation tests plant on purpose, to see that the simulator catches them. They
// exist only in programs compiled with LOOM_MUTATIONS; everywhere else LOOM_PLANTED is false at
// compile time.
#pragma once

#ifdef LOOM_MUTATIONS

namespace loom::collab {

struct Mutations {
  bool votes_ignored = false;        ///< a takeover chooses freely whatever was voted for (R4)
  bool retry_counted_twice = false;  ///< used samples are returned as well (R17)
  bool attempts_mixed = false;       ///< reduced tiles of an older attempt stay in the gather (R20)
};
inline Mutations planted_mutations;  // NOLINT: a test program's own switch

}  // namespace loom::collab

#define LOOM_PLANTED(name) (::loom::collab::planted_mutations.name)
#else
#define LOOM_PLANTED(name) false
#endif
