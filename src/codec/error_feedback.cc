// Error feedback over any codec.
#include "codec/error_feedback.h"

#include <algorithm>
#include <vector>

#include "agreed/combine.h"
#include "base/check.h"

namespace loom::codec {

Status EncodeWithFeedback(const Codec& codec, std::span<const float> x,
                          std::span<const float> residual, MutableByteView out,
                          std::span<float> residual_out) {
  LOOM_CHECK(residual.empty() || residual.size() == x.size(), "x {} residual {}", x.size(),
             residual.size());
  LOOM_CHECK(residual_out.size() == x.size(), "x {} residual_out {}", x.size(),
             residual_out.size());
  if (residual.empty()) {
    if (residual_out.data() != x.data()) std::copy(x.begin(), x.end(), residual_out.begin());
  } else {
    agreed::Add(x, residual, residual_out);
  }
  LOOM_RETURN_IF_ERROR(codec.Encode(residual_out, out));
  std::vector<float> decoded(x.size());
  LOOM_RETURN_IF_ERROR(codec.Decode(out, decoded));
  agreed::Subtract(residual_out, decoded, residual_out);
  return {};
}

void CarryBack(std::span<const float> x, std::span<float> residual) {
  agreed::Add(residual, x, residual);
}

}  // namespace loom::codec
