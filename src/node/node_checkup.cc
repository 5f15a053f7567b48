// Both sides of a dial-back: this peer asks the others for loom doctor, and dials for them.
#include "base/log.h"
#include "node/node.h"

namespace loom::node {

void Node::BeginCheckup(net::ControlServer::Reply reply) {
  if (checkup_) {
    const json::Object busy{{"ok", json::Value(false)},
                            {"code", json::Value(std::string(CodeName(Code::kConflict)))},
                            {"error", json::Value("another loom doctor asks this peer right now")}};
    reply(json::Dump(json::Value(busy)));
    return;
  }
  checkup_.emplace(neighbours_, own_addresses_, reactor_.Now(), std::move(reply));
  for (const PeerId& peer : checkup_->asked()) {
    SendNode(peer, GetView{});
    for (const swarm::Address& address : checkup_->own()) SendNode(peer, DialBack{address});
  }
  CheckupTick(reactor_.Now());
}

void Node::CheckupTick(Time now) {
  if (!checkup_ || !checkup_->Over(now)) return;
  json::Array ports;
  ports.reserve(ports_.size());
  for (const std::uint16_t port : ports_) ports.emplace_back(std::uint64_t{port});
  const json::Object answer{
      {"ok", json::Value(true)},
      {"peer", json::Value(key_.id().Hex())},
      {"listen", json::Value(options_.listen.empty() ? std::string() : options_.listen[0])},
      {"ports", json::Value(std::move(ports))},
      {"announce", json::Value(options_.local.announce)},
      {"connected", json::Value(static_cast<std::uint64_t>(up_.size()))},
      {"members", json::Value(checkup_->Json())}};
  const auto reply = checkup_->reply();
  checkup_.reset();
  reply(json::Dump(json::Value(answer)));
}

void Node::OnView(const PeerId& from, const View& view) {
  if (checkup_) checkup_->OnView(from, view, reactor_.WallSeconds());
}

void Node::OnDialedBack(const PeerId& from, const DialedBack& back) {
  if (checkup_) checkup_->OnDialedBack(from, back);
}

void Node::OnDialBack(const PeerId& from, const DialBack& ask) {
  const auto it = neighbours_.find(from);
  if (it == neighbours_.end()) return;
  DialedBack answer;
  answer.address = ask.address;
  if (const auto refusal = dial_backs_.Refusal(from, it->second, ask.address, reactor_.Now())) {
    answer.text = *refusal;
    SendNode(from, answer);
    return;
  }
  Log(LogLevel::kDebug, "net", "{} asks to be dialled at {}", from.Short(), ask.address.ToString());
  transport_->Probe(
      ask.address.ToString(), from,
      [remote = it->second.remote](const std::string& ip) { return MeantFor(remote, ip); },
      [this, from, answer](const auto& failed) mutable {
        dial_backs_.Done();
        if (stopping_) return;
        answer.outcome = failed ? DialedBack::Outcome::kFailed : DialedBack::Outcome::kReached;
        if (failed) {
          answer.step = failed->first;
          answer.code = failed->second.code;
          answer.text = failed->second.message;
        }
        SendNode(from, answer);
      });
}

}  // namespace loom::node
