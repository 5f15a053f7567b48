// "Can you reach me there?" A member may ask another one to dial an address of its own, and is told
// which step failed. The asked one must not become a scanner: it dials only what the asker
// announced in its hello, only what can be meant for it, a bounded number of times, and learns no
// more than whether the asker's own key answers there. Pure: times come in.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/id.h"
#include "base/time.h"
#include "swarm/address.h"

namespace loom::node {

/// What is known of a connected peer from its hello and its connection.
struct Neighbour {
  std::vector<swarm::Address> announced;
  std::optional<swarm::Address> remote;  ///< where its connection comes from
  std::uint64_t features = 0;
  std::string version = {};
};

/// Whether an IP address can be meant for somebody who is seen at `remote`: a private one by
/// somebody of this network, a loopback one by somebody of this machine.
bool MeantFor(const std::optional<swarm::Address>& remote, const std::string& ip);

/// The side that is asked.
class DialBackDesk {
 public:
  static constexpr std::size_t kAtOnce = 8;        ///< dials of all askers
  static constexpr std::size_t kPerHour = 40;      ///< dials of one asker
  static constexpr std::size_t kMaxAskers = 1024;  ///< remembered

  /// Nothing when the address may be dialled now; it is then counted, and Done is owed. Else why
  /// not, for the asker.
  std::optional<std::string> Refusal(const PeerId& asker, const Neighbour& from,
                                     const swarm::Address& address, Time now);
  void Done() { --dialling_; }

 private:
  std::map<PeerId, std::deque<Time>> dialled_;  ///< within the last hour
  std::size_t dialling_ = 0;
};

}  // namespace loom::node
