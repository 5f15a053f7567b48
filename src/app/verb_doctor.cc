// loom doctor: what this machine offers to a peer, check by check, each with the next step.
#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/timex.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>

#include "agreed/isa.h"
#include "app/output.h"
#include "app/verbs.h"
#include "crypto/keys.h"
#include "net/socket.h"
#include "node/owner_key.h"
#include "store/file_system.h"
#include "tensor/runtime.h"

namespace loom::app {
namespace {

constexpr double kGemmFloor = 6;  // GFLOP/s of one thread; the reference BLAS reaches 1 to 3
constexpr std::uint64_t kMinMemory = 1ULL << 30;
constexpr std::uint64_t kMinDisk = 1ULL << 30;
constexpr double kMaxSyncSeconds = 0.1;
constexpr std::int64_t kEarliestClock = 1735689600;  // 2025-01-01

struct Options {
  std::string dir = ".";
  std::string listen;
  bool json = false;
};

enum class Grade { kPass, kWarn, kFail };

std::string_view GradeName(Grade grade) {
  return grade == Grade::kPass ? "pass" : grade == Grade::kWarn ? "warn" : "fail";
}

struct Finding {
  Grade grade = Grade::kPass;
  std::string found;
  std::string next;  ///< empty when nothing needs to be done
};

Finding Pass(std::string found) { return {Grade::kPass, std::move(found), ""}; }
Finding Warn(std::string found, std::string next) {
  return {Grade::kWarn, std::move(found), std::move(next)};
}
Finding Fail(std::string found, std::string next) {
  return {Grade::kFail, std::move(found), std::move(next)};
}
Finding Fail(const Error& error, std::string next) {
  return Fail(error.message, error.hint.empty() ? std::move(next) : error.hint);
}

Finding CheckTorch() {
  const std::string version = tensor::GetRuntimeFacts().torch_version;
  int major = 0;
  int minor = 0;
  const char* const end = version.data() + version.size();
  const char* const dot = std::from_chars(version.data(), end, major).ptr;
  if (dot < end) std::from_chars(dot + 1, end, minor);
  if (std::pair(major, minor) < std::pair(2, 6)) {
    return Fail(version, "build loom with libtorch 2.6 or newer: ./run build");
  }
  return Pass(version);
}

Finding CheckBlas() {
  const std::string blas = tensor::GetRuntimeFacts().blas;
  constexpr std::int64_t kN = 512;
  tensor::MultiplySquares(kN, 1);  // the first one also loads code and starts threads
  double best = 0;
  for (int i = 0; i < 5; ++i) {
    const Time began = SystemClock().Now();
    tensor::MultiplySquares(kN, 2);
    const double seconds = std::max(1e-9, Seconds(SystemClock().Now() - began));
    best = std::max(best, 2 * 2.0 * kN * kN * kN / seconds / 1e9);
  }
  const std::string found = fmt::format("{}, {:.0f} GFLOP/s on one thread", blas, best);
  if (best >= kGemmFloor) return Pass(found);
  return Fail(fmt::format("{}; the least is {:.0f}", found, kGemmFloor),
              "install a fast BLAS: sudo apt-get install libopenblas0-pthread");
}

Finding CheckCpu() {
  std::string path = tensor::GetRuntimeFacts().cpu_capability;
  std::transform(path.begin(), path.end(), path.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const std::string found = fmt::format(
      "{} processors, operators use {}, agreed arithmetic uses {}",
      std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)), path, agreed::IsaName(agreed::BestIsa()));
  if (agreed::BestIsa() != agreed::Isa::kPlain) return Pass(found);
  return Warn(found, "without AVX2 everything is right and several times slower");
}

Finding CheckGpu() {
  return Pass(tensor::GetRuntimeFacts().cuda ? "usable" : "none usable; the CPU computes");
}

Finding CheckMemory() {
  std::ifstream file("/proc/meminfo");  // its size reads as 0, so it is read line by line
  std::uint64_t kilobytes = 0;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("MemAvailable:")) continue;
    const std::size_t digits = std::min(line.find_first_of("0123456789"), line.size());
    std::from_chars(line.data() + digits, line.data() + line.size(), kilobytes);
  }
  if (kilobytes == 0) return Warn("unknown: /proc/meminfo does not say", "mount /proc");
  const std::string found =
      fmt::format("{} free", HumanBytes(static_cast<double>(kilobytes) * 1024));
  if (kilobytes * 1024 >= kMinMemory) return Pass(found);
  return Warn(found, "end other programs, or take a smaller preset (loom train --dry-run counts)");
}

