// What it takes to move bulk from one process to another over loopback:
//   net_bench [MiB a sample] [MiB a frame] [bulk connections] [samples]
// The transport, a plain loop over OpenSSL with the same cipher and a loop over bare TCP take
// turns; of each the median MB/s and CPU seconds per GB of both processes together.
#include <fmt/core.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>
#include <vector>

#include "net/transport.h"
#include "pipe.h"
#include "plain_loop.h"

namespace loom {
namespace {

/// One process of the transport. The sink says over the control connection when it has the warm-up,
/// and when it has all.
class End final : public net::TransportEvents {
 public:
  explicit End(const Load& load)
      : load_(load), transport_(reactor_, crypto::SigningKey::Generate(), Options(load), *this) {}

  Usage Sink(const std::function<void(const Door&)>& open) {
    open({transport_.Listen({"127.0.0.1:0"}).value().front(), transport_.id()});
    Until([&] { return received_ >= load_.warm; });
    const double cpu = CpuSeconds();
    const Time start = reactor_.Now();
    SayWord();
    Until([&] { return received_ >= load_.warm + load_.total; });
    SayWord();
    const Usage use{Seconds(reactor_.Now() - start), CpuSeconds() - cpu, 0, 0};
    reactor_.RunUntil([&] { return peer_.IsZero(); }, 5s);
    return use;
  }

  Usage Source(const Door& door) {
    transport_.Dial(fmt::format("127.0.0.1:{}", door.port), door.id);
    Until([&] { return !peer_.IsZero(); });
    Push(load_.warm, 1);
    const double cpu = CpuSeconds();
    const Time start = reactor_.Now();
    const std::uint64_t before = transport_.StatsOf(peer_)->written;
    Push(load_.total, 2);
    const net::PeerStats stats = *transport_.StatsOf(peer_);
    return {Seconds(reactor_.Now() - start), CpuSeconds() - cpu, Seconds(stats.rtt),
            static_cast<double>(stats.written - before)};
  }

 private:
  static constexpr std::uint16_t kType = 16;

  static net::TransportOptions Options(const Load& load) {
    net::TransportOptions options;
    options.bulk_connections = load.connections;
    options.heartbeat = 20ms;
    return options;
  }
  void Until(const std::function<bool()>& done) {
    if (!reactor_.RunUntil(done, 600s)) Die("the transport stands still");
  }
  void SayWord() {
    if (!transport_.Send(peer_, net::Channel::kControl, kType, MakeBlob({}))) Die("no control");
  }
  void Push(std::size_t bytes, int words) {
    const Blob blob = MakeBlob(Bytes(load_.frame, std::byte{0x5a}));
    for (std::size_t sent = 0; sent < bytes; sent += blob->size()) {
      while (!transport_.Send(peer_, net::Channel::kBulk, kType, blob)) {
        space_ = false;
        Until([&] { return space_; });
      }
    }
    Until([&] { return words_ == words; });
  }

  void OnPeerUp(const net::PeerInfo& info) override { peer_ = info.id; }
  void OnPeerDown(const PeerId&, net::DownReason, const std::string& detail) override {
    if (received_ < load_.warm + load_.total) Die("peer down: " + detail);
    peer_ = {};
  }
  void OnFrame(const PeerId&, net::Channel channel, net::Frame frame) override {
    if (channel == net::Channel::kControl) ++words_;
    received_ += frame.payload->size();
  }
  void OnPeerSilent(const PeerId&) override {}
  void OnPeerHeard(const PeerId&) override {}
  void OnDialFailed(const std::string&, net::DialStep, const Error& error) override {
    Die(error.ToString());
  }
  void OnRefused(const std::string&, const std::string& text) override { Die(text); }
  void OnSendSpace(const PeerId&, net::Channel) override { space_ = true; }

