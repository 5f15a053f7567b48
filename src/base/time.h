// Time as the core sees it: passed in, never asked for. The boot-time clock keeps running while a
// laptop sleeps (CLOCK_BOOTTIME), so a gap is visible; wall time is for invites and logs alone.
#pragma once

#include <chrono>
#include <cstdint>

namespace loom {

using Duration = std::chrono::nanoseconds;
using namespace std::chrono_literals;  // NOLINT: 2s and 100ms read better than constructors

/// The tag of the time line; it has no now(), so that nobody below `node` can read a clock.
struct BootTimeLine {
  using duration = Duration;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<BootTimeLine, duration>;
  static constexpr bool is_steady = true;
};
using Time = BootTimeLine::time_point;

inline double Seconds(Duration d) { return std::chrono::duration<double>(d).count(); }
inline Duration FromSeconds(double s) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(s));
}

/// The daemon's clocks; simulators and tests have their own.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual Time Now() const = 0;                  ///< boot time
  virtual std::int64_t WallSeconds() const = 0;  ///< Unix time, for expiry dates and logs only
};

/// CLOCK_BOOTTIME and the system's wall clock.
const Clock& SystemClock();

}  // namespace loom
