// The simulated network: connections between pairs of peers, cut and mended, and messages on their
// way, in the order and at the speed of a TCP connection.
#include <fmt/ranges.h>

#include <algorithm>

#include "sim/world.h"

namespace loom::sim {
namespace {

using collab::Effects;
using collab::Message;
using collab::Peer;

constexpr Duration kSilence = 2s;

}  // namespace

void World::Connect(Node& a, Node& b) {
  const Duration delay = random_.Between(2 * options_.latency, 6 * options_.latency);
  At(now_ + delay, [this, &a, &b, la = a.life, lb = b.life] {
    Pair& pair = PairOf(a, b);
    if (a.life != la || b.life != lb || a.peer == nullptr || b.peer == nullptr || pair.up ||
        pair.cut)
      return;
    if (a.frozen || b.frozen) {  // the other side does not answer; dialled again later
      Connect(a, b);
      return;
    }
    pair.up = true;
    ++pair.generation;
    pair.silent = {};
    pair.free = {};
    pair.arrived = {};
    Call(a, [&](Peer& p, Effects& out) { p.OnPeerUp(b.id, now_, out); });
    Call(b, [&](Peer& p, Effects& out) { p.OnPeerUp(a.id, now_, out); });
  });
}

void World::Disconnect(Node& a, Node& b, bool refused) {
  Pair& pair = PairOf(a, b);
  if (!pair.up) return;
  pair.up = false;
  ++pair.generation;
  pair.waiting.clear();
  const auto tell = [&](Node& at, Node& about) {
    if (at.peer == nullptr) return;
    AtNode(now_ + random_.Between(options_.latency, 3 * options_.latency), at,
           [this, &at, &about, refused] {
             if (PairOf(at, about).up) return;
             Call(at, [&](Peer& p, Effects& out) { p.OnPeerDown(about.id, refused, now_, out); });
           });
  };
  tell(a, b);
  tell(b, a);
}

void World::Partition(const std::vector<std::size_t>& minority) {
  const bool close = random_.Chance(0.5);
  Note(fmt::format("partition: {} against the rest{}", fmt::join(minority, ","),
                   close ? ", connections close" : ""));
  for (const std::size_t a : minority) {
    for (std::size_t b = 0; b < nodes_.size(); ++b) {
      if (std::find(minority.begin(), minority.end(), b) == minority.end()) CutLink(a, b, close);
    }
  }
}

void World::Heal() {
  Note("the partition heals");
  for (const auto& [ends, pair] : pairs_) MendLink(ends.first, ends.second);
}

void World::CutLink(std::size_t a, std::size_t b, bool close) {
  PairOf(*nodes_[a], *nodes_[b]).cut = true;
  WatchSilence(*nodes_[a], *nodes_[b]);
  WatchSilence(*nodes_[b], *nodes_[a]);
  if (!close) return;
  At(now_ + random_.Between(3s, 8s), [this, a, b] {
    // A firewall between two living machines may answer a redial with a refusal, too.
    const bool refused = random_.Chance(0.5);
    if (PairOf(*nodes_[a], *nodes_[b]).cut) Disconnect(*nodes_[a], *nodes_[b], refused);
  });
}

void World::MendLink(std::size_t first, std::size_t second) {
  Node& a = *nodes_[first];
  Node& b = *nodes_[second];
  Pair& pair = PairOf(a, b);
  if (!pair.cut) return;
  pair.cut = false;
  if (!pair.up) {
    Connect(a, b);
    return;
  }
  for (auto& run : pair.waiting) At(now_ + options_.latency, std::move(run));
  pair.waiting.clear();
  for (const auto& ends : {std::pair(&a, &b), std::pair(&b, &a)}) {
    if (ends.first->peer == nullptr) continue;
    AtNode(now_ + options_.latency, *ends.first, [this, ends] {
      if (Reachable(*ends.first, *ends.second) && !ends.second->frozen) {
        BecomeSilent(*ends.first, *ends.second, false);
      }
    });
  }
}

bool World::Reachable(const Node& a, const Node& b) {
  const Pair& pair = PairOf(a, b);
  return pair.up && !pair.cut;
}

// Two seconds without a heartbeat of `about`.
void World::WatchSilence(Node& at, Node& about) {
  if (at.peer == nullptr) return;
  AtNode(now_ + kSilence, at, [this, &at, &about] {
    Pair& pair = PairOf(at, about);
    if (pair.up && (pair.cut || about.frozen || about.peer == nullptr))
      BecomeSilent(at, about, true);
  });
}

void World::BecomeSilent(Node& at, Node& about, bool silent) {
  Pair& pair = PairOf(at, about);
  bool& now_silent = pair.silent[at.index < about.index ? 0 : 1];
  if (now_silent == silent || !pair.up || at.peer == nullptr) return;
  now_silent = silent;
  Call(at, [&](Peer& p, Effects& out) { p.OnPeerSilent(about.id, silent, now_, out); });
}

World::Pair& World::PairOf(const Node& a, const Node& b) {
  return pairs_[std::minmax(a.index, b.index)];
}

void World::Transmit(Node& from, const PeerId& to, const Message& message) {
  const auto index = IndexOf(to);
  if (!index || *index == from.index) return;
  Node& node = *nodes_[*index];
  Pair& pair = PairOf(from, node);
  if (!pair.up) return;
  if ((loss_ > 0 && random_.Chance(loss_)) || (drop_ && drop_(from.index, node.index, message))) {
    Note(fmt::format("lost: {} of peer {} to peer {}", MessageName(message), from.index,
                     node.index));
    return;
  }
  const Blob bytes = MakeBlob(EncodeMessage(message));
  const std::uint16_t type = TypeOf(message);
  Time& free = pair.free[from.index < node.index ? 0 : 1][IsBulk(message) ? 1 : 0];
  const double rate =
      from.index < options_.upload.size() ? options_.upload[from.index] : options_.bytes_per_second;
  const Time sent =
      std::max(now_, free) + FromSeconds(static_cast<double>(bytes->size() + 32) / rate);
  free = sent;
  Time& last = pair.arrived[from.index < node.index ? 0 : 1][IsBulk(message) ? 1 : 0];
  last = std::max(last, sent + options_.latency + random_.Between(0ms, options_.latency / 2));
  const Time arrives = last;  // TCP keeps the order: nothing overtakes
  auto deliver = [this, &from, &node, type, bytes, generation = pair.generation] {
    if (PairOf(from, node).generation == generation) Deliver(from, node, type, bytes);
  };
  At(arrives, [this, &from, &node, deliver = std::move(deliver)]() mutable {
    Pair& link = PairOf(from, node);
    if (link.cut) {
      link.waiting.push_back(std::move(deliver));
    } else {
      deliver();
    }
  });
}

void World::Deliver(Node& from, Node& to, std::uint16_t type, const Blob& bytes) {
  ForNode(to, to.life, [this, &from, &to, type, bytes] {
    if (!PairOf(from, to).up) return;
    auto message = collab::DecodeMessage(type, bytes);
    if (!message) {
      audit_->Fail(
          fmt::format("message type {} does not decode: {}", type, message.error().ToString()));
      return;
    }
    Call(to, [&](Peer& p, Effects& out) { p.OnMessage(from.id, std::move(*message), now_, out); });
  });
}

}  // namespace loom::sim
