// How the owner of threads lends its free cores to work over tiles. The layers with the numbers own
// no threads; what they do with a range of tiles is independent of every other range, so neither
// the number of threads nor the cut into ranges changes a bit.
#pragma once

#include <cstddef>
#include <functional>

namespace loom::agreed {

using RangeBody = std::function<void(std::size_t begin, std::size_t end)>;

/// Calls the body for ranges that together cover [0, n) once, in any order and perhaps at the same
/// time; returns after the last one. The body does not throw.
using ParallelFor = std::function<void(std::size_t n, const RangeBody& body)>;

/// All of it on the calling thread.
inline ParallelFor OneThread() {
  return [](std::size_t n, const RangeBody& body) {
    if (n > 0) body(0, n);
  };
}

}  // namespace loom::agreed
