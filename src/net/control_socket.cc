#include "net/control_socket.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <thread>

#include "base/fd.h"

namespace loom::net {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t kMaxClients = 32;

Error Failure(std::string_view what, const fs::path& path, int code) {
  return MakeError(Code::kIo,
                   fmt::format("cannot {} {}: {}", what, path.string(), std::strerror(code)));
}

/// A socket address holds 107 bytes of path; through an open folder any path fits.
struct ShortPath {
  Fd folder{-1};
  sockaddr_un address{};

  static Status Make(const fs::path& path, ShortPath& out) {
    out.address.sun_family = AF_UNIX;
    std::string text = path.string();
    if (text.size() >= sizeof out.address.sun_path) {
      const fs::path parent = path.has_parent_path() ? path.parent_path() : ".";
      out.folder.fd = ::open(parent.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
      if (out.folder.fd < 0) return Failure("open the folder of", path, errno);
      text = fmt::format("/proc/self/fd/{}/{}", out.folder.fd, path.filename().string());
    }
    if (text.size() >= sizeof out.address.sun_path) {
      return MakeError(Code::kInvalid, fmt::format("the name of {} is too long", path.string()));
    }
    std::memcpy(out.address.sun_path, text.c_str(), text.size() + 1);
    return {};
  }
  const sockaddr* raw() const { return reinterpret_cast<const sockaddr*>(&address); }
};

bool SameUser(int fd) {
  ucred who{};
  socklen_t size = sizeof who;
  return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 &&
         (who.uid == ::geteuid() || who.uid == 0);
}

}  // namespace

struct ControlServer::Impl : std::enable_shared_from_this<Impl> {
  struct Client {
    std::unique_ptr<FdWatch> watch;
    std::string in, out;
    bool busy = false;
  };

  Reactor& reactor;
  fs::path path;
  Handler handler;
  std::unique_ptr<FdWatch> door;
  std::map<std::uint64_t, Client> clients;
  std::uint64_t next = 1;

  Impl(Reactor& r, fs::path p, Handler h) : reactor(r), path(std::move(p)), handler(std::move(h)) {}

  std::function<void()> Bound(void (Impl::*step)(std::uint64_t), std::uint64_t id) {
    return [weak = weak_from_this(), step, id] {
      if (const auto alive = weak.lock()) (alive.get()->*step)(id);
    };
  }

  void Accept(std::uint64_t) {
    for (std::size_t i = 0; i < kMaxClients; ++i) {
      const int fd = ::accept4(door->fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (fd < 0) break;
      auto watch = reactor.Watch(fd);
      if (!SameUser(fd) || clients.size() >= kMaxClients) continue;
      const std::uint64_t id = next++;
      clients[id].watch = std::move(watch);
      Read(id);
    }
    door->WhenReadable(Bound(&Impl::Accept, 0));
  }

  void Read(std::uint64_t id) {
    const auto it = clients.find(id);
    if (it == clients.end()) return;
    Client& client = it->second;
    char chunk[4096];
    while (!client.busy) {
      if (const std::size_t end = client.in.find('\n'); end != std::string::npos) {
        const std::string line = client.in.substr(0, end);
        client.in.erase(0, end + 1);
        client.busy = true;
        handler(line, [weak = weak_from_this(), id,
                       done = std::make_shared<bool>(false)](std::string answer) {
          if (std::exchange(*done, true)) return;
          if (const auto alive = weak.lock()) alive->Answer(id, std::move(answer));
        });
        return;
      }
      if (client.in.size() > kMaxControlLine) {
        clients.erase(it);
        return;
      }
      const ssize_t n = ::recv(client.watch->fd(), chunk, sizeof chunk, 0);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        client.watch->WhenReadable(Bound(&Impl::Read, id));
        return;
      }
      if (n <= 0) {
        clients.erase(it);
        return;
      }
      client.in.append(chunk, static_cast<std::size_t>(n));
    }
  }

  void Answer(std::uint64_t id, std::string answer) {
    const auto it = clients.find(id);
    if (it == clients.end()) return;
    for (char& c : answer) {
      if (c == '\n') c = ' ';
    }
    it->second.out = std::move(answer) + "\n";
    // Not at once: the handler may still be on the stack of Read.
    reactor.Post(Bound(&Impl::Write, id));
  }

