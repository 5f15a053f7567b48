// What waits to be sent in bulk, as messages: their tiles are views of a round's bytes, so what
// waits takes no memory of its own. A link's queue holds only the next few, encoded; more follow as
// it empties. A round's bytes may be larger than any queue, and none of them is dropped for that.
#pragma once

#include <deque>
#include <functional>
#include <map>

#include "collab/messages.h"

namespace loom::node {

class Outbox {
 public:
  /// Gives an encoded message to the link. False: its queue is full, OnSpace follows; or the peer
  /// is gone, Forget follows.
  using Give = std::function<bool(const PeerId& to, std::uint16_t type, const Blob& encoded)>;

  explicit Outbox(Give give) : give_(std::move(give)) {}

  /// False: so many objects wait for this peer that one more is not taken. A piece of a round that
  /// waits already is not queued twice.
  bool Push(const PeerId& to, collab::Message message);
  void OnSpace(const PeerId& to);
  void Forget(const PeerId& to) { waiting_.erase(to); }
  /// The round is decided: nobody needs parts of it, nor reduced bytes of those before it.
  void DropBefore(Round decided);
  bool Waits(const PeerId& to) const { return waiting_.contains(to); }

 private:
  struct Entry {
    collab::Message message;
    Blob encoded;  ///< once the link had no room for it
  };
  struct Queue {
    std::deque<Entry> entries;
    std::size_t object_bytes = 0;
  };
  Give give_;
  std::map<PeerId, Queue> waiting_;  ///< no empty ones
};

}  // namespace loom::node
