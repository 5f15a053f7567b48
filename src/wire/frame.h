// The frame, the unit of every connection: {u32 length, u16 type, u16 flags, u64 request id}, then
// the payload, little-endian. The length counts the header too. Each length is checked against the
// cap of its type before anything is allocated.
#pragma once

#include <array>
#include <cstdint>
#include <map>

#include "base/bytes.h"
#include "base/result.h"

namespace loom::wire {

inline constexpr std::size_t kFrameHeaderBytes = 16;
/// Types below this one belong to the transport itself.
inline constexpr std::uint16_t kFirstUserType = 16;
/// No frame before the end of the hello is larger than this, header included.
inline constexpr std::uint32_t kMaxHelloFrame = 64 * 1024;

struct FrameHeader {
  std::uint32_t length = 0;  ///< header and payload
  std::uint16_t type = 0;
  std::uint16_t flags = 0;
  std::uint64_t request_id = 0;

  bool operator==(const FrameHeader&) const = default;
  std::size_t payload_size() const { return length - kFrameHeaderBytes; }
};

/// Header bytes for a payload of that size; the size must fit (our own senders check their caps).
std::array<std::byte, kFrameHeaderBytes> EncodeFrameHeader(std::uint16_t type, std::uint16_t flags,
                                                           std::uint64_t request_id,
                                                           std::size_t payload_size);

/// Largest payload per frame type.
struct FrameCaps {
  std::uint32_t otherwise = 1 << 20;  ///< of a type that is not in the table
  std::map<std::uint16_t, std::uint32_t> by_type;

  std::uint32_t Of(std::uint16_t type) const;
};

/// Reads the 16 bytes of a header and holds its length against the cap of its type.
/// kLimit names the type, the length and the limit; kCorrupt a length that is shorter than the
/// header.
Result<FrameHeader> DecodeFrameHeader(ByteView header, const FrameCaps& caps);

}  // namespace loom::wire