Finding CheckDisk(const std::string& dir) {
  store::PosixFileSystem disk;
  const auto bytes = disk.FreeBytes(dir);
  if (!bytes) return Fail(bytes.error(), "give a folder that exists with --dir");
  constexpr long kNfs = 0x6969;
  struct statfs info{};
  if (::statfs(dir.c_str(), &info) == 0 && info.f_type == kNfs) {
    return Fail(fmt::format("{} is on NFS", dir),
                "locks do not hold there; keep a peer's folder on a disk of this machine");
  }
  const std::string found =
      fmt::format("{} free in {}", HumanBytes(static_cast<double>(*bytes)), dir);
  if (*bytes >= kMinDisk) return Pass(found);
  return Warn(found, "make room, or choose another --dir");
}

/// The middle one of several writes of 4 KiB with fsync, as a vote is written.
Finding CheckSync(const std::string& dir) {
  store::PosixFileSystem disk;
  const std::string path = fmt::format("{}/.loom-doctor-{}", dir, ::getpid());
  const auto measure = [&]() -> Result<double> {
    LOOM_ASSIGN(const auto file,
                disk.Open(path, store::OpenMode::kCreate, store::Access::kPrivate));
    const Bytes block(4096, std::byte{1});
    std::vector<double> seconds;
    for (int i = 0; i < 7; ++i) {
      const Time began = SystemClock().Now();
      LOOM_RETURN_IF_ERROR(file->Append(block));
      LOOM_RETURN_IF_ERROR(file->Sync());
      seconds.push_back(Seconds(SystemClock().Now() - began));
    }
    std::sort(seconds.begin(), seconds.end());
    return seconds[seconds.size() / 2];
  };
  const Result<double> middle = measure();
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
  if (!middle) return Fail(middle.error(), "give a folder that you may write to with --dir");
  const std::string found = fmt::format("{:.1f} ms a synced write", *middle * 1e3);
  if (*middle <= kMaxSyncSeconds) return Pass(found);
  return Warn(found, "each round waits for a few of them; a faster disk makes shorter rounds");
}

Finding CheckClock() {
  const std::int64_t now = SystemClock().WallSeconds();
  if (now < kEarliestClock) {
    return Fail(fmt::format("the clock says {} s after 1970, which is long past", now),
                "set it: sudo timedatectl set-ntp true (invites expire by it)");
  }
  timex state{};
  const int code = ::adjtimex(&state);
  if (code >= 0 && code != TIME_ERROR && (state.status & STA_UNSYNC) == 0) {
    return Pass("synchronised");
  }
  return Warn("no program says that it keeps the clock right",
              "invites expire by it; sudo timedatectl set-ntp true");
}

Result<std::uint16_t> Bind(const std::string& where) {
  const bool any = where.starts_with("*:");
  LOOM_ASSIGN(const net::HostPort parsed, net::HostPort::Parse(where));
  LOOM_ASSIGN(const net::SocketAddress address,
              net::SocketAddress::Numeric(any ? net::HostPort{"::", parsed.port} : parsed));
  LOOM_ASSIGN(const net::Listener listener, net::OpenListener(address, any));
  const std::uint16_t port = listener.port;
  ::close(listener.fd);
  return port;
}

/// Listens on a loopback port and connects to it: nothing between may forbid that.
Finding CheckLoopback() {
  const auto meet = []() -> Status {
    LOOM_ASSIGN(net::SocketAddress address, net::SocketAddress::Numeric({"127.0.0.1", 0}));
    LOOM_ASSIGN(const net::Listener listener, net::OpenListener(address, false));
    address.set_port(listener.port);
    auto socket = net::StartConnect(address);
    pollfd ready{socket ? *socket : -1, POLLOUT, 0};
    const bool connected = socket && ::poll(&ready, 1, 2000) == 1 && net::SocketError(*socket) == 0;
    if (socket) ::close(*socket);
    ::close(listener.fd);
    if (!socket) return socket.error();
    if (!connected) return MakeError(Code::kIo, "a port of 127.0.0.1 does not take connections");
    return {};
  };
  const Status met = meet();
  if (!met) return Fail(met.error(), "look for a firewall or sandbox around this program");
  return Pass("127.0.0.1 takes connections");
}

