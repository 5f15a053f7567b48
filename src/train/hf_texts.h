// The files of a model folder by name, and those that Loom carries along as they are.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "base/result.h"

namespace loom::train {

inline constexpr std::string_view kHfConfig = "config.json";
inline constexpr std::string_view kHfWeights = "model.safetensors";
inline constexpr std::string_view kHfIndex = "model.safetensors.index.json";
inline constexpr std::string_view kHfTokenizer = "tokenizer.json";
inline constexpr std::string_view kHfTokenizerConfig = "tokenizer_config.json";
inline constexpr std::string_view kHfGeneration = "generation_config.json";
inline constexpr std::string_view kHfChatTemplate = "chat_template.jinja";
inline constexpr std::size_t kMaxHfJsonBytes = 1 << 20;

struct HfTextFile {
  std::string_view name;
  std::size_t max_bytes;
};
inline constexpr std::array kHfTextFiles = {
    HfTextFile{kHfTokenizer, 64 << 20},
    HfTextFile{kHfTokenizerConfig, 4 << 20},
    HfTextFile{"special_tokens_map.json", 1 << 20},
    HfTextFile{kHfChatTemplate, 1 << 20},
    HfTextFile{kHfGeneration, 1 << 20},
};

/// UTF-8, and a JSON object where the name ends in .json; the error names file and place. Templates
/// are text to Loom: nothing in them is ever run.
Status CheckHfText(std::string_view name, std::string_view text);

}  // namespace loom::train
