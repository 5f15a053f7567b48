// A thread that owns something and takes closures over a bounded queue: the compute thread and the
// storage thread of a node. Closures run in the order posted.
#pragma once

#include <functional>
#include <string>
#include <thread>

#include "base/queue.h"

namespace loom::node {

class WorkerThread {
 public:
  explicit WorkerThread(std::size_t capacity)
      : queue_(capacity), thread_([this] {
          while (auto work = queue_.Pop()) (*work)();
        }) {}
  ~WorkerThread() { Finish(); }

  /// False when the queue is full: the caller has more in flight than it may.
  [[nodiscard]] bool Post(std::function<void()> work) { return queue_.TryPush(std::move(work)); }
  /// Runs what is queued, then ends. Called from the owner of this object only.
  void Finish() {
    queue_.Close();
    if (thread_.joinable()) thread_.join();
  }

 private:
  BoundedQueue<std::function<void()>> queue_;
  std::thread thread_;
};

}  // namespace loom::node
