// The one thread that owns connections, timers and protocol state. Everything in `net` runs on it;
// other threads reach it by Post. Boost.Asio stays in the .cc files.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "net/socket.h"

namespace loom::net {

/// One non-blocking descriptor in the reactor. Destroying it closes the descriptor; no callback
/// runs after.
class FdWatch {
 public:
  virtual ~FdWatch() = default;
  virtual int fd() const = 0;
  /// Runs fn once, when a read (or write) would not block or the descriptor has failed. A second
  /// call before the first one fired replaces its function.
  virtual void WhenReadable(std::function<void()> fn) = 0;
  virtual void WhenWritable(std::function<void()> fn) = 0;
};

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
  /// `poll` looks at done() that often even when nothing happens.
  bool RunUntil(const std::function<bool()>& done, Duration limit, Duration poll = Duration::max());
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

  /// Takes over an open, non-blocking descriptor.
  std::unique_ptr<FdWatch> Watch(int fd);
  using Resolved = std::function<void(Result<std::vector<SocketAddress>>)>;
  /// Looks a host name up on a thread of its own and calls back on the reactor thread.
  void Resolve(const HostPort& where, Resolved done);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace loom::net
