// Files that hold token ids already, as nanoGPT and llm.c write them:
//   nanoGPT  u16 ids and nothing else; it cannot be told from text, so it is read only when asked
//   for llm.c    256 i32: magic, version, count, zeros; then the ids: u16 with magic 20240520
//   version 1,
//            u32 with magic 20240801 version 7
// little-endian. Sizes must be exact.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "base/result.h"
#include "data/byte_input.h"

namespace loom::data {

enum class TokenFileKind : std::uint8_t { kNanoGpt, kLlmC };

/// Calls visit with the ids in order, some at a time, none more than 2^31 - 1; an error of visit
/// ends the read and is returned. kCorrupt: a wrong header, or another number of ids than promised.
Status ReadTokenFile(ByteInput& input, TokenFileKind kind,
                     const std::function<Status(std::span<const std::int32_t>)>& visit);

}  // namespace loom::data
