// The checks of this machine on its own: libraries, arithmetic, memory, disk, the owner key.
#include <fmt/core.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>

#include "agreed/isa.h"
#include "agreed/version.h"
#include "app/args.h"
#include "app/doctor.h"
#include "app/measure.h"
#include "app/output.h"
#include "crypto/keys.h"
#include "net/tls.h"
#include "node/owner_key.h"
#include "node/run_data.h"
#include "store/file_system.h"
#include "store/peer_folder.h"
#include "tensor/runtime.h"

namespace loom::app {
namespace {

constexpr double kGemmFloor = 6;  // GFLOP/s of one thread; the reference BLAS reaches 1 to 3
constexpr std::uint64_t kMinMemory = 1ULL << 30;
constexpr std::uint64_t kMinDisk = 1ULL << 30;
constexpr double kMaxSyncSeconds = 0.1;
constexpr double kMinDiskRate = 20e6;  // bytes a second

/// What stands where in this process; and whether a run of the folder can go on with it.
Finding CheckVersions(const std::string& dir) {
  utsname system{};
  const bool named = ::uname(&system) == 0;
  const std::string found = fmt::format(
      "{}, arithmetic {}, libtorch {}, {}, {} {}, compiled by GCC {}", ProgramVersion(),
      agreed::kArithmeticVersion, tensor::GetRuntimeFacts().torch_version, net::TlsLibrary(),
      named ? system.sysname : "?", named ? system.release : "?", __VERSION__);
  store::PosixFileSystem disk;
  const store::PeerFolderView view(disk, dir);
  if (!view.HasRun()) return Pass(found);
  const auto genesis = view.Genesis();
  auto run = genesis ? node::ReadRun(*genesis) : Result<node::Run>(genesis.error());
  if (!run) {
    return Fail(
        fmt::format("{}; the run in {} cannot be read: {}", found, dir, run.error().message),
        run.error().hint.empty() ? "use the version of loom that its members run"
                                 : run.error().hint);
  }
  const std::uint32_t theirs = run->genesis.body.arithmetic;
  if (theirs == agreed::kArithmeticVersion) return Pass(found);
  return Fail(fmt::format("{}; the run in {} began with arithmetic {}", found, dir, theirs),
              "use the version of loom that its members run");
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
              "install a fast BLAS: sudo apt-get install libopenblas0-openmp");
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

/// A number alone in a file, as cgroups have it; "max" and no file give nothing.
std::optional<std::uint64_t> NumberIn(const char* path) {
  std::ifstream file(path);
  std::uint64_t number = 0;
  if (file >> number) return number;
  return std::nullopt;
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
  std::uint64_t bytes = kilobytes * 1024;
  const auto most = NumberIn("/sys/fs/cgroup/memory.max");
  const auto used = NumberIn("/sys/fs/cgroup/memory.current");
  const bool capped = most && used && *most - std::min(*most, *used) < bytes;
  if (capped) bytes = *most - std::min(*most, *used);
  const std::string found = fmt::format("{} free{}", HumanBytes(static_cast<double>(bytes)),
                                        capped ? " of what this container may use" : "");
  if (bytes >= kMinMemory) return Pass(found);
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

/// How fast a checkpoint gets to the disk.
Finding CheckDiskSpeed(const std::string& dir) {
  store::PosixFileSystem disk;
  if (const auto free = disk.FreeBytes(dir); !free || *free < 2 * kDiskMeasureBytes) {
    return Skip("not measured: too little room, or no such folder", "see the check of the disk");
  }
  const Result<double> rate = MeasureDisk(dir);
  if (!rate) return Fail(rate.error(), rate.error().hint);
  const std::string found = fmt::format("{}/s written and synced", HumanBytes(*rate));
  if (*rate >= kMinDiskRate) return Pass(found);
  return Warn(found,
              "a checkpoint of 1 GB takes minutes; put the folder on a faster disk, or "
              "write fewer with --checkpoint-every");
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

/// The folder, or where it would be made.
std::string NearestFolder(const std::string& dir) {
  std::error_code ignored;
  std::filesystem::path path = std::filesystem::absolute(dir, ignored);
  while (path.has_relative_path() && !std::filesystem::exists(path, ignored))
    path = path.parent_path();
  return path.string();
}

}  // namespace

std::vector<Check> MachineChecks(const Patient& patient) {
  const std::string dir = NearestFolder(patient.dir);
  return {{"versions", [dir] { return CheckVersions(dir); }},
          {"libtorch", CheckTorch},
          {"blas", CheckBlas},
          {"cpu", CheckCpu},
          {"gpu", CheckGpu},
          {"memory", CheckMemory},
          {"disk", [dir] { return CheckDisk(dir); }},
          {"disk_speed", [dir] { return CheckDiskSpeed(dir); }},
          {"fsync", [dir] { return CheckSync(dir); }},
          {"files", CheckFiles},
          {"owner_key", CheckOwnerKey}};
}

}  // namespace loom::app
