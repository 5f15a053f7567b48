// What became of every address that this peer tried while it looked for the others: the step that
// failed and what a person may do about it. In status, in events, and in the last words of a joiner
// that reached nobody.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/id.h"
#include "base/json.h"
#include "base/result.h"
#include "net/transport.h"
#include "swarm/address.h"

namespace loom::node {

/// The step and its failure in a few words: "connect timed out", "wrong peer key".
std::string FailureName(net::DialStep step, Code code);
/// What to do about it. kConflict of a connect: the address is this machine's own as well.
std::string NextStep(net::DialStep step, Code code,
                     swarm::AddressScope scope = swarm::AddressScope::kGlobal);

class Reach {
 public:
  static constexpr std::size_t kMaxTries = 64;

  /// A dial begins; a zero peer means "whoever answers".
  void Trying(const std::string& address, const PeerId& peer);
  /// True when it is news: the address failed for the first time, or in another way than before.
  bool Failed(const std::string& address, net::DialStep step, const Error& error);
  /// The peer is connected: what failed on the way to it is of no interest any more.
  void Reached(const PeerId& peer);

  std::size_t tried() const { return tries_.size(); }
  /// Every address on a line of its own with its failure, the next step below it.
  std::string Text() const;
  /// [{address, peer, step, code, error, next, times}]; step is "trying" before the first outcome.
  json::Array Json(std::size_t max = kMaxTries) const;
  json::Object Json(const std::string& address) const;
  /// The failures on the way to one peer, in a few words each; empty when there are none.
  std::string About(const PeerId& peer) const;

 private:
  struct Try {
    PeerId peer;
    std::optional<net::DialStep> step;
    Error error;
    std::uint32_t times = 0;
  };
  std::map<std::string, Try> tries_;
};

}  // namespace loom::node
