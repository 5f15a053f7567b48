// Which instruction set a kernel uses. Every path of every kernel in agreed and codec gives the
// same bits (rule R28), so the choice is about speed only; tests and users may force one.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace loom::agreed {

enum class Isa : std::uint8_t {
  kPlain,   ///< what every x86-64 (or any other) machine has
  kAvx2,    ///< AVX2, without fused multiply-add
  kAvx512,  ///< AVX-512 F, BW, DQ, VL
};

/// The widest path this processor runs; asked once, thread-safe.
Isa BestIsa();
bool IsaSupported(Isa isa);

/// "plain", "avx2" or "avx512".
std::string_view IsaName(Isa isa);
/// The reverse of IsaName, also "auto" for BestIsa(); kInvalid for other names and for a path that
/// this processor lacks.
Result<Isa> ParseIsa(std::string_view name);

}  // namespace loom::agreed
