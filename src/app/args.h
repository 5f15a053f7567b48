// The arguments of a verb, declared once: parsing, types, defaults and --help come from here. CLI11
// (6.6 s a compile) stays inside args.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace loom::app {

enum class Need : std::uint8_t { kRequired, kOptional };

/// Declares into variables that keep their value when the option is not given; the value at the
/// time of the declaration is shown as the default.
class Args {
 public:
  void Positional(const std::string& name, std::string& out, const std::string& help,
                  Need need = Need::kRequired);
  void Positional(const std::string& name, std::vector<std::string>& out, const std::string& help,
                  Need need = Need::kRequired);
  /// name as "--out"; value_name as "DIR".
  void Option(const std::string& name, const std::string& value_name, std::string& out,
              const std::string& help, Need need = Need::kOptional);
  void Option(const std::string& name, const std::string& value_name, std::vector<std::string>& out,
              const std::string& help, Need need = Need::kOptional);
  void Option(const std::string& name, const std::string& value_name, std::uint64_t& out,
              const std::string& help);
  /// Stays empty when it is not given.
  void Option(const std::string& name, const std::string& value_name,
              std::optional<std::uint64_t>& out, const std::string& help);
  /// Bytes, also as "2M" (powers of 1000).
  void Size(const std::string& name, std::uint64_t& out, const std::string& help);
  void Option(const std::string& name, const std::string& value_name, double& out,
              const std::string& help);
  void Flag(const std::string& name, bool& out, const std::string& help);

  struct State;
  explicit Args(State& state) : state_(state) {}

 private:
  State& state_;
};

/// One verb: a file of its own. declare and run share their variables by capture.
struct Verb {
  std::string name;     ///< "data check" is two words
  std::string summary;  ///< one sentence
  std::string example;  ///< one line that works
  std::function<void(Args&)> declare;
  std::function<Status()> run;
};

/// Finds the verb in the command line, parses and runs it. Returns the exit code (docs/cli.md).
/// Help goes to stdout; every complaint goes to stderr, and with --json also to stdout as
/// {"error": {...}}.
int RunCommandLine(const std::vector<Verb>& verbs, int argc, const char* const* argv);

/// "loom 0.1.0".
std::string_view ProgramVersion();
/// The exit code of an error.
int ExitCode(Code code);
/// kInvalid, naming the option, its value and the limits, unless low <= value <= high.
Status CheckRange(std::string_view option, std::uint64_t value, std::uint64_t low,
                  std::uint64_t high);

}  // namespace loom::app
