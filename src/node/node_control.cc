// What other verbs ask of a running peer over its control.sock: status, invite, pause, resume,
// leave, finish, and the owner's orders and resets.
#include "node/control_request.h"
#include "node/node.h"

namespace loom::node {

void Node::OnControl(const std::string& line, const net::ControlServer::Reply& reply) {
  using Verb = ControlRequest::Verb;
  const auto answer = [&](Result<json::Object> result) {
    if (!result) {
      result = json::Object{{"ok", json::Value(false)},
                            {"code", json::Value(std::string(CodeName(result.error().code)))},
                            {"error", json::Value(result.error().message)},
                            {"hint", json::Value(result.error().hint)}};
    }
    reply(json::Dump(json::Value(std::move(*result))));
  };
  const auto request = ParseControlRequest(line);
  if (!request) {
    answer(request.error());
    return;
  }
  if (request->verb == Verb::kStatus) {
    answer(StatusJson());
    return;
  }
  if (request->verb == Verb::kCheckup) {
    BeginCheckup(reply);
    return;
  }
  if (!peer_) {
    answer(MakeError(Code::kConflict, "this peer is still starting", "try again in a moment"));
    return;
  }
  const Time now = reactor_.Now();
  const std::size_t members = peer_->chain().head().body.members.size();
  bool changed = true;
  collab::Effects effects;
  switch (request->verb) {
    case Verb::kStatus:
    case Verb::kCheckup:
      break;
    case Verb::kInvite:
      if (auto invite = MakeInvite(request->seconds, request->uses, request->owner_key); !invite) {
        answer(invite.error());
      } else {
        answer(json::Object{{"ok", json::Value(true)}, {"invite", json::Value(*invite)}});
      }
      return;
    case Verb::kOrder:
      answer(TakeOrder(*request));
      return;
    case Verb::kOrdered:
      answer(OrderedJson(request->order));
      return;
    case Verb::kReset:
      answer(Reset(*request));
      return;
    case Verb::kDelegate:
      if (const Status done = DelegateTo(*request); !done) {
        answer(done.error());
      } else {
        answer(json::Object{{"ok", json::Value(true)}});
      }
      return;
    case Verb::kPause:
    case Verb::kResume:
      changed = peer_->Pause(request->verb == Verb::kPause, now, effects);
      break;
    case Verb::kLeave:
      peer_->Leave(now, effects);
      break;
    case Verb::kFinish:
      finish_after_round_ = true;
      break;
  }
  Carry(std::move(effects));
  answer(json::Object{{"ok", json::Value(true)},
                      {"state", json::Value(std::string(collab::PeerStateName(peer_->state())))},
                      {"members", json::Value(static_cast<std::uint64_t>(members))},
                      {"changed", json::Value(changed)}});
}

}  // namespace loom::node
