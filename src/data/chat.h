// Conversations as text: the chat templates of well-known models, written out in C++. A template in
// a tokenizer_config.json is a program and is never run.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/result.h"
#include "data/marked_text.h"
#include "data/tokenizer.h"

namespace loom::data {

enum class ChatTemplate : std::uint8_t {
  kChatMl,  ///< <|im_start|>ROLE\nCONTENT<|im_end|>\n
  kLlama3,  ///< <|begin_of_text|>, then
            ///< <|start_header_id|>ROLE<|end_header_id|>\n\nCONTENT<|eot_id|>
  kSmolLm,  ///< ChatML, with a system turn of its own where a conversation has none
};

struct Turn {
  std::string_view role;
  std::string_view content;
};

/// "chatml", "llama3" or "smollm".
Result<ChatTemplate> ParseChatTemplate(std::string_view name);
std::string_view ChatTemplateName(ChatTemplate chat);
/// The template whose special tokens the tokenizer has; none when it has those of none.
std::optional<ChatTemplate> RecogniseChat(const Tokenizer& tokenizer);

/// The conversation as the template writes it, byte for byte as Hugging Face's apply_chat_template.
/// A loss is taken on the content of the assistant's turns and on the token that ends each of them.
/// Requires a turn. Content of Llama 3 loses white space at both ends, as there.
MarkedText RenderChat(ChatTemplate chat, std::span<const Turn> turns);

}  // namespace loom::data
