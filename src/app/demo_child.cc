#include "app/demo_child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/file.h"

namespace loom::app {
namespace {

constexpr std::size_t kMaxLine = 1U << 20;
constexpr std::size_t kMaxLog = 64U << 20;

Error Failed(const char* what, const std::string& path) {
  return MakeError(Code::kIo, fmt::format("{} {}: {}", what, path, std::strerror(errno)));
}

void WriteAll(int fd, std::string_view text) {
  while (fd >= 0 && !text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (std::string& text : texts) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

std::vector<std::string> Environment(const std::vector<std::string>& added) {
  std::vector<std::string> out;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view old(*entry);
    const std::string_view name = old.substr(0, old.find('=') + 1);
    const bool replaced = std::any_of(added.begin(), added.end(),
                                      [&](const std::string& a) { return a.starts_with(name); });
    if (!replaced) out.emplace_back(old);
  }
  out.insert(out.end(), added.begin(), added.end());
  return out;
}

/// Between fork and exec: nothing that allocates or locks.
[[noreturn]] void Become(const char* program, char* const* arguments, char* const* environment,
                         int out, int log, pid_t parent) {
  ::setpgid(0, 0);  // Ctrl-C reaches the parent alone, which ends its children itself
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(126);
  const int null = ::open("/dev/null", O_RDONLY);
  if (null < 0 || ::dup2(null, 0) < 0 || ::dup2(out, 1) < 0 || ::dup2(log, 2) < 0) ::_exit(126);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execve(program, arguments, environment);
  ::_exit(127);
}

}  // namespace

Result<std::unique_ptr<Child>> Child::Start(const Options& options) {
  std::vector<std::string> arguments{options.program};
  arguments.insert(arguments.end(), options.arguments.begin(), options.arguments.end());
  std::vector<std::string> environment = Environment(options.environment);
  const std::vector<char*> argv = Pointers(arguments);
  const std::vector<char*> envp = Pointers(environment);

  const int log = ::open(options.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (log < 0) return Failed("cannot write", options.log);
  int events = -1;
  if (!options.events.empty()) {
    events = ::open(options.events.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (events < 0) {
      const Error error = Failed("cannot write", options.events);
      ::close(log);
      return error;
    }
  }
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0) {
    const Error error = Failed("cannot make a pipe for", options.program);
    ::close(log);
    if (events >= 0) ::close(events);
    return error;
  }
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) Become(options.program.c_str(), argv.data(), envp.data(), pipe[1], log, parent);
  ::close(pipe[1]);
  ::close(log);
  if (pid < 0) {
    const Error error = Failed("cannot start", options.program);
    ::close(pipe[0]);
    if (events >= 0) ::close(events);
    return error;
  }
  ::fcntl(pipe[0], F_SETFL, O_NONBLOCK);
  return std::unique_ptr<Child>(new Child(options, pid, pipe[0], events));
}

Child::~Child() {
  if (!Ended()) {
    ::kill(pid_, SIGKILL);
    ::kill(pid_, SIGCONT);
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  if (fd_ >= 0) ::close(fd_);
  if (events_fd_ >= 0) ::close(events_fd_);
}

Status Child::Read(const std::function<void(const json::Value&)>& line) {
  std::array<char, 1U << 16> buffer;
  while (fd_ >= 0) {
    const ssize_t n = ::read(fd_, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (n <= 0) {
      ::close(fd_);
      fd_ = -1;
      break;
    }
    const std::string_view text(buffer.data(), static_cast<std::size_t>(n));
    WriteAll(events_fd_, text);
    partial_ += text;
    std::size_t begin = 0;
    for (std::size_t end; (end = partial_.find('\n', begin)) != std::string::npos;
         begin = end + 1) {
      const auto value = json::Parse(std::string_view(partial_).substr(begin, end - begin));
      if (value && value->AsObject() != nullptr) line(*value);
    }
    partial_.erase(0, begin);
    if (partial_.size() > kMaxLine) {
      return MakeError(Code::kLimit, fmt::format("process {} printed a line of more than {} bytes",
                                                 pid_, kMaxLine));
    }
  }
  return {};
}

bool Child::Ended() {
  if (ended_) return true;
  int status = 0;
  if (::waitpid(pid_, &status, WNOHANG) != pid_) return false;
  ended_ = true;
  exit_code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return true;
}

void Child::Signal(int signal) {
  if (!Ended()) ::kill(pid_, signal);
}

std::string Child::LogTail(std::size_t lines) const {
  auto text = ReadFile(options_.log, kMaxLog);
  if (!text) return {};
  while (!text->empty() && text->back() == '\n') text->pop_back();
  std::size_t at = text->size();
  for (std::size_t i = 0; i < lines && at > 0 && at != std::string::npos; ++i) {
    at = text->rfind('\n', at - 1);
  }
  return at == std::string::npos || at == 0 ? *text : text->substr(at + 1);
}

void WaitForOutput(const std::vector<Child*>& children, Duration limit) {
  std::vector<pollfd> fds;
  for (const Child* child : children) {
    if (child->fd_ >= 0) fds.push_back({child->fd_, POLLIN, 0});
  }
  const auto millis = std::chrono::duration_cast<std::chrono::milliseconds>(limit).count();
  ::poll(fds.data(), fds.size(), static_cast<int>(std::clamp<long long>(millis, 1, 60000)));
}

Result<std::string> OwnProgram() {
  std::string path(4096, '\0');
  const ssize_t n = ::readlink("/proc/self/exe", path.data(), path.size());
  if (n <= 0 || static_cast<std::size_t>(n) >= path.size()) {
    return Failed("cannot read", "/proc/self/exe");
  }
  path.resize(static_cast<std::size_t>(n));
  return path;
}

}  // namespace loom::app
