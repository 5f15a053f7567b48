#include "node/fork_join.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string>

namespace loom::node {

std::size_t FreeCores() {
  std::ifstream file("/proc/loadavg");
  std::string word;  // of "0.52 0.58 0.59 3/467 12345" the fourth: runnable now / all
  for (int i = 0; i < 4; ++i) file >> word;
  std::size_t runnable = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), runnable);
  if (!file || error != std::errc() || *end != '/') return 0;
  const std::size_t cores = std::thread::hardware_concurrency();
  runnable = std::max<std::size_t>(runnable, 1);  // the caller
  return cores > runnable ? cores - runnable : 0;
}

ForkJoin::ForkJoin(std::function<std::size_t()> free) : free_(std::move(free)) {}

ForkJoin::~ForkJoin() {
  {
    const std::scoped_lock lock(mutex_);
    ending_ = true;
  }
  called_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
}

void ForkJoin::TakeRanges() {
  for (;;) {
    const std::size_t begin = next_.fetch_add(range_);
    if (begin >= size_) return;
    (*body_)(begin, std::min(begin + range_, size_));
  }
}

void ForkJoin::Help() {
  std::unique_lock lock(mutex_);
  for (;;) {
    called_.wait(lock, [&] { return ending_ || wanted_ > 0; });
    if (ending_) return;
    --wanted_;
    ++at_work_;
    lock.unlock();
    TakeRanges();
    lock.lock();
    if (--at_work_ == 0) done_.notify_one();
  }
}

void ForkJoin::Run(std::size_t n, const agreed::RangeBody& body) {
  constexpr std::size_t kRangesEach = 4;  // so that a slow thread does not hold up the others
  if (n == 0) return;
  const std::size_t helpers = std::min({free_(), kMaxHelpers, n - 1});
  if (helpers == 0) {
    body(0, n);
    return;
  }
  {
    const std::scoped_lock lock(mutex_);
    body_ = &body;
    size_ = n;
    range_ = std::max<std::size_t>(1, n / ((helpers + 1) * kRangesEach));
    next_ = 0;
    wanted_ = helpers;
  }
  helpers_.reserve(helpers);
  while (helpers_.size() < helpers) helpers_.emplace_back([this] { Help(); });
  called_.notify_all();
  TakeRanges();
  std::unique_lock lock(mutex_);
  wanted_ = 0;  // who comes now comes too late
  done_.wait(lock, [&] { return at_work_ == 0; });
}

}  // namespace loom::node
