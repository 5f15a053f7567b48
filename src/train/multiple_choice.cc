#include "train/multiple_choice.h"

#include <fmt/core.h>

#include <algorithm>
#include <span>

#include "base/utf8.h"

namespace loom::train {
namespace {

std::size_t Best(const std::vector<double>& values) {
  return static_cast<std::size_t>(std::ranges::max_element(values) - values.begin());
}

}  // namespace

Result<std::vector<double>> ChoiceLikelihoods(model::Model& model, const data::Tokenizer& tokenizer,
                                              const data::Question& question) {
  const std::size_t context = model.config().context;
  std::vector<double> out;
  out.reserve(question.choices.size());
  for (const std::string& choice : question.choices) {
    LOOM_ASSIGN(const data::Continuation text,
                data::EncodeChoice(tokenizer, question.query, choice));
    if (text.ids.size() - text.first > context) {
      return MakeError(Code::kLimit, fmt::format("a choice of {} tokens, the context has {}",
                                                 text.ids.size() - text.first, context));
    }
    const std::size_t length = std::min(text.ids.size() - 1, context);
    const std::size_t begin = text.ids.size() - 1 - length;  // of the inputs
    std::vector<std::int32_t> targets(text.ids.begin() + static_cast<std::ptrdiff_t>(begin) + 1,
                                      text.ids.end());
    std::fill_n(targets.begin(), text.first - begin - 1, model::kIgnoreToken);
    const auto inputs = std::span(text.ids).subspan(begin, length);
    LOOM_ASSIGN(const model::LossSum loss, model.Loss(model::Batch{inputs, targets, 1, length}));
    out.push_back(-loss.nll);
  }
  return out;
}

void Count(const data::Question& question, const std::vector<double>& likelihoods,
           ChoiceScore& score) {
  std::vector<double> normalized(likelihoods.size());
  for (std::size_t i = 0; i < likelihoods.size(); ++i) {
    normalized[i] = likelihoods[i] / static_cast<double>(CountCodePoints(question.choices[i]));
  }
  ++score.questions;
  score.right += Best(likelihoods) == question.answer ? 1 : 0;
  score.right_normalized += Best(normalized) == question.answer ? 1 : 0;
}

}  // namespace loom::train
