#include "wire/frame.h"

#include "wire/bytes_io.h"

namespace loom::wire {

std::array<std::byte, kFrameHeaderBytes> EncodeFrameHeader(std::uint16_t type, std::uint16_t flags,
                                                           std::uint64_t request_id,
                                                           std::size_t payload_size) {
  LOOM_CHECK(payload_size <= UINT32_MAX - kFrameHeaderBytes);
  std::array<std::byte, kFrameHeaderBytes> out{};
  const auto put = [&out](std::size_t at, std::uint64_t value, std::size_t size) {
    for (std::size_t i = 0; i < size; ++i) out[at + i] = static_cast<std::byte>(value >> (8 * i));
  };
  put(0, payload_size + kFrameHeaderBytes, 4);
  put(4, type, 2);
  put(6, flags, 2);
  put(8, request_id, 8);
  return out;
}

std::uint32_t FrameCaps::Of(std::uint16_t type) const {
  const auto it = by_type.find(type);
  return it == by_type.end() ? otherwise : it->second;
}

Result<FrameHeader> DecodeFrameHeader(ByteView header, const FrameCaps& caps) {
  Reader r(header);
  FrameHeader out;
  out.length = r.Int<std::uint32_t>();
  out.type = r.Int<std::uint16_t>();
  out.flags = r.Int<std::uint16_t>();
  out.request_id = r.Int<std::uint64_t>();
  LOOM_RETURN_IF_ERROR(r.Finish("frame header"));
  if (out.length < kFrameHeaderBytes) {
    return MakeError(Code::kCorrupt,
                     fmt::format("a frame of type {} says {} bytes, less than its header of {}",
                                 out.type, out.length, kFrameHeaderBytes));
  }
  if (const std::uint32_t cap = caps.Of(out.type); out.payload_size() > cap) {
    return MakeError(Code::kLimit, fmt::format("a frame of type {} says {} bytes; the limit is {}",
                                               out.type, out.payload_size(), cap));
  }
  return out;
}

}  // namespace loom::wire
