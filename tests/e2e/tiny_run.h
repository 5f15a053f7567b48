// run.toml of a model that learns in a blink, for tests and measurements with many processes.
#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>

namespace loom::e2e {

/// The lines of [optim], [sync] and [local] that a test cares about, each with its line end; the
/// corpus is story.txt beside the file.
inline std::string TinyRun(std::string_view optim, std::string_view sync, std::string_view local) {
  return fmt::format(R"([model]
preset = "loom-0.2m"
layers = 1
width = 32
heads = 2
kv_heads = 2
head_dim = 16
ffn = 64
context = 32
[data]
paths = ["story.txt"]
tokenizer = "chars"
[optim]
{}[sync]
tile_elements = 2048
{}[local]
threads = 1
{})",
                     optim, sync, local);
}

}  // namespace loom::e2e
