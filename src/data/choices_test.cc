#include "data/choices.h"

#include <gtest/gtest.h>

namespace loom::data {
namespace {

TEST(Choices, AQuestionIsReadOrNamed) {
  const auto question =
      ParseQuestion(R"({"id": 1, "query": "Q ", "choices": ["a", "b"], "answer": 1})");
  ASSERT_TRUE(question.ok()) << question.error().ToString();
  EXPECT_EQ(question->query, "Q ");
  EXPECT_EQ(question->choices, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(question->answer, 1U);
  const std::pair<const char*, const char*> cases[] = {
      {"{", "invalid JSON"},
      {R"({"choices": ["a", "b"], "answer": 1})", "no text 'query'"},
      {R"({"query": "Q", "choices": ["a"], "answer": 0})", "no list 'choices' of 2 to 64"},
      {R"({"query": "Q", "choices": ["a", 3], "answer": 0})", "choice 1 is no text"},
      {R"({"query": "Q", "choices": ["a", "b"], "answer": 2})", "'answer' is no index below 2"},
      {R"({"query": "Q", "choices": ["a", "b"], "answer": "B"})", "'answer' is no index"},
  };
  for (const auto& [line, error] : cases) {
    EXPECT_NE(ParseQuestion(line).error().message.find(error), std::string::npos) << line;
  }
}

TEST(Choices, SpacesAtTheEndOfAQueryBelongToTheChoice) {
  const auto bytes = Tokenizer::Bytes();
  const auto encoded = EncodeChoice(*bytes, "The sky is \n", "blue");
  ASSERT_TRUE(encoded.ok());
  EXPECT_EQ(bytes->Decode(encoded->ids), "The sky is \nblue");
  EXPECT_EQ(encoded->first, 10U);
  EXPECT_FALSE(EncodeChoice(*bytes, "  ", "blue").ok());
}

}  // namespace
}  // namespace loom::data
