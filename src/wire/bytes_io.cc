#include "wire/bytes_io.h"

#include <bit>

namespace loom::wire {

void Writer::F32(float value) { Int(std::bit_cast<std::uint32_t>(value)); }
void Writer::F64(double value) { Int(std::bit_cast<std::uint64_t>(value)); }

void Writer::Count(std::size_t n) {
  LOOM_CHECK(n <= UINT32_MAX, "{} items do not fit a u32 count", n);
  Int(static_cast<std::uint32_t>(n));
}

void Writer::Var(ByteView bytes) {
  Count(bytes.size());
  Raw(bytes);
}

bool Reader::Bool() {
  const auto value = Int<std::uint8_t>();
  if (value > 1) Fail("a flag that is neither 0 nor 1");
  return value == 1;
}

float Reader::F32() { return std::bit_cast<float>(Int<std::uint32_t>()); }
double Reader::F64() { return std::bit_cast<double>(Int<std::uint64_t>()); }

ByteView Reader::Raw(std::size_t n) {
  if (!ok()) return {};
  if (n > in_.size()) {
    Fail("the end of the input");
    return {};
  }
  const ByteView out = in_.first(n);
  in_ = in_.subspan(n);
  return out;
}

ByteView Reader::Var(std::size_t max) {
  const std::size_t n = Int<std::uint32_t>();
  if (n > max) {
    Fail(fmt::format("a length of {} over the limit {}", n, max));
    return {};
  }
  return Raw(n);
}

std::size_t Reader::Count(std::size_t max, std::size_t min_item_bytes) {
  const std::size_t n = Int<std::uint32_t>();
  if (n > max || n * min_item_bytes > in_.size()) {
    Fail(fmt::format("a count of {} over the limit {} or the {} bytes left", n, max, in_.size()));
    return 0;
  }
  return n;
}

void Reader::Fail(std::string_view what) {
  if (error_.empty()) error_ = what;
  in_ = {};
}

Status Reader::Finish(std::string_view message_name) const {
  if (!ok()) return MakeError(Code::kCorrupt, fmt::format("{}: met {}", message_name, error_));
  if (!in_.empty()) {
    return MakeError(Code::kCorrupt,
                     fmt::format("{}: {} bytes left over", message_name, in_.size()));
  }
  return {};
}

}  // namespace loom::wire
