// The frame of a tokenizer.json that Loom writes.
#pragma once

#include <string>

#include "base/json.h"

namespace loom::data {

/// No added tokens, no normalizer, no post-processor: only what a `bytes` or `chars` needs.
std::string TokenizerJson(json::Value pre_tokenizer, json::Value decoder, json::Value model);

}  // namespace loom::data
