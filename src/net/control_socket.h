// The door of a running peer for its own user: requests and answers as single lines of JSON text
// over the Unix-domain socket `control.sock` in the peer's folder. `pause`, `finish`, `leave`,
// `invite` and live `status` use it. Only the same user (or root) may speak. Lines are at most 64
// KiB.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "base/time.h"
#include "net/reactor.h"

namespace loom::net {

inline constexpr std::size_t kMaxControlLine = 64 * 1024;

class ControlServer {
 public:
  /// Answers one request: call once, now or later, on the reactor thread; later calls are ignored.
  using Reply = std::function<void(std::string answer)>;
  using Handler = std::function<void(const std::string& request, Reply reply)>;

  /// Listens at `path` (any length) with mode 600. A socket file that nobody answers is replaced;
  /// kConflict when somebody does.
  static Result<std::unique_ptr<ControlServer>> Listen(Reactor& reactor,
                                                       const std::filesystem::path& path,
                                                       Handler handler);
  ~ControlServer();  ///< closes and removes the socket file

 private:
  struct Impl;
  explicit ControlServer(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

/// Sends one line and waits for one line; blocks the calling thread. kNotFound when there is no
/// socket or nobody answers there (the peer does not run), kTimeout, kLimit for lines over 64 KiB.
Result<std::string> ControlRequest(const std::filesystem::path& path, const std::string& request,
                                   Duration timeout);

}  // namespace loom::net
