#include "node/control_request.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <variant>

#include "base/json.h"

namespace loom::node {
namespace {

using Verb = ControlRequest::Verb;

constexpr std::array<std::pair<std::string_view, Verb>, 11> kVerbs = {
    {{"status", Verb::kStatus},
     {"invite", Verb::kInvite},
     {"pause", Verb::kPause},
     {"resume", Verb::kResume},
     {"leave", Verb::kLeave},
     {"finish", Verb::kFinish},
     {"order", Verb::kOrder},
     {"ordered", Verb::kOrdered},
     {"reset", Verb::kReset},
     {"delegate", Verb::kDelegate},
     {"checkup", Verb::kCheckup}}};
constexpr std::uint64_t kMostUses = 100'000;

std::uint64_t NumberIn(const json::Value& object, std::string_view key, std::uint64_t otherwise) {
  const json::Value* value = object.Find(key);
  const std::uint64_t* number = value != nullptr ? value->AsUnsigned() : nullptr;
  return number != nullptr ? *number : otherwise;
}

std::string TextIn(const json::Value& object, std::string_view key) {
  const json::Value* value = object.Find(key);
  const std::string* text = value != nullptr ? value->AsString() : nullptr;
  return text != nullptr ? *text : "";
}

}  // namespace

Result<ControlRequest> ParseControlRequest(std::string_view line) {
  const auto parsed = json::Parse(line, {.max_bytes = 64 << 10, .max_depth = 4, .max_values = 64});
  if (!parsed || parsed->AsObject() == nullptr)
    return MakeError(Code::kInvalid, "the request is not a JSON object");
  const std::string name = TextIn(*parsed, "verb");
  const auto* const verb =
      std::find_if(kVerbs.begin(), kVerbs.end(), [&](const auto& v) { return v.first == name; });
  if (verb == kVerbs.end())
    return MakeError(Code::kInvalid, fmt::format("unknown request '{:.80}'", name));
  ControlRequest request;
  request.verb = verb->second;
  request.seconds = static_cast<std::int64_t>(
      std::min<std::uint64_t>(NumberIn(*parsed, "seconds", 7 * 24 * 3600), INT64_MAX / 2));
  request.uses = static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(NumberIn(*parsed, "uses", 16), 1, kMostUses));
  request.order = TextIn(*parsed, "order");
  request.toml = TextIn(*parsed, "toml");
  if (const json::Value* revert = parsed->Find("revert");
      revert != nullptr && !std::holds_alternative<std::nullptr_t>(revert->data)) {
    if (revert->AsUnsigned() == nullptr) return MakeError(Code::kInvalid, "revert is no round");
    request.revert = *revert->AsUnsigned();
  }
  request.peer = TextIn(*parsed, "peer");
  request.step = TextIn(*parsed, "step");
  request.owner_key = TextIn(*parsed, "owner_key");
  const json::Value* behind = parsed->Find("leave_behind");
  request.leave_behind = behind != nullptr && behind->AsBool() != nullptr && *behind->AsBool();
  return request;
}

}  // namespace loom::node
