// Whether members reach this peer at the addresses that it announces, as they say themselves, and
// what to do at home when they do not.
#include <arpa/inet.h>
#include <fmt/format.h>

#include <fstream>
#include <set>
#include <sstream>

#include "app/doctor.h"
#include "node/interfaces.h"
#include "swarm/address.h"

namespace loom::app {

using doctor::Items;
using doctor::PortOf;
using doctor::Short;
using doctor::Text;

namespace {

/// The router of the default route, for a sentence; empty without one.
std::string Gateway() {
  std::ifstream file("/proc/net/route");
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string interface, destination;
    std::uint32_t gateway = 0;
    if (!(fields >> interface >> destination >> std::hex >> gateway)) continue;
    if (destination != "00000000" || gateway == 0) continue;
    char text[INET_ADDRSTRLEN] = {};
    const in_addr address{gateway};  // the kernel prints it as it stands in memory
    if (::inet_ntop(AF_INET, &address, text, sizeof text) != nullptr) return text;
  }
  return "";
}

std::string OwnIp() {
  for (const auto& i : node::InterfaceAddresses()) {
    if (i.way_out && i.ip.find(':') == std::string::npos) return i.ip;
  }
  return "";
}

/// What to do about an announced address at which a member did not find this peer.
std::string NextStepAtHome(const std::string& failure, std::uint16_t port, std::uint16_t outside,
                           const std::string& seen, const std::string& then = "") {
  const std::string gateway = Gateway();
  const std::string page =
      gateway.empty() ? "the router's page" : "the router's page (http://" + gateway + ")";
  const std::string own = OwnIp();
  const std::string here = fmt::format("{}, port {}", own.empty() ? "this machine" : own, port);
  const std::string otherwise = fmt::format(
      " If the internet address on that page is not {}, the provider shares it among "
      "customers and no forward helps: take a VPN or a third peer (README, Two homes)",
      seen.empty() ? "the announced one" : seen);
  if (failure.starts_with("name"))
    return fmt::format("let the name lead to {}, or announce that address itself",
                       seen.empty() ? "this home's address on the internet" : seen);
  if (failure == "connect refused")
    return fmt::format(
        "the forward leads to a machine or port where nothing listens: on {} let TCP "
        "port {} lead to {}",
        page, outside, here);
  if (failure.starts_with("TLS") || failure == "wrong peer key")
    return fmt::format(
        "the forward leads to another program or peer: on {} let TCP port {} lead to "
        "{}",
        page, outside, here);
  return fmt::format(
      "on {} forward TCP port {} to {}, and let it through this machine's firewall: sudo ufw allow "
      "{}/tcp{}.{}",
      page, outside, here, port, then, otherwise);
}

/// What the members that were asked said about one address.
struct Verdict {
  std::set<std::string> reached_by;
  std::string failure;  ///< of the last one that failed
  bool silent = false;  ///< somebody gave no answer
  std::string text;
};

Verdict VerdictOn(const json::Value& checkup, const std::string& address) {
  Verdict verdict;
  for (const json::Value& m : Items(checkup, "members")) {
    const std::string peer = Short(Text(m, "peer"));
    for (const json::Value& dialled : Items(m, "dialled")) {
      if (Text(dialled, "address") != address) continue;
      const std::string result = Text(dialled, "result");
      if (result == "reached") {
        verdict.reached_by.insert(peer);
        continue;
      }
      if (result == "failed") verdict.failure = Text(dialled, "failure");
      verdict.silent = verdict.silent || result == "no_answer";
      const std::string why = result == "failed"      ? Text(dialled, "failure")
                              : result == "not_tried" ? Text(dialled, "error")
                                                      : "no answer";
      verdict.text += fmt::format("{}{}: {}", verdict.text.empty() ? "" : ", ", peer, why);
    }
  }
  return verdict;
}

}  // namespace

