// The owner's bandwidth cap as a token bucket: pure, the time is passed in. What is sent may exceed
// the level once, by one slice, and is paid back before the next; with a burst of a tenth of a
// second no window of ten seconds holds more than 105 % of the cap.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/time.h"

namespace loom::net {

class TokenBucket {
 public:
  /// Bytes per second; 0 = no cap.
  explicit TokenBucket(std::uint64_t rate = 0) { SetRate(rate); }

  void SetRate(std::uint64_t rate) {
    rate_ = static_cast<double>(rate);
    level_ = std::min(level_, Burst());
  }
  bool capped() const { return rate_ > 0; }

  /// Counts bytes that were sent or received; the level may become negative.
  void Take(Time now, std::uint64_t bytes) {
    if (!capped()) return;
    Refill(now);
    level_ -= static_cast<double>(bytes);
  }

  /// When the next slice may go: now, or when enough for a fair piece has gathered.
  Time ReadyAt(Time now) { return ReadyAt(now, 0); }
  /// For urgent traffic: it may borrow a quarter of a second of the cap.
  Time UrgentReadyAt(Time now) { return ReadyAt(now, rate_ * 0.25); }

  /// Most bytes of one write, so that a small cap is not overrun by a large record.
  std::size_t Slice(std::size_t largest) const {
    if (!capped()) return largest;
    return std::clamp(static_cast<std::size_t>(rate_ * 0.02), std::size_t{256}, largest);
  }

 private:
  Time ReadyAt(Time now, double credit) {
    if (!capped()) return now;
    Refill(now);
    if (level_ + credit > 0) return now;
    return now + FromSeconds((Quantum() - level_ - credit) / rate_) + Duration(1);
  }
  double Burst() const { return rate_ * 0.1; }
  double Quantum() const { return rate_ * 0.005; }
  void Refill(Time now) {
    if (now > last_) {
      level_ = std::min(Burst(), level_ + Seconds(now - last_) * rate_);
      last_ = now;
    }
  }

  double rate_ = 0;
  double level_ = 0;
  Time last_{};
};

}  // namespace loom::net
