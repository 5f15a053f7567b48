// Wrong ways to use the program, tried one after the other: what each must say, and what it must
// leave alone.
#pragma once

#include <string>
#include <vector>

#include "swarm/invite.h"
#include "tests/e2e/swarm_process.h"

namespace loom::e2e {

struct Way {
  std::string name;
  std::vector<std::string> arguments;
  int code = 3;
  std::vector<std::string> says;  ///< the thing, the value, the limit
  std::vector<std::string> environment = {};
};

class WrongWaysTest : public SwarmTest {
 protected:
  /// Tries every way: it ends by itself, with its exit code, its words and a next step. `kept` are
  /// folders and files that none of them may change.
  void Try(const std::vector<Way>& ways, const std::vector<std::string>& kept);
  void Write(const std::string& name, const std::string& text) const;
  /// A copy of run.toml with one text in the place of another; its path.
  std::string Toml(const std::string& name, const std::string& from, const std::string& to) const;
  /// An invite to nobody's run.
  static swarm::Invite Stranger(std::int64_t seconds);

  std::size_t tried_ = 0;
};

}  // namespace loom::e2e
