// The checks of loom doctor. Each says what it found, how it judges that, and, when something needs
// to be done, the next step for somebody at home: a command, or what to set on the router's page.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace loom::app {

enum class Grade { kPass, kWarn, kFail, kSkip };
std::string_view GradeName(Grade grade);  ///< pass, warn, fail, skip

struct Finding {
  Grade grade = Grade::kPass;
  std::string found;
  std::string next = {};     ///< empty when nothing needs to be done
  json::Array details = {};  ///< for --json
};

inline Finding Pass(std::string found) { return {Grade::kPass, std::move(found)}; }
inline Finding Warn(std::string found, std::string next) {
  return {Grade::kWarn, std::move(found), std::move(next)};
}
inline Finding Fail(std::string found, std::string next) {
  return {Grade::kFail, std::move(found), std::move(next)};
}
inline Finding Skip(std::string found, std::string next) {
  return {Grade::kSkip, std::move(found), std::move(next)};
}
/// The error's own hint goes before `next`.
inline Finding Fail(const Error& error, std::string next) {
  return Fail(error.message, error.hint.empty() ? std::move(next) : error.hint);
}

struct Check {
  const char* name;
  std::function<Finding()> look;
};

/// What is looked at, for every check.
struct Patient {
  std::string dir;
  std::string listen;  ///< of --listen; may be empty
  /// What the running peer of the folder and the members that it asked said ("checkup" of
  /// node_checkup.cc); nothing when no peer runs there.
  std::optional<json::Value> checkup = std::nullopt;
  std::string no_checkup = {};  ///< why not
};

/// Asks the peer that runs in the folder, when there is one; takes up to 15 s.
void AskPeerForCheckup(Patient& patient);

// doctor_machine.cc: this machine on its own
std::vector<Check> MachineChecks(const Patient& patient);
// doctor_network.cc: clock, ports and the others
std::vector<Check> NetworkChecks(const Patient& patient);
// doctor_dial_back.cc
Finding CheckDialBack(const Patient& patient);

/// Reading a checkup: empty or zero where something is missing.
namespace doctor {
std::string Text(const json::Value& value, std::string_view key);
const json::Array& Items(const json::Value& value, std::string_view key);
std::string Short(const std::string& id);
/// The port on which the patient's peer listens; 0 when it listens nowhere.
std::uint16_t PortOf(const json::Value& checkup);
}  // namespace doctor

}  // namespace loom::app
