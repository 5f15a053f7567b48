// How a kernel gets its instruction-set paths: one always-inlined body, compiled once per target
// and vectorised by the compiler. No path may fuse multiply and add: -ffp-contract=off is
// project-wide and tests/agreed_hash compares the bits of all paths. Internal to agreed and codec.
#pragma once

#include "agreed/fp_control.h"
#include "agreed/isa.h"

#define LOOM_KERNEL_INLINE [[gnu::always_inline]] inline

#if defined(__x86_64__)
#define LOOM_TARGET_AVX2 __attribute__((target("avx2")))
#define LOOM_TARGET_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#else
#define LOOM_TARGET_AVX2
#define LOOM_TARGET_AVX512
#endif

/// The loop below has no dependence between iterations, though an output may be an input (exactly).
#if defined(__clang__)
#define LOOM_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define LOOM_INDEPENDENT _Pragma("GCC ivdep")
#endif

/// From `R name##Body params`, makes `R name##Run(isa, params...)`: the body on the chosen path, in
/// the default floating-point environment. args are the parameters' names in parentheses.
#define LOOM_KERNEL(R, name, params, args)                                               \
  [[gnu::noinline]] R name##Plain params { return name##Body args; }                     \
  [[gnu::noinline]] LOOM_TARGET_AVX2 R name##Avx2 params { return name##Body args; }     \
  [[gnu::noinline]] LOOM_TARGET_AVX512 R name##Avx512 params { return name##Body args; } \
  using name##Function = R(*) params;                                                    \
  name##Function name##Pick(::loom::agreed::Isa isa) {                                   \
    if (isa == ::loom::agreed::Isa::kAvx512) return &name##Avx512;                       \
    if (isa == ::loom::agreed::Isa::kAvx2) return &name##Avx2;                           \
    return &name##Plain;                                                                 \
  }
