// Aligned, zeroed memory.
#include "agreed/flat_buffer.h"

#include <fmt/core.h>

#include <cstring>
#include <limits>
#include <utility>

#include "base/check.h"

namespace loom::agreed {

Result<FlatBuffer> FlatBuffer::Allocate(std::size_t n) {
  constexpr std::size_t kAlignBytes = 64;
  FlatBuffer buffer;
  buffer.size_ = n;
  if (n == 0) return buffer;
  const bool representable = n <= (std::numeric_limits<std::size_t>::max() - kAlignBytes) / 4;
  const std::size_t bytes =
      representable ? (n * 4 + kAlignBytes - 1) / kAlignBytes * kAlignBytes : 0;
  void* memory = representable ? std::aligned_alloc(kAlignBytes, bytes) : nullptr;
  if (memory == nullptr) {
    return MakeError(Code::kLimit, fmt::format("no memory for {} floats", n),
                     "a smaller model or a machine with more memory");
  }
  std::memset(memory, 0, bytes);
  buffer.data_.reset(static_cast<float*>(memory));
  return buffer;
}

FlatBuffer::FlatBuffer(std::size_t n) {
  auto buffer = Allocate(n);
  LOOM_CHECK(buffer.ok(), "{}", buffer.error().ToString());
  *this = std::move(buffer).value();
}

}  // namespace loom::agreed