namespace doctor {

std::string Text(const json::Value& value, std::string_view key) {
  const json::Value* found = value.Find(key);
  return found != nullptr && found->AsString() != nullptr ? *found->AsString() : "";
}

const json::Array& Items(const json::Value& value, std::string_view key) {
  static const json::Array kNone;
  const json::Value* found = value.Find(key);
  return found != nullptr && found->AsArray() != nullptr ? *found->AsArray() : kNone;
}

std::string Short(const std::string& id) { return id.substr(0, 8); }

std::uint16_t PortOf(const json::Value& checkup) {
  const json::Array& ports = Items(checkup, "ports");
  const std::uint64_t* port = ports.empty() ? nullptr : ports[0].AsUnsigned();
  return port != nullptr ? static_cast<std::uint16_t>(*port) : std::uint16_t{0};
}

}  // namespace doctor

Finding CheckDialBack(const Patient& patient) {
  if (!patient.checkup)
    return Skip(patient.no_checkup,
                "when it runs and others are connected, ask again: they dial it back then");
  const json::Value& checkup = *patient.checkup;
  const json::Array& members = Items(checkup, "members");
  const std::uint16_t port = PortOf(checkup);
  if (port == 0) return Skip("the peer only dials out", "see the check of its port");
  if (members.empty()) {
    return Warn("no other peer is connected that could dial this one",
                fmt::format("loom status --dir {} shows whom it looks for; loom invite --dir {} "
                            "brings in another one",
                            patient.dir, patient.dir));
  }
  const std::string announce = Text(checkup, "announce");
  std::string seen;
  std::set<std::string> addresses;
  for (const json::Value& m : members) {
    const auto remote = swarm::ParseAddress(Text(m, "seen_as"));
    if (remote && seen.empty()) seen = remote->host;
    for (const json::Value& d : Items(m, "dialled")) addresses.insert(Text(d, "address"));
  }
  Finding finding;
  finding.details = members;
  std::string reached, others;
  for (const std::string& address : addresses) {
    const Verdict verdict = VerdictOn(checkup, address);
    if (!verdict.reached_by.empty()) {
      reached += fmt::format("{}{} (by {})", reached.empty() ? "" : ", ", address,
                             fmt::join(verdict.reached_by, ", "));
    } else if (!verdict.failure.empty() || verdict.silent) {  // private ones tell nothing
      others += fmt::format("; {}: {}", address, verdict.text);
    }
  }
  const std::string as = seen.empty() ? "" : fmt::format("; it is seen as {}", seen);
  const Verdict told = VerdictOn(checkup, announce);
  const auto parsed = swarm::ParseAddress(announce);
  const std::string then = fmt::format("; then loom join --dir {} --announce {}:{}", patient.dir,
                                       seen.empty() ? "HOST" : seen, port);
  if (!announce.empty() && told.reached_by.empty() && !told.failure.empty()) {
    finding.grade = Grade::kFail;
    finding.found = fmt::format("the announced {} was not reached{}{}{}", announce, others, as,
                                reached.empty() ? "" : "; reached: " + reached);
    finding.next = NextStepAtHome(told.failure, port, parsed ? parsed->port : port, seen);
    return finding;
  }
  if (parsed && parsed->Scope() == swarm::AddressScope::kPrivate && told.reached_by.empty() &&
      !told.silent) {
    finding.grade = Grade::kFail;
    finding.found = fmt::format(
        "the announced {} is a private address and leads nowhere from the members' networks{}",
        announce, as);
    finding.next = NextStepAtHome("connect timed out", port, port, seen, then);
    return finding;
  }
  if (!reached.empty()) {
    finding.found = fmt::format("reached at {}{}{}", reached, others, as);
    return finding;
  }
  finding.grade = Grade::kWarn;
  finding.found = fmt::format("no member reaches this peer{}{}", others, as);
  finding.next = !announce.empty()
                     ? "ask again in a moment"
                     : "it trains and votes over the connections that it made itself; to be "
                       "reached: " +
                           NextStepAtHome("connect timed out", port, port, seen, then);
  return finding;
}

}  // namespace loom::app
