// The transport's own messages: the hello that opens a connection, the refusal that may answer it,
// and the few frames that keep it. Everything decoded here is untrusted and bounded.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/id.h"
#include "base/result.h"

namespace loom::net {

enum FrameType : std::uint16_t {
  kHelloFrame = 1,   ///< first frame of each side
  kRefuseFrame = 2,  ///< in place of a hello, then the connection closes
  kReadyFrame = 3,   ///< the dialling side accepts the hello it got; both are up
  kPingFrame = 4,    ///< u64 for the pong
  kPongFrame = 5,
  kByeFrame = 6,     ///< text: why this side leaves
  kNoticeFrame = 7,  ///< text for the other side's log
};

enum class ConnectionKind : std::uint8_t { kControl = 0, kBulk = 1 };
using InstanceId = std::array<std::byte, 16>;  ///< random per process: tells a restart from a copy

struct Hello {
  std::uint32_t generation = 0;
  RunId run;
  ConnectionKind kind = ConnectionKind::kControl;
  InstanceId instance{};
  std::uint64_t session =
      0;  ///< drawn by the dialling side; ties bulk connections to a control one
  std::uint64_t features = 0;
  std::uint16_t listen_port = 0;
  std::string version;
  std::vector<std::string> announce;
  Bytes blob;

  Bytes Encode() const;
  /// The first two fields have the same place in every generation; the rest is read only when the
  /// generation is ours.
  static Result<Hello> Decode(ByteView bytes, std::uint32_t our_generation);
};

enum class RefuseCode : std::uint8_t {
  kGeneration = 1,
  kRun = 2,
  kPolicy = 3,
  kDuplicate = 4,
  kCrossed = 5,
  kSelf = 6,
  kFull = 7,
  kSession = 8
};

struct Refusal {
  RefuseCode code = RefuseCode::kPolicy;
  std::string text;

  Bytes Encode() const;
  static Result<Refusal> Decode(ByteView bytes);
};

/// Text of a peer made fit for a log: one line of printable ASCII, at most 512 bytes.
std::string CleanText(std::string_view text);

}  // namespace loom::net
