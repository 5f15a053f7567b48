#include "node/dial_back.h"

#include <fmt/format.h>

#include <algorithm>

namespace loom::node {

using swarm::AddressScope;

bool MeantFor(const std::optional<swarm::Address>& remote, const std::string& ip) {
  const AddressScope from = remote ? remote->Scope() : AddressScope::kGlobal;
  switch (swarm::Address{ip, 1}.Scope()) {
    case AddressScope::kGlobal:
      return true;
    case AddressScope::kPrivate:
      return from == AddressScope::kPrivate || from == AddressScope::kLoopback;
    case AddressScope::kLoopback:
      return from == AddressScope::kLoopback;
    case AddressScope::kNowhere:
      return false;
  }
  return false;
}

std::optional<std::string> DialBackDesk::Refusal(const PeerId& asker, const Neighbour& from,
                                                 const swarm::Address& address, Time now) {
  const auto& own = from.announced;
  if (std::find(own.begin(), own.end(), address) == own.end()) {
    return fmt::format("you did not announce {} when we met", address.ToString());
  }
  if (!MeantFor(from.remote, address.host)) {  // what a name stands for is looked at when dialling
    return fmt::format("{} means something in its own network only", address.ToString());
  }
  if (dialling_ >= kAtOnce) return "busy with other such questions; ask again";
  const auto old = [&](Time at) { return now - at > std::chrono::hours(1); };
  for (auto& [peer, times] : dialled_) std::erase_if(times, old);
  std::erase_if(dialled_, [](const auto& entry) { return entry.second.empty(); });
  if (!dialled_.contains(asker) && dialled_.size() >= kMaxAskers) {
    return "too many have asked within the last hour";
  }
  auto& times = dialled_[asker];
  if (times.size() >= kPerHour) {
    return fmt::format("{} addresses were dialled for you within the last hour, the limit",
                       kPerHour);
  }
  times.push_back(now);
  ++dialling_;
  return std::nullopt;
}

}  // namespace loom::node
