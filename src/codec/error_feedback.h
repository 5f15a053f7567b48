// Error feedback (rule R21): what a lossy codec left out of this round is added to the next one.
// Pure functions; when a residual becomes current, is restored or carried, is the caller's
// decision.
#pragma once

#include <span>

#include "codec/codec.h"

namespace loom::codec {

/// Encodes x + residual into out and writes what was lost to residual_out:
///   s = x + residual,  out = encode(s),  residual_out = s - decode(out)
/// residual, residual_out and x have one length; residual_out may be residual or x (same range
/// exactly). An empty residual stands for zeros. On error residual_out is unspecified, so keep the
/// old residual apart until the round is recorded.
Status EncodeWithFeedback(const Codec& codec, std::span<const float> x,
                          std::span<const float> residual, MutableByteView out,
                          std::span<float> residual_out);

/// Work that was left out of the round in mode `carried`: the whole x goes back, residual += x.
void CarryBack(std::span<const float> x, std::span<float> residual);

}  // namespace loom::codec
