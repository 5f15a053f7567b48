// What every fuzz target shares: the entry point's name, bytes as our views, and a check that
// reports the broken property as a crash.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "base/bytes.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace loom::fuzz {

inline ByteView View(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const std::byte*>(data), size};
}

inline std::string_view Text(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// Aborts, which libFuzzer keeps as a finding, when a property of the decoder does not hold.
inline void Expect(bool holds, const char* property) {
  if (holds) return;
  std::fprintf(stderr, "fuzz: broken property: %s\n", property);
  std::abort();
}

}  // namespace loom::fuzz
