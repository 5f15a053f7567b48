// One round of questions to the others for loom doctor: how they see this peer and its clock, and
// whether they reach it at the addresses that it announces. Pure: the node carries the messages.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "net/control_socket.h"
#include "node/dial_back.h"
#include "node/node_messages.h"

namespace loom::node {

class Checkup {
 public:
  static constexpr std::size_t kMaxAsked = 3;
  /// A look-up, the connects of a name's addresses and a handshake, each to its own limit.
  static constexpr Duration kLimit = std::chrono::seconds(15);

  /// Chooses whom to ask: those who can answer, seen from different places before the same again.
  Checkup(const std::map<PeerId, Neighbour>& neighbours, std::vector<swarm::Address> own, Time now,
          net::ControlServer::Reply reply);

  const std::vector<PeerId>& asked() const { return asked_; }
  const std::vector<swarm::Address>& own() const { return own_; }
  void OnView(const PeerId& from, const View& view, std::int64_t wall_now);
  void OnDialedBack(const PeerId& from, const DialedBack& back);
  /// Nothing more is to come, or the time is over.
  bool Over(Time now) const;
  /// [{peer, version, seen_as, clock_offset_s, dialled[{address, result, step, code, error,
  /// next}]}]; result is reached, failed, not_tried or no_answer. A member that said nothing has no
  /// seen_as.
  json::Array Json() const;
  const net::ControlServer::Reply& reply() const { return reply_; }

 private:
  struct Answer {
    std::string version;
    std::optional<View> view;
    std::int64_t clock_offset = 0;
    std::map<swarm::Address, DialedBack> dialled;
  };
  std::vector<PeerId> asked_;
  std::vector<swarm::Address> own_;
  std::map<PeerId, Answer> answers_;
  Time until_;
  net::ControlServer::Reply reply_;
};

}  // namespace loom::node
