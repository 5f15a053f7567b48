// What other verbs ask of a running peer over its control.sock: one line of JSON, an object whose
// `verb` says what.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/id.h"
#include "base/result.h"

namespace loom::node {

struct ControlRequest {
  enum class Verb : std::uint8_t {
    kStatus,
    kInvite,
    kPause,
    kResume,
    kLeave,
    kFinish,
    kOrder,
    kOrdered,
    kReset,
    kDelegate,
    kCheckup
  };
  Verb verb = Verb::kStatus;
  std::int64_t seconds = 7 * 24 * 3600;  ///< kInvite: how long it is good for, 0 .. INT64_MAX / 2
  std::uint32_t uses = 16;               ///< kInvite: 1 .. 100,000
  std::string order;                     ///< kOrdered: the id that kOrder was answered with
  std::string toml;                      ///< kOrder: settings to change; may be empty
  std::optional<Round> revert;           ///< kOrder: back to the state after this round
  std::string peer;                      ///< kDelegate: how a member's id begins
  std::string step;                      ///< kReset: seal, view, commit or cancel
  std::string owner_key;                 ///< path of the owner's key; empty: the peer's own choice
  bool leave_behind = false;             ///< kReset, commit: without those who hold newer rounds
};

/// kInvalid for anything but an object with a known verb. Numbers out of range are cut to it, those
/// of another kind left at their default; a `revert` that is no round is refused.
Result<ControlRequest> ParseControlRequest(std::string_view line);

}  // namespace loom::node
