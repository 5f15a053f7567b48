// Lines of conversations and completions: the text of each template, and on what a loss is taken.
// That the texts are Hugging Face's is shown in tests/compat.
#include "data/chat.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "data/jsonl_line.h"

namespace loom::data {
namespace {

/// The text with what a loss is taken on in brackets.
std::string Shown(const MarkedText& marked) {
  std::string out;
  std::size_t at = 0;
  for (const Span& span : marked.spans) {
    EXPECT_GT(span.size, 0U);
    const std::string part = marked.text.substr(at, span.size);
    out += span.loss ? "[" + part + "]" : part;
    at += span.size;
  }
  EXPECT_EQ(at, marked.text.size()) << "spans cover the text";
  return out;
}

std::string Line(std::string_view line, const LineRules& rules = {ChatTemplate::kChatMl, false}) {
  Fault fault{};
  const auto parsed = ParseJsonlLine(line, rules, fault);
  if (!parsed) return fmt::format("{}: {}", FaultName(fault), parsed.error().message);
  return Shown(parsed->marked);
}

constexpr std::string_view kTalk =
    R"({"messages": [{"role": "user", "content": " Hi "}, {"role": "assistant", "content": "Hey"},
        {"role": "user", "content": "?"}, {"role": "assistant", "content": "So. "}], "id": 3})";

TEST(Chat, TemplatesTakeALossOnTheAssistantsTurns) {
  EXPECT_EQ(Line(kTalk),
            "<|im_start|>user\n Hi <|im_end|>\n<|im_start|>assistant\n[Hey][<|im_end|>]\n"
            "<|im_start|>user\n?<|im_end|>\n<|im_start|>assistant\n[So. ][<|im_end|>]\n");
  EXPECT_EQ(Line(kTalk, {ChatTemplate::kLlama3, false}),
            "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n[Hey][<|eot_id|>]"
            "<|start_header_id|>user<|end_header_id|>\n\n?<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n[So.][<|eot_id|>]");
  EXPECT_TRUE(Line(kTalk, {ChatTemplate::kSmolLm, false})
                  .starts_with("<|im_start|>system\nYou are a helpful AI assistant named SmolLM, "
                               "trained by Hugging Face<|im_end|>\n<|im_start|>user\n Hi <"));
  const std::string system =
      R"({"messages": [{"role": "system", "content": "S"}, {"role": "assistant", "content": "A"}]})";
  EXPECT_EQ(Line(system, {ChatTemplate::kSmolLm, false}), Line(system));
  const std::string all = Line(kTalk, {ChatTemplate::kChatMl, true});
  EXPECT_TRUE(all.starts_with("[<|im_start|>user\n]")) << all;
}

TEST(Chat, CompletionsAndTexts) {
  EXPECT_EQ(Line(R"({"prompt": "2+2=", "completion": "4"})"), "2+2=[4]");
  EXPECT_EQ(Line(R"({"prompt": "", "completion": "4"})"), "[4]");
  EXPECT_EQ(Line(R"({"prompt": "2+2=", "completion": "4"})", {std::nullopt, true}), "[2+2=][4]");
  EXPECT_EQ(Line(R"({"text": "a", "messages": 3})"), "[a]");
}

TEST(Chat, WhatCannotBeTrainedOnIsNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"messages": []})", "empty: 'messages' is empty"},
      {R"({"messages": {}})", "malformed: 'messages' is no array but object"},
      {R"({"messages": [3]})", "malformed: message 0: no object but integer"},
      {R"({"messages": [{"role": "user"}]})", "malformed: message 0: no key 'content'"},
      {R"({"messages": [{"role": "user", "content": []}]})",
       "malformed: message 0: 'content' is no string but array"},
      {R"({"messages": [{"role": "boss", "content": "a"}]})",
       "malformed: message 0: the role 'boss'"},
      {R"({"messages": [{"role": "user", "content": "a"}]})",
       "malformed: no turn of the assistant"},
      {R"({"messages": [{"role": "assistant", "content": "", "tool_calls": [{}]}]})",
       "malformed: message 0: 'tool_calls'"},
      {R"({"prompt": "a"})", "malformed: 'prompt' without 'completion'"},
      {R"({"prompt": "a", "completion": ""})", "empty: 'completion' is empty"},
      {R"({"prompt": [], "completion": "a"})", "malformed: 'prompt' is no string but array"},
      {R"({"chosen": "a", "rejected": "b"})", "malformed: a line of preferences"},
      {R"({"id": 1})", "malformed: no key 'text', 'messages' or 'prompt'"},
  };
  for (const auto& [line, error] : cases) {
    EXPECT_TRUE(Line(line).starts_with(error)) << Line(line) << "\n" << error;
  }
  EXPECT_NE(Line(kTalk, {}).find("set data.chat"), std::string::npos);
  EXPECT_FALSE(ParseChatTemplate("jinja").ok());
}

}  // namespace
}  // namespace loom::data
