#include "node/outbox.h"

#include <algorithm>
#include <tuple>

namespace loom::node {
namespace {

constexpr std::size_t kMostObjectBytes = 256U << 20;  // waiting for one peer

std::size_t ObjectBytes(const collab::Message& message) {
  const auto* object = std::get_if<swarm::ObjectData>(&message);
  return object != nullptr ? object->bytes->size() : 0;
}

bool SamePiece(const collab::Message& a, const collab::Message& b) {
  if (a.index() != b.index()) return false;
  if (const auto* part = std::get_if<collab::Part>(&a)) {
    const auto& other = std::get<collab::Part>(b);
    return part->commitment == other.commitment && part->run == other.run;
  }
  if (const auto* reduced = std::get_if<collab::Reduced>(&a)) {
    const auto& other = std::get<collab::Reduced>(b);
    return reduced->id == other.id && reduced->run == other.run &&
           std::tie(reduced->term, reduced->attempt) == std::tie(other.term, other.attempt);
  }
  return false;
}

bool Outdated(const collab::Message& message, Round decided) {
  if (const auto* part = std::get_if<collab::Part>(&message)) return part->id.round <= decided;
  const auto* reduced = std::get_if<collab::Reduced>(&message);
  return reduced != nullptr && reduced->id.round < decided;
}

}  // namespace

bool Outbox::Push(const PeerId& to, collab::Message message) {
  Queue& queue = waiting_[to];
  const std::size_t size = ObjectBytes(message);
  if (size > 0 && queue.object_bytes + size > kMostObjectBytes) return false;
  const bool twice = std::ranges::any_of(
      queue.entries, [&](const Entry& entry) { return SamePiece(entry.message, message); });
  if (!twice) {
    queue.object_bytes += size;
    queue.entries.push_back({std::move(message), nullptr});
  }
  if (queue.entries.size() == 1) OnSpace(to);
  return true;
}

void Outbox::OnSpace(const PeerId& to) {
  const auto at = waiting_.find(to);
  if (at == waiting_.end()) return;
  Queue& queue = at->second;
  while (!queue.entries.empty()) {
    Entry& next = queue.entries.front();
    if (next.encoded == nullptr) next.encoded = MakeBlob(collab::EncodeMessage(next.message));
    if (!give_(to, collab::TypeOf(next.message), next.encoded)) return;
    queue.object_bytes -= ObjectBytes(next.message);
    queue.entries.pop_front();
  }
  waiting_.erase(at);
}

void Outbox::DropBefore(Round decided) {
  for (auto& [to, queue] : waiting_) {
    std::erase_if(queue.entries,
                  [&](const Entry& entry) { return Outdated(entry.message, decided); });
  }
  std::erase_if(waiting_, [](const auto& waiting) { return waiting.second.entries.empty(); });
}

}  // namespace loom::node