  void Write(std::uint64_t id) {
    const auto it = clients.find(id);
    if (it == clients.end()) return;
    Client& client = it->second;
    while (!client.out.empty()) {
      const ssize_t n =
          ::send(client.watch->fd(), client.out.data(), client.out.size(), MSG_NOSIGNAL);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        client.watch->WhenWritable(Bound(&Impl::Write, id));
        return;
      }
      if (n <= 0) {
        clients.erase(it);
        return;
      }
      client.out.erase(0, static_cast<std::size_t>(n));
    }
    client.busy = false;
    Read(id);
  }
};

ControlServer::ControlServer(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

ControlServer::~ControlServer() {
  if (impl_->door != nullptr) ::unlink(impl_->path.c_str());
}

Result<std::unique_ptr<ControlServer>> ControlServer::Listen(Reactor& reactor, const fs::path& path,
                                                             Handler handler) {
  ShortPath where;
  LOOM_RETURN_IF_ERROR(ShortPath::Make(path, where));
  struct stat info{};
  if (::lstat(path.c_str(), &info) == 0) {
    if (!S_ISSOCK(info.st_mode)) {
      return MakeError(Code::kConflict, fmt::format("{} is not a socket", path.string()));
    }
    const Fd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (probe.fd < 0) return Failure("open a socket for", path, errno);
    if (::connect(probe.fd, where.raw(), sizeof where.address) == 0 || errno == EAGAIN) {
      return MakeError(Code::kConflict, fmt::format("another process answers at {}", path.string()),
                       "one folder serves one peer at a time");
    }
    if (::unlink(path.c_str()) != 0) return Failure("remove the stale", path, errno);
  }
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return Failure("open a socket for", path, errno);
  auto door = reactor.Watch(fd);
  // The mode of the socket object is what bind() gives the file, with no moment in between.
  ::fchmod(fd, 0600);
  if (::bind(fd, where.raw(), sizeof where.address) != 0) return Failure("bind", path, errno);
  ::chmod(path.c_str(), 0600);
  if (::listen(fd, 128) != 0) return Failure("listen on", path, errno);
  auto impl = std::make_shared<Impl>(reactor, path, std::move(handler));
  impl->door = std::move(door);
  impl->Accept(0);
  return std::unique_ptr<ControlServer>(new ControlServer(std::move(impl)));
}

Result<std::string> ControlRequest(const fs::path& path, const std::string& request,
                                   Duration timeout) {
  if (request.size() > kMaxControlLine || request.find('\n') != std::string::npos) {
    return MakeError(Code::kLimit, fmt::format("a request of {} bytes; one line of at most {}",
                                               request.size(), kMaxControlLine));
  }
  ShortPath where;
  LOOM_RETURN_IF_ERROR(ShortPath::Make(path, where));
  const Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (socket.fd < 0) return Failure("open a socket for", path, errno);
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  const auto late = [&] {
    return MakeError(Code::kTimeout, fmt::format("the peer in {} did not answer within {:.0f} s",
                                                 path.parent_path().string(), Seconds(timeout)));
  };
  // A peer that stands still takes no calls, and then its queue is full: no event tells of a place.
  while (::connect(socket.fd, where.raw(), sizeof where.address) != 0) {
    if (errno == EAGAIN || errno == EINTR) {
      if (std::chrono::steady_clock::now() >= deadline) return late();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      continue;
    }
    if (errno == ENOENT || errno == ECONNREFUSED) {
      return MakeError(Code::kNotFound,
                       fmt::format("no peer runs in {}", path.parent_path().string()),
                       "start it with loom host or loom join");
    }
    return Failure("connect to", path, errno);
  }
  const auto wait = [&](short what) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    pollfd p{socket.fd, what, 0};
    return left.count() > 0 && ::poll(&p, 1, static_cast<int>(left.count())) == 1;
  };
  std::string out = request + "\n";
  while (!out.empty()) {
    if (!wait(POLLOUT)) return late();
    const ssize_t n = ::send(socket.fd, out.data(), out.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n < 0) return Failure("write to", path, errno);
    out.erase(0, static_cast<std::size_t>(n));
  }
  std::string in;
  char chunk[4096];
  while (in.find('\n') == std::string::npos) {
    if (in.size() > kMaxControlLine) {
      return MakeError(Code::kLimit, fmt::format("an answer of over {} bytes", kMaxControlLine));
    }
    if (!wait(POLLIN)) return late();
    const ssize_t n = ::recv(socket.fd, chunk, sizeof chunk, MSG_DONTWAIT);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n <= 0) {
      return MakeError(Code::kRefused, fmt::format("the peer in {} closed without an answer",
                                                   path.parent_path().string()));
    }
    in.append(chunk, static_cast<std::size_t>(n));
  }
  return in.substr(0, in.find('\n'));
}

}  // namespace loom::net
