#include "data/chat.h"

#include <fmt/format.h>

#include "text/unicode.h"

namespace loom::data {
namespace {

constexpr std::string_view kAssistant = "assistant";

std::string_view Trimmed(std::string_view text) {
  text = text.substr(0, text::TrailingWhitespace(text));
  return text.substr(text::LeadingWhitespace(text));
}

void AddChatMl(std::string_view role, std::string_view content, MarkedText& out) {
  const bool loss = role == kAssistant;
  out.Add(fmt::format("<|im_start|>{}\n", role), false, true);
  out.Add(content, loss, false);
  out.Add("<|im_end|>", loss, true);
  out.Add("\n", false, true);
}

void AddLlama3(std::string_view role, std::string_view content, MarkedText& out) {
  const bool loss = role == kAssistant;
  out.Add(fmt::format("<|start_header_id|>{}<|end_header_id|>\n\n", role), false, true);
  out.Add(Trimmed(content), loss, false);
  out.Add("<|eot_id|>", loss, true);
}

}  // namespace

Result<ChatTemplate> ParseChatTemplate(std::string_view name) {
  for (const ChatTemplate chat :
       {ChatTemplate::kChatMl, ChatTemplate::kLlama3, ChatTemplate::kSmolLm}) {
    if (name == ChatTemplateName(chat)) return chat;
  }
  return MakeError(Code::kInvalid, fmt::format("data.chat is '{}'", name.substr(0, 40)),
                   "use \"auto\", \"chatml\", \"llama3\" or \"smollm\"");
}

std::string_view ChatTemplateName(ChatTemplate chat) {
  switch (chat) {
    case ChatTemplate::kChatMl:
      return "chatml";
    case ChatTemplate::kLlama3:
      return "llama3";
    case ChatTemplate::kSmolLm:
      return "smollm";
  }
  return "";
}

std::optional<ChatTemplate> RecogniseChat(const Tokenizer& tokenizer) {
  const auto has = [&](std::string_view token) { return tokenizer.SpecialId(token).has_value(); };
  if (has("<|start_header_id|>") && has("<|end_header_id|>") && has("<|eot_id|>")) {
    return ChatTemplate::kLlama3;
  }
  if (!has("<|im_start|>") || !has("<|im_end|>")) return std::nullopt;
  // SmolLM's tokenizers mark parts of repositories with tokens of their own.
  return has("<repo_name>") && has("<gh_stars>") ? ChatTemplate::kSmolLm : ChatTemplate::kChatMl;
}

MarkedText RenderChat(ChatTemplate chat, std::span<const Turn> turns) {
  MarkedText out;
  if (chat == ChatTemplate::kLlama3) {
    out.Add("<|begin_of_text|>", false, true);
    for (const Turn& turn : turns) AddLlama3(turn.role, turn.content, out);
    return out;
  }
  if (chat == ChatTemplate::kSmolLm && turns.front().role != "system") {
    AddChatMl("system", "You are a helpful AI assistant named SmolLM, trained by Hugging Face",
              out);
  }
  for (const Turn& turn : turns) AddChatMl(turn.role, turn.content, out);
  return out;
}

}  // namespace loom::data
