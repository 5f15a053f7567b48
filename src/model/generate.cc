// The loop of generation and its sampler; plain C++ over Decoder.
#include "model/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "agreed/random.h"
#include "base/check.h"

namespace loom::model {
namespace {

constexpr std::uint64_t kSampleStream = 0x67656e6572617465;  // "generate"

Status CheckOptions(const GenerateOptions& options) {
  if (options.greedy) return {};
  if (!(options.temperature > 0.0f) || !std::isfinite(options.temperature)) {
    return MakeError(Code::kInvalid,
                     fmt::format("temperature is {}, it must be above 0", options.temperature),
                     "--greedy always takes the most likely token");
  }
  if (!(options.top_p > 0.0f && options.top_p <= 1.0f)) {
    return MakeError(Code::kInvalid,
                     fmt::format("top_p is {}, allowed are above 0 to 1", options.top_p));
  }
  return {};
}

std::int32_t MostLikely(std::span<const float> logits) {
  return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

}  // namespace

std::int32_t SampleToken(std::span<const float> logits, const GenerateOptions& options,
                         std::uint64_t counter) {
  LOOM_CHECK(!logits.empty());
  if (options.greedy) return MostLikely(logits);
  // Candidates from most to least likely, ties by lower id; the order is what top_k and top_p cut.
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto logit = [&](std::int32_t id) { return logits[static_cast<std::size_t>(id)]; };
  const auto before = [&](std::int32_t a, std::int32_t b) {
    return logit(a) != logit(b) ? logit(a) > logit(b) : a < b;
  };
  std::size_t kept = order.size();
  if (options.top_k > 0) kept = std::min<std::size_t>(kept, options.top_k);
  const auto cut = order.begin() + static_cast<std::ptrdiff_t>(kept);
  std::partial_sort(order.begin(), cut, order.end(), before);

  std::vector<double> weight(kept);
  double total = 0;
  for (std::size_t i = 0; i < kept; ++i) {
    weight[i] = std::exp((static_cast<double>(logit(order[i])) - logit(order[0])) /
                         static_cast<double>(options.temperature));
    total += weight[i];
  }
  if (options.top_p < 1.0f) {
    const double enough = total * static_cast<double>(options.top_p);
    double sum = 0;
    std::size_t i = 0;
    while (i < kept && sum < enough) sum += weight[i++];
    kept = i;
    total = sum;
  }
  double left = agreed::Philox(options.seed, kSampleStream).Uniform(counter) * total;
  for (std::size_t i = 0; i + 1 < kept; ++i) {
    left -= weight[i];
    if (left < 0) return order[i];
  }
  return order[kept - 1];
}

Result<Generated> Generate(Model& model, std::span<const std::int32_t> prompt,
                           const GenerateOptions& options, const TokenCallback& on_token) {
  LOOM_RETURN_IF_ERROR(CheckOptions(options));
  if (prompt.empty()) {
    return MakeError(Code::kInvalid, "the prompt has no tokens", "give at least one character");
  }
  const std::size_t context = model.config().context;
  // Half a window, at least one token, is what a slide keeps.
  const std::size_t keep = std::max<std::size_t>(1, context / 2);
  LOOM_ASSIGN(const std::unique_ptr<Decoder> decoder, model.NewDecoder());
  std::vector<std::int32_t> seen(
      prompt.end() - static_cast<std::ptrdiff_t>(std::min(prompt.size(), context)), prompt.end());
  Generated out;
  if (options.max_new_tokens == 0) return out;
  LOOM_ASSIGN(std::vector<float> logits, decoder->Feed(seen));
  for (std::uint64_t n = 0;; ++n) {
    for (const float x : logits) {
      if (!std::isfinite(x)) {
        return MakeError(Code::kInvalid, "the model's logits are not finite",
                         "its weights are damaged or training diverged");
      }
    }
    const std::int32_t id = SampleToken(logits, options, n);
    if (std::find(options.stop_ids.begin(), options.stop_ids.end(), id) != options.stop_ids.end()) {
      out.reason = StopReason::kStopToken;
      return out;
    }
    out.ids.push_back(id);
    seen.push_back(id);
    if (on_token && !on_token(id)) {
      out.reason = StopReason::kCallback;
      return out;
    }
    if (out.ids.size() == options.max_new_tokens) return out;
    std::size_t fresh = 1;
    if (decoder->length() == context) {
      if (options.at_context == AtContext::kStop) {
        out.reason = StopReason::kContext;
        return out;
      }
      decoder->Clear();
      seen.erase(seen.begin(), seen.end() - static_cast<std::ptrdiff_t>(keep));
      fresh = seen.size();
    }
    LOOM_ASSIGN(logits, decoder->Feed(std::span(seen).last(fresh)));
  }
}

}  // namespace loom::model
