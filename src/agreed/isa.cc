// Asks the processor once; the names are those of run.toml and of --json output.
#include "agreed/isa.h"

#include <fmt/core.h>

namespace loom::agreed {

bool IsaSupported(Isa isa) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  switch (isa) {
    case Isa::kPlain:
      return true;
    case Isa::kAvx2:
      return __builtin_cpu_supports("avx2") != 0;
    case Isa::kAvx512:
      return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
             __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0;
  }
  return false;
#else
  return isa == Isa::kPlain;
#endif
}

Isa BestIsa() {
  static const Isa best = IsaSupported(Isa::kAvx512) ? Isa::kAvx512
                          : IsaSupported(Isa::kAvx2) ? Isa::kAvx2
                                                     : Isa::kPlain;
  return best;
}

std::string_view IsaName(Isa isa) {
  switch (isa) {
    case Isa::kPlain:
      return "plain";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
  }
  return "unknown";
}

Result<Isa> ParseIsa(std::string_view name) {
  if (name == "auto") return BestIsa();
  for (const Isa isa : {Isa::kPlain, Isa::kAvx2, Isa::kAvx512}) {
    if (name != IsaName(isa)) continue;
    if (IsaSupported(isa)) return isa;
    return MakeError(Code::kInvalid, fmt::format("this processor has no {}", name),
                     "use 'auto' or 'plain'; the results are the same bits");
  }
  return MakeError(Code::kInvalid,
                   fmt::format("'{}' is not one of auto, plain, avx2, avx512", name.substr(0, 40)));
}

}  // namespace loom::agreed