Finding CheckIpv6() {
  const auto port = Bind("[::1]:0");
  if (port) return Pass("[::1] can be listened on");
  return Warn(port.error().message, "peers that have IPv6 only cannot reach this one");
}

Finding CheckListen(const std::string& where) {
  const auto port = Bind(where);
  if (!port) return Fail(port.error(), "choose another address with --listen");
  return Pass(fmt::format("{} is free (port {})", where, *port));
}

Finding CheckFiles() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return Warn("unknown", "ulimit -n shows it");
  const std::string found = fmt::format("{} may be open", limit.rlim_cur);
  if (limit.rlim_cur >= 256) return Pass(found);
  return Warn(found, "a swarm of many peers needs more: ulimit -n 1024");
}

Finding CheckOwnerKey() {
  const std::string path = node::OwnerKeyPath();
  const auto key = crypto::SigningKey::Load(path);
  if (key) return Pass(fmt::format("{} in {}", key->id().Short(), path));
  if (key.error().code == Code::kNotFound) {
    return Pass(fmt::format("none yet; the first loom host makes {}", path));
  }
  return Fail(key.error(), "set it aside, or name another with LOOM_OWNER_KEY");
}

Status Doctor(const Options& options) {
  LOOM_RETURN_IF_ERROR(tensor::ConfigureRuntime({.threads = 1, .deterministic = true}));
  std::vector<std::pair<const char*, std::function<Finding()>>> checks{
      {"libtorch", CheckTorch},
      {"blas", CheckBlas},
      {"cpu", CheckCpu},
      {"gpu", CheckGpu},
      {"memory", CheckMemory},
      {"disk", [&] { return CheckDisk(options.dir); }},
      {"fsync", [&] { return CheckSync(options.dir); }},
      {"files", CheckFiles},
      {"clock", CheckClock},
      {"loopback", CheckLoopback},
      {"ipv6", CheckIpv6},
      {"owner_key", CheckOwnerKey}};
  if (!options.listen.empty()) {
    checks.emplace_back("listen", [&] { return CheckListen(options.listen); });
  }
  Output out(options.json);
  json::Array rows;
  std::string failed;
  for (const auto& [name, check] : checks) {
    const Finding finding = check();
    rows.emplace_back(json::Object{{"name", json::Value(name)},
                                   {"result", json::Value(GradeName(finding.grade))},
                                   {"found", json::Value(finding.found)},
                                   {"next", json::Value(finding.next)}});
    if (finding.grade == Grade::kFail) failed += (failed.empty() ? "" : ", ") + std::string(name);
    if (options.json) continue;
    out.Say("{:<4}  {:<9}  {}", GradeName(finding.grade), name, finding.found);
    if (!finding.next.empty()) out.Say("                 next: {}", finding.next);
  }
  out.Event({{"ok", json::Value(failed.empty())}, {"checks", json::Value(std::move(rows))}});
  if (failed.empty()) return {};
  return MakeError(Code::kInvalid, "this machine is not ready: " + failed,
                   "the check says what to do next");
}

}  // namespace

Verb DoctorVerb() {
  auto options = std::make_shared<Options>();
  return {.name = "doctor",
          .summary = "Check whether this machine is ready for a peer",
          .example = "loom doctor --dir . --listen 0.0.0.0:4001",
          .declare =
              [options](Args& args) {
                args.Option("--dir", "DIR", options->dir, "Where a peer's folder would be");
                args.Option("--listen", "HOST:PORT", options->listen,
                            "Also check that this address can be listened on");
                args.Flag("--json", options->json, "One object: ok, checks");
              },
          .run = [options] { return Doctor(*options); }};
}

}  // namespace loom::app
