#include "node/reach.h"

namespace loom::node {

using net::DialStep;

namespace {

swarm::AddressScope ScopeOf(const std::string& address) {
  const auto parsed = swarm::ParseAddress(address);
  return parsed ? parsed->Scope() : swarm::AddressScope::kGlobal;
}

}  // namespace

std::string FailureName(DialStep step, Code code) {
  switch (step) {
    case DialStep::kResolve:
      return code == Code::kTimeout ? "name look-up timed out" : "name look-up failed";
    case DialStep::kConnect:
      return code == Code::kRefused    ? "connect refused"
             : code == Code::kTimeout  ? "connect timed out"
             : code == Code::kConflict ? "this machine's own address"
                                       : "network unreachable";
    case DialStep::kTls:
      return code == Code::kTimeout ? "TLS handshake timed out" : "TLS handshake failed";
    case DialStep::kPin:
      return "wrong peer key";
    case DialStep::kHello:
      return code == Code::kRefused    ? "refused by the member"
             : code == Code::kConflict ? "this identity is connected already"
                                       : "hello failed";
  }
  return "failed";
}

std::string NextStep(DialStep step, Code code, swarm::AddressScope scope) {
  if (step == DialStep::kConnect && scope == swarm::AddressScope::kPrivate &&
      code != Code::kConflict) {
    return "none, if that member is elsewhere: a private address works within its own network or "
           "VPN only";
  }
  switch (step) {
    case DialStep::kResolve:
      return "check the spelling of the name and this machine's DNS: getent hosts NAME";
    case DialStep::kConnect:
      if (code == Code::kRefused) {
        return "that machine answers, and nothing listens at the port: does the peer run, and does "
               "the port forward lead to it?";
      }
      if (code == Code::kTimeout) {
        return "nothing answers: is the address right, and does a router or firewall there let the "
               "port in (port forward, VPN)?";
      }
      if (code == Code::kConflict) {
        return "none, if that member is elsewhere: its home uses the same private addresses as "
               "this one, and only an address on the internet or a VPN leads there";
      }
      return "this machine has no way there: is it online, and does it have IPv6 (for an address "
             "in "
             "brackets)?";
    case DialStep::kTls:
      return code == Code::kTimeout
                 ? "something takes connections there and says nothing: is it the right port?"
                 : "it is not a Loom peer that listens there: check the port and the port forward";
    case DialStep::kPin:
      return "another peer listens there: check where the port forward leads, or ask for a new "
             "invite if that peer began anew";
    case DialStep::kHello:
      if (code == Code::kConflict)
        return "a folder serves one process: end the other one, or join with a folder of its own";
      return code == Code::kRefused ? "its words say why; a new invite may help"
                                    : "try again; if it stays, compare both programs' --version";
  }
  return "try again";
}

void Reach::Trying(const std::string& address, const PeerId& peer) {
  const auto known = tries_.find(address);
  if (known == tries_.end() && tries_.size() >= kMaxTries) return;
  tries_[address].peer = peer;
}

bool Reach::Failed(const std::string& address, DialStep step, const Error& error) {
  const auto it = tries_.find(address);
  if (it == tries_.end()) return false;
  Try& known = it->second;
  const bool news = known.step != step || known.error.code != error.code;
  known.step = step;
  known.error = error;
  ++known.times;
  return news;
}

void Reach::Reached(const PeerId& peer) {
  std::erase_if(tries_, [&](const auto& entry) { return entry.second.peer == peer; });
}

std::string Reach::Text() const {
  std::string text;
  for (const auto& [address, known] : tries_) {
    const std::string whose = known.peer.IsZero() ? "" : fmt::format(" ({})", known.peer.Short());
    if (!known.step) {
      text += fmt::format("\n  {}{}: no outcome yet", address, whose);
      continue;
    }
    text += fmt::format("\n  {}{}: {}: {}\n      next: {}", address, whose,
                        FailureName(*known.step, known.error.code), known.error.message,
                        NextStep(*known.step, known.error.code, ScopeOf(address)));
  }
  return text.empty() ? "\n  no address was known" : text;
}

json::Object Reach::Json(const std::string& address) const {
  const auto it = tries_.find(address);
  if (it == tries_.end()) return {{"address", json::Value(address)}};
  const Try& known = it->second;
  const bool failed = known.step.has_value();
  return {{"address", json::Value(address)},
          {"peer", json::Value(known.peer.IsZero() ? "" : known.peer.Hex())},
          {"step", json::Value(failed ? std::string(net::DialStepName(*known.step)) : "trying")},
          {"code", json::Value(failed ? std::string(CodeName(known.error.code)) : "")},
          {"error", json::Value(failed ? known.error.message : "")},
          {"next",
           json::Value(failed ? NextStep(*known.step, known.error.code, ScopeOf(address)) : "")},
          {"times", json::Value(std::uint64_t{known.times})}};
}

json::Array Reach::Json(std::size_t max) const {
  json::Array out;
  for (const auto& [address, known] : tries_) {
    if (out.size() < max) out.emplace_back(Json(address));
  }
  return out;
}

std::string Reach::About(const PeerId& peer) const {
  constexpr int kMost = 3;
  std::string text;
  int told = 0;
  for (const auto& [address, known] : tries_) {
    if (known.peer != peer || !known.step || ++told > kMost) continue;
    text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", address,
                        FailureName(*known.step, known.error.code));
  }
  return text;
}

}  // namespace loom::node
