// Text, one token at a time: prefill the prompt, then decode with cached keys and values. Sampling
// is plain C++ on a counter-based generator, so seed, prompt and logits give the tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/result.h"
#include "model/model.h"

namespace loom::model {

/// What happens when prompt and new tokens fill the context.
enum class AtContext : std::uint8_t {
  kSlide,  ///< drop the oldest half of the window, prefill the rest again, go on
  kStop,   ///< end with StopReason::kContext
};

struct GenerateOptions {
  std::uint64_t max_new_tokens = 256;
  bool greedy = false;       ///< the most likely token, lowest id first; ignores the next three
  float temperature = 1.0f;  ///< > 0; logits are divided by it
  std::uint32_t top_k = 0;   ///< keep the k most likely tokens; 0 keeps all
  float top_p = 1.0f;        ///< then the fewest whose probabilities reach p; in (0, 1]
  std::uint64_t seed = 0;
  std::vector<std::int32_t> stop_ids;  ///< ends before the stop token is emitted
  AtContext at_context = AtContext::kSlide;
};

enum class StopReason : std::uint8_t { kLength, kStopToken, kContext, kCallback };

struct Generated {
  std::vector<std::int32_t> ids;  ///< new tokens only
  StopReason reason = StopReason::kLength;
};

/// Called with each new token; false ends the generation.
using TokenCallback = std::function<bool(std::int32_t)>;

/// Of a prompt longer than the context only its last `context` tokens are seen.
/// Errors: empty prompt, id outside the vocabulary, option outside its range.
Result<Generated> Generate(Model& model, std::span<const std::int32_t> prompt,
                           const GenerateOptions& options, const TokenCallback& on_token = {});

/// Draws from softmax(logits) under the options; `counter` numbers the draw within the seed.
/// Requires: finite logits, options in range.
std::int32_t SampleToken(std::span<const float> logits, const GenerateOptions& options,
                         std::uint64_t counter);

}  // namespace loom::model
