// Agreed kernels need the default floating-point environment: round to nearest even, denormals
// kept. A foreign library built with -ffast-math switches denormals off for the whole thread when
// it loads; the guard notices, sets the default for its own lifetime, and puts the old word back.
#pragma once

#include <cstdint>

namespace loom::agreed {

/// The control word of this thread (MXCSR on x86, FPCR on ARM, 0 elsewhere).
std::uint64_t FpControlWord();
void SetFpControlWord(std::uint64_t word);
/// True when rounding is to nearest even and denormals are neither flushed nor read as zero.
bool FpControlIsDefault();

/// Scope with the default environment. Every public kernel of agreed and codec opens one itself.
class FpControlGuard {
 public:
  FpControlGuard();
  ~FpControlGuard();
  FpControlGuard(const FpControlGuard&) = delete;
  FpControlGuard& operator=(const FpControlGuard&) = delete;
  /// Whether the environment had been changed by somebody (worth one warning in the log).
  bool repaired() const { return repaired_; }

 private:
  std::uint64_t saved_ = 0;
  bool repaired_ = false;
};

}  // namespace loom::agreed