  const Load load_;
  net::Reactor reactor_;
  net::Transport transport_;
  PeerId peer_;
  std::size_t received_ = 0;
  int words_ = 0;
  bool space_ = false;
};

/// Runs fn in a process of its own; the other end of its socket.
int Start(const std::function<Usage(int)>& fn) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) Die("no socketpair");
  const pid_t child = ::fork();
  if (child < 0) Die("no process");
  if (child == 0) {
    ::close(ends[0]);
    Put(ends[1], fn(ends[1]));
    std::_Exit(0);
  }
  ::close(ends[1]);
  return ends[0];
}

enum class Way : std::uint8_t { kTransport, kTls, kTcp };

/// Of both processes: the time of the source, the CPU time of both.
Usage Measure(Way way, const Load& load) {
  const bool tls = way == Way::kTls;
  const int sink = Start([&](int fd) {
    const auto open = [fd](const Door& door) { Put(fd, door); };
    return way == Way::kTransport ? End(load).Sink(open) : PlainSink(load, tls, open);
  });
  const Door door = Get<Door>(sink);
  const int source = Start([&](int) {
    return way == Way::kTransport ? End(load).Source(door) : PlainSource(load, tls, door);
  });
  Usage use = Get<Usage>(source);
  use.cpu += Get<Usage>(sink).cpu;
  ::close(source);
  ::close(sink);
  while (::wait(nullptr) > 0) {
  }
  return use;
}

double Median(std::vector<double> x) {
  std::ranges::sort(x);
  return x[x.size() / 2];
}

int Main(const Load& load, std::size_t samples) {
  constexpr std::array kNames{"transport", "SSL_write, SSL_read", "TCP"};
  std::array<std::vector<double>, 3> speed, cpu;
  std::vector<double> rtt, faster, cheaper;
  const double gb = static_cast<double>(load.total) / 1e9;
  double written = 0;
  for (std::size_t i = 0; i < samples; ++i) {
    for (std::size_t w = 0; w < 3; ++w) {
      const Usage use = Measure(static_cast<Way>(w), load);
      speed[w].push_back(1e3 * gb / use.seconds);
      cpu[w].push_back(use.cpu / gb);
      if (w > 0) continue;
      rtt.push_back(1e3 * use.rtt);
      written = use.written;
    }
    faster.push_back(speed[0].back() / speed[1].back());
    cheaper.push_back(cpu[0].back() / cpu[1].back());
  }
  fmt::print("{:.2f} GB in frames of {:.2f} MiB, two processes, median of {} in turn:\n", gb,
             static_cast<double>(load.frame) / (1 << 20), samples);
  for (std::size_t w = 0; w < 3; ++w) {
    const auto [least, most] = std::ranges::minmax(speed[w]);
    fmt::print("  {:<20} {:5.0f} MB/s ({:.0f} to {:.0f}), {:.2f} CPU-s/GB both ends\n", kNames[w],
               Median(speed[w]), least, most, Median(cpu[w]));
  }
  fmt::print(
      "  transport over the loop of OpenSSL: {:.2f} x the speed, {:.2f} x the CPU; control round "
      "trip {:.2f} ms, overhead {:.2f} %\n",
      Median(faster), Median(cheaper), Median(rtt),
      100 * (written / static_cast<double>(load.total) - 1));
  return 0;
}

}  // namespace
}  // namespace loom

int main(int argc, char** argv) {
  const auto argument = [&](int i, double otherwise) {
    return argc > i ? std::atof(argv[i]) : otherwise;
  };
  loom::Load load;
  load.frame = static_cast<std::size_t>(argument(2, 1) * (1 << 20));
  load.connections = static_cast<int>(argument(3, 1));
  const auto frames = static_cast<std::size_t>(argument(1, 1024) * (1 << 20)) / load.frame;
  load.total = std::max<std::size_t>(frames, 1) * load.frame;
  load.warm = std::max<std::size_t>(frames / 16, 1) * load.frame;
  return loom::Main(load, std::max<std::size_t>(static_cast<std::size_t>(argument(4, 7)), 1));
}
