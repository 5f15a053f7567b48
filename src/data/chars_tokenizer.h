// Reading a `chars` tokenizer.json.
#pragma once

#include <memory>

#include "base/json.h"
#include "base/result.h"
#include "data/tokenizer.h"

namespace loom::data {

/// From a parsed tokenizer.json whose model is a WordLevel. Refuses every part that would change
/// ids, by name.
Result<std::unique_ptr<Tokenizer>> ReadChars(const json::Value& root);

}  // namespace loom::data
