// The cores of this machine that nobody else uses, lent to the compute thread for hashing and
// stepping a state (agreed::ParallelFor). Who shares the machine with other peers or a compiler
// finds none free and works alone.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "agreed/parallel.h"

namespace loom::node {

/// Cores beside the calling thread's own that are idle now, as the kernel counts; 0 where it does
/// not say.
std::size_t FreeCores();

/// Run is called from one thread at a time.
class ForkJoin {
 public:
  static constexpr std::size_t kMaxHelpers = 31;

  /// `free` says before each Run how many helpers may take part.
  explicit ForkJoin(std::function<std::size_t()> free = FreeCores);
  ~ForkJoin();
  ForkJoin(const ForkJoin&) = delete;
  ForkJoin& operator=(const ForkJoin&) = delete;

  /// The calling thread takes part. Ranges are handed out as threads come for them.
  void Run(std::size_t n, const agreed::RangeBody& body);
  /// For as long as this object lives.
  agreed::ParallelFor AsParallelFor() {
    return [this](std::size_t n, const agreed::RangeBody& body) { Run(n, body); };
  }

 private:
  void Help();
  void TakeRanges();

  const std::function<std::size_t()> free_;
  std::mutex mutex_;
  std::condition_variable called_, done_;
  std::vector<std::thread> helpers_;  ///< made when first needed
  std::size_t wanted_ = 0;            ///< helpers that may still join this Run
  std::size_t at_work_ = 0;
  bool ending_ = false;
  // of this Run
  const agreed::RangeBody* body_ = nullptr;
  std::size_t size_ = 0, range_ = 1;
  std::atomic<std::size_t> next_{0};
};

}  // namespace loom::node
