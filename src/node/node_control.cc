// What other verbs ask of a running peer over its control.sock: status, invite, pause, resume,
// leave, finish, and the owner's orders and resets.
#include <algorithm>

#include "node/node.h"

namespace loom::node {

void Node::OnControl(const std::string& request, const net::ControlServer::Reply& reply) {
  const auto answer = [&](json::Object object) {
    reply(json::Dump(json::Value(std::move(object))));
  };
  const auto fail = [&](const Error& error) {
    answer({{"ok", json::Value(false)},
            {"code", json::Value(std::string(CodeName(error.code)))},
            {"error", json::Value(error.ToString())}});
  };
  auto parsed = json::Parse(request);
  if (!parsed || parsed->AsObject() == nullptr) {
    fail(MakeError(Code::kInvalid, "the request is not a JSON object"));
    return;
  }
  const json::Value* verb = parsed->Find("verb");
  const std::string name = verb != nullptr && verb->AsString() != nullptr ? *verb->AsString() : "";
  const auto number = [&](const char* key, std::int64_t otherwise) {
    const json::Value* v = parsed->Find(key);
    const std::uint64_t* n = v != nullptr ? v->AsUnsigned() : nullptr;
    return n != nullptr ? static_cast<std::int64_t>(std::min<std::uint64_t>(*n, INT64_MAX / 2))
                        : otherwise;
  };
  const Time now = reactor_.Now();
  if (name == "status") {
    answer(StatusJson());
    return;
  }
  if (!peer_) {
    fail(MakeError(Code::kConflict, "this peer is still starting", "try again in a moment"));
    return;
  }
  collab::Effects effects;
  if (name == "invite") {
    auto invite = MakeInvite(
        number("seconds", 7 * 24 * 3600),
        static_cast<std::uint32_t>(std::clamp<std::int64_t>(number("uses", 16), 1, 100000)));
    if (!invite) {
      fail(invite.error());
    } else {
      answer({{"ok", json::Value(true)}, {"invite", json::Value(*invite)}});
    }
    return;
  }
  if (name == "order" || name == "reset") {
    const json::Value* step = parsed->Find("step");
    const json::Value* behind = parsed->Find("leave_behind");
    auto done = name == "order"
                    ? TakeOrder(*parsed)
                    : Reset(step != nullptr && step->AsString() != nullptr ? *step->AsString() : "",
                            behind != nullptr && behind->AsBool() != nullptr && *behind->AsBool());
    if (!done) {
      fail(done.error());
    } else {
      answer(std::move(*done));
    }
    return;
  }
  if (name == "pause" || name == "resume") {
    peer_->Pause(name == "pause", now, effects);
  } else if (name == "leave") {
    peer_->Leave(now, effects);
  } else if (name == "finish") {
    finish_after_round_ = true;
  } else {
    fail(MakeError(Code::kInvalid, fmt::format("unknown request '{}'", name)));
    return;
  }
  Carry(std::move(effects));
  answer({{"ok", json::Value(true)},
          {"state", json::Value(std::string(collab::PeerStateName(peer_->state())))}});
}

}  // namespace loom::node
