// What the transport is measured against: one process writes to a socket in a loop and another one
// reads, with TLS 1.3 as OpenSSL does it by itself, or bare. No frames, no caps, no queues, no
// heartbeats.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>

#include "base/id.h"

namespace loom {

/// Where a sink listens.
struct Door {
  std::uint16_t port = 0;
  PeerId id;
};

/// What moving the bytes took in one process, from the end of the warm-up on.
struct Usage {
  double seconds = 0;
  double cpu = 0;      ///< user and system
  double rtt = 0;      ///< of control messages meanwhile; 0: not known
  double written = 0;  ///< bytes, with what the protocol adds; 0: not known
};

struct Load {
  std::size_t warm = 0, total = 0;  ///< bytes, whole frames
  std::size_t frame = 0;
  int connections = 1;
};

/// User and system time of this process so far.
double CpuSeconds();

/// `open` tells where this process listens.
Usage PlainSink(const Load& load, bool tls, const std::function<void(const Door&)>& open);
Usage PlainSource(const Load& load, bool tls, const Door& door);

}  // namespace loom
