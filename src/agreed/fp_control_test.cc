// A foreign library has switched denormals off and changed the rounding: kernels give the same bits
// and leave the control word as they found it.
#include "agreed/fp_control.h"

#include <gtest/gtest.h>

#include <vector>

#include "agreed/adamw.h"
#include "agreed/combine.h"
#include "agreed/outer.h"
#include "agreed/random.h"
#include "agreed/schedule.h"

#if defined(__x86_64__)

namespace loom::agreed {
namespace {

constexpr std::uint64_t kFlushToZero = 0x8000;
constexpr std::uint64_t kDenormalsAreZero = 0x0040;
constexpr std::uint64_t kRoundUp = 0x4000;

struct Outputs {
  std::vector<float> sum, difference, w, b, adam_w, adam_m, adam_v, normal;
  float rate = 0.0F;
  std::vector<float> weights;
  double squares = 0.0;
  bool operator==(const Outputs&) const = default;
};

Outputs RunAll(Isa isa) {
  constexpr std::size_t kCount = 1001;
  Outputs out;
  std::vector<float> x(kCount);
  FillNormal(x, 1, 0, 1e-38F);  // half of these are denormal
  out.normal = x;
  out.sum = x;
  AddScaled(out.sum, x, 0.3F, isa);
  out.difference.resize(kCount);
  Subtract(out.sum, x, out.difference, isa);
  out.squares = SumSquares(x, isa);
  out.w = x;
  out.b.assign(kCount, 1e-40F);
  OuterStep(out.w, out.b, x, {OuterKind::kNesterov, 0.7F, 0.9F}, out.w, out.b, isa);
  out.adam_w = x;
  out.adam_m.assign(kCount, 1e-39F);
  out.adam_v.assign(kCount, 1e-42F);
  AdamWStep(out.adam_w, x, out.adam_m, out.adam_v, {}, 1e-3F, 3, 1.0F, true, isa);
  out.rate = LearningRate({ScheduleKind::kCosine, 3e-4F, 1e-5F, 10, 1000, 0}, 333);
  out.weights = TokenWeights(std::vector<std::uint64_t>{1, 2, 4});
  return out;
}

TEST(FpControl, R28FlushToZeroAndRoundingOfTheCallerChangeNothing) {
  const std::uint64_t before = FpControlWord();
  for (const Isa isa : {Isa::kPlain, Isa::kAvx2, Isa::kAvx512}) {
    if (!IsaSupported(isa)) continue;
    const Outputs want = RunAll(isa);
    for (const std::uint64_t bits : {kFlushToZero | kDenormalsAreZero, kRoundUp,
                                     kFlushToZero | kDenormalsAreZero | kRoundUp}) {
      SetFpControlWord(before | bits);
      const bool noticed = !FpControlIsDefault();
      const Outputs got = RunAll(isa);
      const std::uint64_t after = FpControlWord();
      SetFpControlWord(before);
      EXPECT_TRUE(noticed);
      EXPECT_TRUE(got == want) << IsaName(isa) << " with bits " << bits;
      EXPECT_EQ(after & 0xFFC0, (before | bits) & 0xFFC0) << "the caller's word was not put back";
    }
  }
}

TEST(FpControl, GuardReportsARepair) {
  const std::uint64_t before = FpControlWord();
  EXPECT_FALSE(FpControlGuard().repaired());
  SetFpControlWord(before | kFlushToZero);
  {
    const FpControlGuard guard;
    EXPECT_TRUE(guard.repaired());
    EXPECT_TRUE(FpControlIsDefault());
  }
  EXPECT_FALSE(FpControlIsDefault());
  SetFpControlWord(before);
}

}  // namespace
}  // namespace loom::agreed

#endif
