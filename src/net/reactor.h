// The one thread that owns connections, timers and protocol state. Everything in `net` runs on it;
// other threads reach it by Post. Boost.Asio stays in the .cc files.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/time.h"

namespace loom::net {

class Reactor {
 public:
  using TimerId = std::uint64_t;  ///< never 0, never used twice

  /// Ignores SIGPIPE for the process: a closed connection is an error code here, not a signal.
  explicit Reactor(const Clock& clock = SystemClock());
  ~Reactor();
  Reactor(const Reactor&) = delete;
  Reactor& operator=(const Reactor&) = delete;

  /// Runs on the calling thread, which becomes the reactor thread, until Stop().
  void Run();
  /// Runs until done() holds or the time is over; true when done() held. For tests and short tools.
  bool RunUntil(const std::function<bool()>& done, Duration limit);
  /// Thread-safe. Run() returns soon; what was posted before it is run first.
  void Stop();
  /// Thread-safe. Runs fn on the reactor thread.
  void Post(std::function<void()> fn);

  /// Boot time of the clock passed in.
  Time Now() const;
  std::int64_t WallSeconds() const;
  /// Runs fn at that time or soon after; a time in the past means "next".
  TimerId SetTimer(Time when, std::function<void()> fn);
  /// After it the function does not run any more; an unknown or expired id is fine.
  void Cancel(TimerId id);

  struct Impl;  ///< for the adapters in net
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace loom::net
