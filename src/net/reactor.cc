// The adapter of Boost.Asio: its event loop, descriptors and resolver behind Reactor.
#include "net/reactor.h"

#include <algorithm>
#include <utility>  // before Asio: its coroutine header of 1.74 needs std::exchange

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <csignal>
#include <map>

namespace loom::net {
namespace asio = boost::asio;
using boost::system::error_code;

namespace {

class AsioWatch final : public FdWatch {
 public:
  AsioWatch(asio::io_context& io, int fd) : state_(std::make_shared<State>(io, fd)) {}
  ~AsioWatch() override {
    state_->fn[0] = state_->fn[1] = nullptr;
    error_code ignored;
    state_->descriptor.close(ignored);
  }
  int fd() const override { return state_->fd; }
  void WhenReadable(std::function<void()> fn) override {
    Arm(0, asio::posix::stream_descriptor::wait_read, std::move(fn));
  }
  void WhenWritable(std::function<void()> fn) override {
    Arm(1, asio::posix::stream_descriptor::wait_write, std::move(fn));
  }

 private:
  struct State {
    State(asio::io_context& io, int f) : descriptor(io, f), fd(f) {}
    asio::posix::stream_descriptor descriptor;
    const int fd;
    std::function<void()> fn[2];
    bool armed[2] = {false, false};
  };

  void Arm(int side, asio::posix::stream_descriptor::wait_type what, std::function<void()> fn) {
    state_->fn[side] = std::move(fn);
    if (std::exchange(state_->armed[side], true)) return;
    state_->descriptor.async_wait(what, [state = state_, side](const error_code&) {
      state->armed[side] = false;
      if (auto ready = std::exchange(state->fn[side], nullptr)) ready();
    });
  }

  std::shared_ptr<State> state_;
};

}  // namespace

struct Reactor::Impl {
  explicit Impl(const Clock& c) : clock(c), alarm(io), resolver(io), guard(io.get_executor()) {}

  const Clock& clock;
  asio::io_context io{1};
  asio::steady_timer alarm;
  asio::ip::tcp::resolver resolver;
  asio::executor_work_guard<asio::io_context::executor_type> guard;
  std::map<std::pair<Time, TimerId>, std::function<void()>> timers;
  std::map<TimerId, Time> due;
  TimerId next_id = 1;
  Time armed_for = Time::max();

  void Arm() {
    if (timers.empty()) {
      armed_for = Time::max();
      alarm.cancel();
      return;
    }
    const Time first = timers.begin()->first.first;
    if (first == armed_for) return;
    armed_for = first;
    alarm.expires_after(std::max(first - clock.Now(), Duration(0)));
    alarm.async_wait([this](const error_code& ec) {
      if (!ec) Fire();
    });
  }

  void Fire() {
    armed_for = Time::max();
    const Time now = clock.Now();
    // Timers set from here on wait for the next round, so that one cannot starve the sockets.
    const TimerId limit = next_id;
    for (auto it = timers.begin(); it != timers.end() && it->first.first <= now;) {
      if (it->first.second >= limit) {
        ++it;
        continue;
      }
      auto fn = std::move(it->second);
      const auto key = it->first;
      due.erase(key.second);
      timers.erase(it);
      fn();
      it = timers.lower_bound(key);
    }
    Arm();
  }
};

Reactor::Reactor(const Clock& clock) : impl_(std::make_unique<Impl>(clock)) {
  std::signal(SIGPIPE, SIG_IGN);
}
Reactor::~Reactor() = default;

void Reactor::Run() {
  impl_->io.restart();
  impl_->io.run();
}

bool Reactor::RunUntil(const std::function<bool()>& done, Duration limit, Duration poll) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  impl_->io.restart();
  while (!done()) {
    const auto now = std::chrono::steady_clock::now();
    impl_->io.run_one_until(poll < deadline - now ? now + poll : deadline);
    if (std::chrono::steady_clock::now() >= deadline) return done();
  }
  return true;
}

void Reactor::Stop() {
  Post([this] { impl_->io.stop(); });
}

void Reactor::Post(std::function<void()> fn) { asio::post(impl_->io, std::move(fn)); }

Time Reactor::Now() const { return impl_->clock.Now(); }
std::int64_t Reactor::WallSeconds() const { return impl_->clock.WallSeconds(); }

Reactor::TimerId Reactor::SetTimer(Time when, std::function<void()> fn) {
  const TimerId id = impl_->next_id++;
  impl_->timers.emplace(std::pair(when, id), std::move(fn));
  impl_->due.emplace(id, when);
  impl_->Arm();
  return id;
}

void Reactor::Cancel(TimerId id) {
  const auto it = impl_->due.find(id);
  if (it == impl_->due.end()) return;
  impl_->timers.erase({it->second, id});
  impl_->due.erase(it);
  impl_->Arm();
}

std::unique_ptr<FdWatch> Reactor::Watch(int fd) {
  return std::make_unique<AsioWatch>(impl_->io, fd);
}

void Reactor::Resolve(const HostPort& where, Resolved done) {
  if (auto numeric = SocketAddress::Numeric(where)) {
    Post([done = std::move(done), address = *numeric] { done(std::vector{address}); });
    return;
  }
  impl_->resolver.async_resolve(
      where.host, std::to_string(where.port),
      [host = where.host, done = std::move(done)](const error_code& ec, const auto& results) {
        if (ec) {
          done(MakeError(Code::kUnreachable,
                         fmt::format("cannot resolve {}: {}", host, ec.message()),
                         "check the name and this machine's DNS"));
          return;
        }
        std::vector<SocketAddress> out;
        for (const auto& entry : results) {
          const auto endpoint = entry.endpoint();
          out.emplace_back(endpoint.data(), static_cast<socklen_t>(endpoint.size()));
          if (out.size() == 8) break;
        }
        done(std::move(out));
      });
}

}  // namespace loom::net
