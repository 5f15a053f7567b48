// A peer as a process of this very program: started with its output in a pipe and its log in a
// file, read without blocking, ended by its id. The demo and the end-to-end tests run on it.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "base/time.h"

namespace loom::app {

/// Thread: the one that started it. The process is killed and reaped with the object, and dies with
/// the thread that started it, so that nothing outlives a demo.
class Child {
 public:
  struct Options {
    std::string program;                   ///< path of the executable
    std::vector<std::string> arguments;    ///< without the program's name
    std::vector<std::string> environment;  ///< NAME=VALUE, beside what this process has
    std::string log;                       ///< stderr is appended here
    std::string events;  ///< every line of stdout is appended here; empty = nowhere
  };
  static Result<std::unique_ptr<Child>> Start(const Options& options);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  const std::string& log() const { return options_.log; }
  /// Takes in what the pipe holds and hands over every whole line that is a JSON object. After the
  /// process ended this reads the rest. Lines longer than 1 MiB end the reading with an error.
  Status Read(const std::function<void(const json::Value&)>& line);
  /// Looks (and reaps) without waiting.
  bool Ended();
  /// 0-255 as exited, 128 + signal as killed. Requires: Ended().
  int exit_code() const { return exit_code_; }
  void Signal(int signal);
  /// The last lines of its log, for an error message.
  std::string LogTail(std::size_t lines = 4) const;

 private:
  friend void WaitForOutput(const std::vector<Child*>& children, Duration limit);
  Child(Options options, pid_t pid, int fd, int events_fd)
      : options_(std::move(options)), pid_(pid), fd_(fd), events_fd_(events_fd) {}

  Options options_;
  pid_t pid_;
  int fd_;         ///< -1 once the pipe is at its end
  int events_fd_;  ///< -1 = none
  bool ended_ = false;
  int exit_code_ = -1;
  std::string partial_;
};

/// Until one of them has output or has closed its pipe, or the limit is over.
void WaitForOutput(const std::vector<Child*>& children, Duration limit);

/// The path of the running executable.
Result<std::string> OwnProgram();

}  // namespace loom::app
