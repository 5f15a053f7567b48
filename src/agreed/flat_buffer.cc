// Aligned, zeroed memory.
#include "agreed/flat_buffer.h"

#include <cstring>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/memory.h"

namespace loom::agreed {

namespace {

/// From here on what is available is looked up first: a look costs more than a small buffer.
constexpr std::size_t kLargeBytes = 64U << 20;

}  // namespace

Result<FlatBuffer> FlatBuffer::Allocate(std::size_t n, std::string_view what) {
  constexpr std::size_t kAlignBytes = 64;
  FlatBuffer buffer;
  buffer.size_ = n;
  if (n == 0) return buffer;
  const bool representable = n <= (std::numeric_limits<std::size_t>::max() - kAlignBytes) / 4;
  const std::size_t bytes =
      representable ? (n * 4 + kAlignBytes - 1) / kAlignBytes * kAlignBytes : 0;
  if (!representable)
    return NoMemory(what, std::numeric_limits<std::size_t>::max(), AvailableMemory());
  if (bytes >= kLargeBytes) {
    const std::uint64_t available = AvailableMemory();
    if (available < bytes) return NoMemory(what, bytes, available);
  }
  void* memory = std::aligned_alloc(kAlignBytes, bytes);
  if (memory == nullptr) return NoMemory(what, bytes, AvailableMemory());
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
