// The parts below the transport: caps in virtual time, addresses, timers and the control socket.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <random>
#include <thread>

#include "net/bulk_pacer.h"
#include "net/control_socket.h"
#include "net/reactor.h"
#include "net/token_bucket.h"

namespace loom::net {
namespace {

namespace fs = std::filesystem;

/// Sends as fast as the bucket lets it for a minute of virtual time; returns (time, bytes) of each
/// write.
std::vector<std::pair<Time, std::size_t>> Flood(std::uint64_t rate, std::uint64_t seed,
                                                bool urgent) {
  TokenBucket bucket(rate);
  std::mt19937_64 random(seed);
  std::vector<std::pair<Time, std::size_t>> sent;
  Time now{1000h};
  const Time end = now + 60s;
  while (now < end) {
    const Time ready = urgent ? bucket.UrgentReadyAt(now) : bucket.ReadyAt(now);
    if (ready > now) {
      now = ready + Duration(static_cast<std::int64_t>(random() % 2'000'000));  // timers are late
      if (random() % 2000 == 0) now += 700ms;                                   // and threads busy
      continue;
    }
    const std::size_t n = bucket.Slice(16384) + 22;
    bucket.Take(now, n);
    sent.emplace_back(now, n);
  }
  return sent;
}

TEST(TokenBucket, NoTenSecondWindowExceedsTheCap) {
  for (const auto& [rate, urgent] : {std::pair(16'000ULL, false), std::pair(1'000'000ULL, false),
                                     std::pair(100'000'000ULL, false), std::pair(16'000ULL, true),
                                     std::pair(1'000'000ULL, true)}) {
    const auto sent = Flood(rate, 11, urgent);
    std::size_t in_window = 0, worst = 0, total = 0, tail = 0;
    for (const auto& [when, n] : sent) {
      in_window += n;
      total += n;
      while (sent[tail].first + 10s < when) in_window -= sent[tail++].second;
      worst = std::max(worst, in_window);
    }
    EXPECT_LE(static_cast<double>(worst), 10.5 * static_cast<double>(rate)) << rate;
    EXPECT_GE(static_cast<double>(total), 0.7 * 60 * static_cast<double>(rate)) << rate;
  }
}

TEST(TokenBucket, UncappedIsAlwaysReadyAndUrgentMayBorrow) {
  TokenBucket none(0);
  const Time now{5h};
  none.Take(now, 1ULL << 40);
  EXPECT_EQ(none.ReadyAt(now), now);
  EXPECT_EQ(none.Slice(16384), 16384U);
  TokenBucket bucket(1'000'000);
  bucket.Take(now, 100'000);
  EXPECT_GT(bucket.ReadyAt(now), now);
  EXPECT_EQ(bucket.UrgentReadyAt(now), now);
  bucket.Take(now, 400'000);
  EXPECT_GT(bucket.UrgentReadyAt(now), now);
  EXPECT_LT(bucket.UrgentReadyAt(now), bucket.ReadyAt(now));
  bucket.SetRate(0);
  EXPECT_EQ(bucket.ReadyAt(now), now);
}

/// A bottleneck of `capacity` bytes per second with a deep buffer and a sender that wants more.
TEST(BulkPacer, QueuesStayShortAndTheLinkBusy) {  // R34
  for (const double capacity : {2e5, 1e6, 1e7, 1e8}) {
    for (const Duration base : {5ms, 50ms, 200ms}) {
      BulkPacer pacer;
      double queue = 0, smoothed = 0, delivered = 0, worst = 0;
      const Duration tick = 125ms;
      for (int i = 0; i < 480; ++i) {  // a minute
        const double rate = pacer.rate() == 0 ? 3 * capacity : static_cast<double>(pacer.rate());
        const double offered = std::min(rate, 3 * capacity) * Seconds(tick);
        const double room = capacity * Seconds(tick);
        const double out = std::min(queue + offered, room);
        queue += offered - out;
        smoothed += (queue / capacity - smoothed) * 0.7;
        pacer.OnSample(
            {base + FromSeconds(smoothed), base, static_cast<std::uint64_t>(out / Seconds(tick))});
        if (i >= 80) {  // after ten seconds
          worst = std::max(worst, queue / capacity);
          delivered += out;
        }
      }
      EXPECT_LT(worst, 0.1) << capacity;
      EXPECT_GT(delivered, 0.75 * capacity * 50) << capacity;
    }
  }
}

TEST(BulkPacer, AnEmptyPathIsNeverHeldBack) {
  BulkPacer pacer;
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(pacer.OnSample({21ms, 20ms, 500'000'000}));
  EXPECT_EQ(pacer.rate(), 0U);
  EXPECT_TRUE(pacer.OnSample({90ms, 20ms, 1'000'000}));
  EXPECT_EQ(pacer.rate(), 850'000U);
  for (int i = 0; i < 100; ++i) pacer.OnSample({20ms, 20ms, 1'000'000});
  EXPECT_EQ(pacer.rate(), 0U);  // it sends less than that by itself
}

TEST(HostPort, ParsesWhatPeopleWrite) {
  EXPECT_EQ(HostPort::Parse("host.example:7000")->host, "host.example");
  EXPECT_EQ(HostPort::Parse("[2001:db8::1]:65535")->host, "2001:db8::1");
  EXPECT_EQ(HostPort::Parse("[::1]:1")->ToString(), "[::1]:1");
  EXPECT_EQ(HostPort::Parse("*:0")->host, "*");
  for (const char* bad : {"", "host", "host:", ":7", "host:65536", "host:-1", "host:7x", "::1:7",
                          "a b:7", "../x:7", "[]:7"}) {
    EXPECT_FALSE(HostPort::Parse(bad).ok()) << bad;
  }
  EXPECT_FALSE(HostPort::Parse(std::string(5000, 'a') + ":7").ok());
  EXPECT_EQ(SocketAddress::Numeric({"::ffff:10.0.0.1", 5})->ToString(), "10.0.0.1:5");
  EXPECT_EQ(SocketAddress::Numeric({"::1", 5})->ToString(), "[::1]:5");
  EXPECT_EQ(SocketAddress::Numeric({"localhost", 5}).error().code, Code::kNotFound);
}

TEST(ReactorTest, TimersRunInOrderAndCancel) {
  Reactor reactor;
  std::string order;
  const Time now = reactor.Now();
  reactor.SetTimer(now + 20ms, [&] { order += 'c'; });
  reactor.SetTimer(now + 10ms, [&] { order += 'b'; });
  const auto never = reactor.SetTimer(now + 15ms, [&] { order += 'x'; });
  reactor.SetTimer(now - 1s, [&] {
    order += 'a';
    reactor.Cancel(never);
  });
  reactor.Cancel(0);
  EXPECT_TRUE(reactor.RunUntil([&] { return order.size() == 3; }, 10s));
  EXPECT_EQ(order, "abc");
}

TEST(ReactorTest, PostAndStopFromAnotherThread) {
  Reactor reactor;
  int count = 0;
  std::thread other([&] {
    for (int i = 0; i < 1000; ++i) reactor.Post([&] { ++count; });
    reactor.Stop();
  });
  reactor.Run();
  other.join();
  EXPECT_EQ(count, 1000);
}

class ControlSocketTest : public ::testing::Test {
 protected:
  ControlSocketTest() { fs::create_directories(dir_); }
  ~ControlSocketTest() override { fs::remove_all(dir_); }
  /// Runs the request on a thread, as the command line would in another process.
  Result<std::string> Ask(const fs::path& path, const std::string& request,
                          Duration timeout = 10s) {
    std::atomic<bool> done = false;
    Result<std::string> answer = MakeError(Code::kInternal, "not asked");
    std::thread client([&] {
      answer = ControlRequest(path, request, timeout);
      done = true;
    });
    reactor.RunUntil([&] { return done.load(); }, 20s, 1ms);
    client.join();
    return answer;
  }

  Reactor reactor;
  fs::path dir_ = fs::temp_directory_path() / fmt::format("loom-control-{}", ::getpid());
};

TEST_F(ControlSocketTest, AsksAndAnswers) {
  const fs::path path = dir_ / "control.sock";
  auto server = ControlServer::Listen(reactor, path, [&](const std::string& request, auto reply) {
    reactor.Post([request, reply] { reply("{\"got\":\n" + request + "}"); });  // later is fine
  });
  ASSERT_TRUE(server.ok());
  struct stat info{};
  ASSERT_EQ(::lstat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
  EXPECT_EQ(*Ask(path, "1"), "{\"got\": 1}");
  EXPECT_EQ(Ask(path, std::string(60'000, 'x'))->size(), 60'009U);
  EXPECT_EQ(Ask(path, std::string(70'000, 'x')).error().code, Code::kLimit);
  EXPECT_EQ(ControlServer::Listen(reactor, path, {}).error().code, Code::kConflict);
  server->reset();
  EXPECT_FALSE(fs::exists(path));
  EXPECT_EQ(Ask(path, "1").error().code, Code::kNotFound);
}

TEST_F(ControlSocketTest, StaleFilesLongPathsAndSilence) {
  const fs::path deep = dir_ / std::string(100, 'a') / std::string(100, 'b');
  fs::create_directories(deep);
  const fs::path path = deep / "control.sock";
  {
    auto first = ControlServer::Listen(reactor, path, [](const std::string&, auto) {});
    ASSERT_TRUE(first.ok()) << first.error().message;
    EXPECT_EQ(Ask(path, "1", 100ms).error().code, Code::kTimeout);
    fs::rename(path, deep / "kept");
  }
  fs::rename(deep / "kept", path);  // what a killed peer leaves behind
  EXPECT_EQ(Ask(path, "1").error().code, Code::kNotFound);
  auto second =
      ControlServer::Listen(reactor, path, [](const std::string&, auto reply) { reply("ok"); });
  ASSERT_TRUE(second.ok()) << second.error().message;
  EXPECT_EQ(*Ask(path, "1"), "ok");
}

}  // namespace
}  // namespace loom::net
