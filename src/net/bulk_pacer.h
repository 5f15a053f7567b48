// Keeps bulk from filling the queue of the slowest link on the way, so that control messages wait
// less than 100 ms over the base round trip (R34). Pure: samples of the kernel's own round-trip
// times in, a pacing rate out. Those times do not contain the scheduling of either process.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/time.h"

namespace loom::net {

/// What the kernel knows of a TCP connection's path.
struct PathSample {
  Duration rtt{0}, min_rtt{0};
  std::uint64_t delivery_rate = 0;  ///< bytes per second that arrived lately
};

class BulkPacer {
 public:
  static constexpr Duration kTarget = 50ms;  ///< queueing that is tolerated
  static constexpr std::uint64_t kLeastRate = 64 * 1024;

  /// Called some times a second while bulk flows. True when rate() has changed.
  bool OnSample(const PathSample& sample) {
    const std::uint64_t before = rate_;
    const Duration queue = sample.rtt - sample.min_rtt;
    if (queue > kTarget) {
      // Below what the link delivers, so that the queue drains: the fuller it is, the faster.
      const double part = queue > 2 * kTarget ? 0.5 : 0.85;
      const double base = static_cast<double>(rate_ == 0 ? sample.delivery_rate
                                                         : std::min(rate_, sample.delivery_rate));
      rate_ = std::max(kLeastRate, static_cast<std::uint64_t>(part * base));
    } else if (rate_ != 0) {
      rate_ += rate_ / 32 + 1;
      const bool not_needed = queue < kTarget / 4 && rate_ > 4 * sample.delivery_rate;
      if (not_needed) rate_ = 0;
    }
    return rate_ != before;
  }

  /// Bytes per second; 0 = as fast as TCP likes.
  std::uint64_t rate() const { return rate_; }

 private:
  std::uint64_t rate_ = 0;
};

/// Of a connected TCP socket; zeros where the kernel does not say.
PathSample ReadPath(int fd);
/// Lets the kernel pace the socket; 0 lifts it.
void SetPacingRate(int fd, std::uint64_t bytes_per_second);

}  // namespace loom::net
