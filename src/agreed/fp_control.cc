// Reads and writes the floating-point control word of the calling thread.
#include "agreed/fp_control.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace loom::agreed {
namespace {

#if defined(__x86_64__)
// MXCSR: rounding mode (bits 13-14), flush-to-zero (15), denormals-are-zero (6).
constexpr std::uint64_t kModeBits = 0x6000 | 0x8000 | 0x0040;
#elif defined(__aarch64__)
// FPCR: rounding mode (bits 22-23), flush-to-zero (24), alternative flushing (1, 0).
constexpr std::uint64_t kModeBits = 0x1C00000 | 0x3;
#else
constexpr std::uint64_t kModeBits = 0;
#endif

}  // namespace

std::uint64_t FpControlWord() {
#if defined(__x86_64__)
  return _mm_getcsr();
#elif defined(__aarch64__)
  std::uint64_t word = 0;
  asm volatile("mrs %0, fpcr" : "=r"(word));
  return word;
#else
  return 0;
#endif
}

void SetFpControlWord([[maybe_unused]] std::uint64_t word) {
#if defined(__x86_64__)
  _mm_setcsr(static_cast<unsigned>(word));
#elif defined(__aarch64__)
  asm volatile("msr fpcr, %0" : : "r"(word));
#endif
}

bool FpControlIsDefault() { return (FpControlWord() & kModeBits) == 0; }

FpControlGuard::FpControlGuard() : saved_(FpControlWord()), repaired_((saved_ & kModeBits) != 0) {
  if (repaired_) SetFpControlWord(saved_ & ~kModeBits);
}

FpControlGuard::~FpControlGuard() {
  if (repaired_) SetFpControlWord(saved_);
}

}  // namespace loom::agreed
