// Throughput and CPU of two peers over loopback TLS, both ends in one process and one thread:
//   net_bench [MiB to move] [MiB per frame] [bulk connections]
// Prints MB/s and CPU seconds per GB for both ends together, and the control round trip meanwhile.
#include <fmt/core.h>
#include <sys/resource.h>

#include <cstdlib>

#include "net/transport.h"

namespace loom::net {
namespace {

double CpuSeconds() {
  rusage use{};
  ::getrusage(RUSAGE_SELF, &use);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(use.ru_utime) + seconds(use.ru_stime);
}

struct End : TransportEvents {
  explicit End(Reactor& reactor, TransportOptions options)
      : transport(reactor, crypto::SigningKey::Generate(), std::move(options), *this) {}
  void OnPeerUp(const PeerInfo& info) override { peer = info.id; }
  void OnPeerDown(const PeerId&, DownReason, const std::string& detail) override {
    fmt::print(stderr, "peer down: {}\n", detail);
    std::exit(1);
  }
  void OnFrame(const PeerId&, Channel, Frame frame) override { received += frame.payload->size(); }
  void OnPeerSilent(const PeerId&) override {}
  void OnPeerHeard(const PeerId&) override {}
  void OnDialFailed(const std::string&, DialStep, const Error& error) override {
    fmt::print(stderr, "dial failed: {}\n", error.ToString());
    std::exit(1);
  }
  void OnRefused(const std::string&, const std::string&) override {}
  void OnSendSpace(const PeerId&, Channel) override {}

  Transport transport;
  PeerId peer;
  std::size_t received = 0;
};

int Main(std::size_t total_mib, std::size_t frame_mib, int connections) {
  Reactor reactor;
  TransportOptions options;
  options.bulk_connections = connections;
  options.bulk_queue = 1ULL << 40;
  options.heartbeat = 20ms;
  End from(reactor, options), to(reactor, options);
  const auto ports = to.transport.Listen({"127.0.0.1:0"});
  from.transport.Dial(fmt::format("127.0.0.1:{}", ports->front()), to.transport.id());
  reactor.RunUntil([&] { return !from.peer.IsZero() && !to.peer.IsZero(); }, 10s);
  const Blob blob = MakeBlob(Bytes(frame_mib << 20, std::byte{0x5a}));
  const std::size_t total = total_mib << 20;
  const double cpu = CpuSeconds();
  const Time start = reactor.Now();
  for (std::size_t sent = 0; sent < total; sent += blob->size()) {
    if (!from.transport.Send(from.peer, Channel::kBulk, 16, blob)) return 1;
  }
  if (!reactor.RunUntil([&] { return to.received >= total; }, 600s)) return 1;
  const double seconds = Seconds(reactor.Now() - start),
               gb = static_cast<double>(to.received) / 1e9;
  const PeerStats stats = *from.transport.StatsOf(from.peer);
  fmt::print(
      "{:.2f} GB in {:.2f} s: {:.0f} MB/s, {:.2f} CPU-s/GB both ends, control rtt {:.2f} ms, "
      "overhead {:.2f} %\n",
      gb, seconds, 1e3 * gb / seconds, (CpuSeconds() - cpu) / gb, 1e3 * Seconds(stats.rtt),
      100 * (static_cast<double>(stats.written) / static_cast<double>(to.received) - 1));
  return 0;
}

}  // namespace
}  // namespace loom::net

int main(int argc, char** argv) {
  const auto argument = [&](int i, long otherwise) {
    return argc > i ? std::atol(argv[i]) : otherwise;
  };
  return loom::net::Main(static_cast<std::size_t>(argument(1, 1024)),
                         static_cast<std::size_t>(argument(2, 16)),
                         static_cast<int>(argument(3, 1)));
}
