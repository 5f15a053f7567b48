#include "data/jsonl_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/json.h"

namespace loom::data {
namespace {

constexpr std::array<std::string_view, 5> kRoles{"system", "user", "assistant", "tool", "ipython"};

/// A shortened name of somebody else's, for an error.
std::string Quoted(std::string_view name) { return fmt::format("'{}'", name.substr(0, 40)); }

Result<std::string_view> StringAt(const json::Value& object, std::string_view key) {
  const json::Value* value = object.Find(key);
  if (value == nullptr) return MakeError(Code::kInvalid, fmt::format("no key '{}'", key));
  if (value->AsString() == nullptr) {
    return MakeError(Code::kInvalid,
                     fmt::format("'{}' is no string but {}", key, value->KindName()));
  }
  return std::string_view(*value->AsString());
}

Result<Shape> ShapeOf(const json::Value& line) {
  if (line.Find("text") != nullptr) return Shape::kText;
  if (line.Find("messages") != nullptr) return Shape::kMessages;
  if (line.Find("prompt") != nullptr && line.Find("completion") != nullptr) {
    return Shape::kCompletion;
  }
  if (line.Find("chosen") != nullptr) {
    return MakeError(Code::kInvalid, "a line of preferences ('chosen'), which are not trained on");
  }
  for (const std::string_view one : {"prompt", "completion"}) {
    if (line.Find(one) != nullptr) {
      return MakeError(Code::kInvalid, fmt::format("'{}' without '{}'", one,
                                                   one == "prompt" ? "completion" : "prompt"));
    }
  }
  return MakeError(Code::kInvalid, "no key 'text', 'messages' or 'prompt'");
}

Result<Turn> ReadTurn(const json::Value& message, std::size_t index) {
  const auto at = [&](Error error) {
    return std::move(error).Context(fmt::format("message {}", index));
  };
  if (message.AsObject() == nullptr) {
    return at(MakeError(Code::kInvalid, fmt::format("no object but {}", message.KindName())));
  }
  const auto role = StringAt(message, "role");
  if (!role) return at(role.error());
  if (std::ranges::find(kRoles, *role) == kRoles.end()) {
    return at(MakeError(Code::kInvalid, fmt::format("the role {} is none of system, user, "
                                                    "assistant, tool",
                                                    Quoted(*role))));
  }
  for (const std::string_view lost : {"tool_calls", "function_call"}) {
    const json::Value* value = message.Find(lost);
    if (value != nullptr && !value->IsNull()) {
      return at(MakeError(Code::kInvalid, fmt::format("'{}' has no place in the template", lost)));
    }
  }
  const auto content = StringAt(message, "content");
  if (!content) return at(content.error());
  return Turn{*role, *content};
}

Status ReadMessages(const json::Value& messages, const LineRules& rules, MarkedText& out,
                    Fault& fault) {
  const json::Array* list = messages.AsArray();
  if (list == nullptr) {
    return MakeError(Code::kInvalid,
                     fmt::format("'messages' is no array but {}", messages.KindName()));
  }
  if (list->empty()) {
    fault = Fault::kEmpty;
    return MakeError(Code::kInvalid, "'messages' is empty");
  }
  if (list->size() > kMaxTurns) {
    return MakeError(Code::kInvalid,
                     fmt::format("{} messages, the limit is {}", list->size(), kMaxTurns));
  }
  std::vector<Turn> turns;
  turns.reserve(list->size());
  for (std::size_t i = 0; i < list->size(); ++i) {
    LOOM_ASSIGN(const Turn turn, ReadTurn((*list)[i], i));
    turns.push_back(turn);
  }
  if (!rules.chat) {
    return MakeError(Code::kInvalid,
                     "messages need a chat template, and the tokenizer has the special tokens of "
                     "none; set data.chat (loom init --chat) to \"chatml\", \"llama3\" or "
                     "\"smollm\"");
  }
  if (!rules.loss_on_all &&
      std::ranges::none_of(turns, [](const Turn& turn) { return turn.role == "assistant"; })) {
    return MakeError(Code::kInvalid, "no turn of the assistant, so nothing to learn from");
  }
  out = RenderChat(*rules.chat, turns);
  return {};
}

Status ReadShape(const json::Value& line, const LineRules& rules, JsonlLine& out, Fault& fault) {
  switch (out.shape) {
    case Shape::kText: {
      LOOM_ASSIGN(const std::string_view text, StringAt(line, "text"));
      if (text.empty()) {
        fault = Fault::kEmpty;
        return MakeError(Code::kInvalid, "'text' is empty");
      }
      out.marked.Add(text, true, false);
      return {};
    }
    case Shape::kCompletion: {
      LOOM_ASSIGN(const std::string_view prompt, StringAt(line, "prompt"));
      LOOM_ASSIGN(const std::string_view completion, StringAt(line, "completion"));
      if (completion.empty()) {
        fault = Fault::kEmpty;
        return MakeError(Code::kInvalid, "'completion' is empty");
      }
      out.marked.Add(prompt, false, false);
      out.marked.Add(completion, true, false);
      return {};
    }
    case Shape::kMessages:
      return ReadMessages(*line.Find("messages"), rules, out.marked, fault);
  }
  return {};
}

}  // namespace

std::string_view ShapeName(Shape shape) {
  switch (shape) {
    case Shape::kText:
      return "text";
    case Shape::kCompletion:
      return "prompt and completion";
    case Shape::kMessages:
      return "messages";
  }
  return "";
}

Result<JsonlLine> ParseJsonlLine(std::string_view line, const LineRules& rules, Fault& fault) {
  fault = Fault::kEmpty;
  if (line.find_first_not_of(" \t\r") == std::string_view::npos) {
    return MakeError(Code::kInvalid, "an empty line");
  }
  fault = Fault::kMalformed;
  json::Fault json_fault{};
  auto value = json::Parse(line, {.max_bytes = line.size(), .max_depth = 32, .max_values = 1 << 16},
                           &json_fault);
  if (!value) {
    if (json_fault == json::Fault::kInvalidUtf8) fault = Fault::kNotUtf8;
    return std::move(value).error();
  }
  if (value->AsObject() == nullptr) {
    return MakeError(Code::kInvalid,
                     fmt::format("the line is no object but {}", value->KindName()));
  }
  JsonlLine out;
  LOOM_ASSIGN(out.shape, ShapeOf(*value));
  LOOM_RETURN_IF_ERROR(ReadShape(*value, rules, out, fault));
  if (rules.loss_on_all) {
    for (Span& span : out.marked.spans) span.loss = true;
  }
  return out;
}

}  // namespace loom::data
