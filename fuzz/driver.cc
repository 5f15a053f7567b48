// main() of the fuzz targets in ordinary builds, where there is no libFuzzer. It feeds the target
// its own seeds, every file of the given folders, prefixes of both, and then mutations of them: the
// same ones in every run. A crash, a sanitizer's report, a broken property and too much memory
// fail, and leave the input in finding-TARGET. So does a file that should decode and does not:
// files that the target refuses have names that begin with "refused-".
//
//   fuzz_TARGET [--mutations N] [FOLDER|FILE ...]
//   fuzz_TARGET --make-corpus FOLDER      writes the seeds there
#include <fcntl.h>
#include <fmt/core.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "fuzz/fuzz.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LOOM_FUZZ_COUNTS_MEMORY 0
#else
#define LOOM_FUZZ_COUNTS_MEMORY 1
#endif

namespace {

// Inputs are a few kilobytes: what needs more than this has believed a number in one of them.
constexpr std::size_t kMostMemory = 64U << 20;

std::size_t memory_used = 0;
std::size_t memory_peak = 0;
bool memory_counts = false;  // set by main: the program is one thread until then

}  // namespace

#if LOOM_FUZZ_COUNTS_MEMORY
namespace {

void* Allocate(std::size_t size) {
  void* const at = std::malloc(size == 0 ? 1 : size);
  if (at == nullptr) std::abort();
  if (memory_counts) {
    memory_used += malloc_usable_size(at);
    memory_peak = std::max(memory_peak, memory_used);
  }
  return at;
}

void Free(void* at) {
  if (at == nullptr) return;
  // What was there before counting began may be freed after.
  if (memory_counts) memory_used -= std::min(memory_used, malloc_usable_size(at));
  std::free(at);
}

}  // namespace

void* operator new(std::size_t size) { return Allocate(size); }
void* operator new[](std::size_t size) { return Allocate(size); }
void operator delete(void* at) noexcept { Free(at); }
void operator delete[](void* at) noexcept { Free(at); }
void operator delete(void* at, std::size_t) noexcept { Free(at); }
void operator delete[](void* at, std::size_t) noexcept { Free(at); }
#endif

namespace loom::fuzz {
namespace {

constexpr std::size_t kMostPrefixes = 1024;  // of all seeds together
constexpr std::size_t kLongestInput = 16384;

struct Running {
  std::array<char, 256> finding{};  // where the input goes when the target crashes on it
  const std::uint8_t* data = nullptr;
  std::size_t size = 0;
};
Running running;

// Async-signal-safe.
extern "C" void KeepFinding(int signal) {
  const int fd = ::open(running.finding.data(), O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0644);
  if (fd >= 0 && ::write(fd, running.data, running.size) >= 0) {
    constexpr std::string_view kText = "fuzz: the input is kept in ";
    (void)!::write(STDERR_FILENO, kText.data(), kText.size());
    (void)!::write(STDERR_FILENO, running.finding.data(), std::strlen(running.finding.data()));
    (void)!::write(STDERR_FILENO, "\n", 1);
  }
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

/// splitmix64 of a fixed seed.
class Draw {
 public:
  std::uint64_t Next() {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15ULL);
    z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27U)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31U);
  }
  std::size_t Below(std::size_t n) { return n == 0 ? 0 : static_cast<std::size_t>(Next() % n); }

 private:
  std::uint64_t state_ = 20250101;
};

/// Runs the target on a copy of the exact size, so that a read past the end is seen.
bool Run(ByteView bytes) {
  std::vector<std::uint8_t> input(bytes.size());
  if (!bytes.empty()) std::memcpy(input.data(), bytes.data(), bytes.size());
  running.data = input.data();
  running.size = input.size();
  ResetAccepted();
  const std::size_t before = memory_used;
  memory_peak = before;
  LLVMFuzzerTestOneInput(input.data(), input.size());
  const std::size_t peak = memory_peak - std::min(memory_peak, before);
  Expect(
      peak <= kMostMemory, "memory is bounded",
      fmt::format("{} bytes for an input of {}, the limit is {}", peak, input.size(), kMostMemory));
  return Accepted();
}

Bytes Mutated(const std::vector<Bytes>& pool, Draw& draw) {
  static constexpr std::array<std::uint64_t, 12> kNumbers = {
      0, 1, 2, 255, 256, 65535, 65536, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, INT64_MAX, UINT64_MAX};
  Bytes bytes = pool[draw.Below(pool.size())];
  for (std::size_t n = 1 + draw.Below(4); n > 0; --n) {
    const std::size_t at = draw.Below(bytes.size() + 1);
    const std::size_t length = std::min(1 + draw.Below(32), bytes.size() - at);
    const auto place = bytes.begin() + static_cast<std::ptrdiff_t>(at);
    const auto end = place + static_cast<std::ptrdiff_t>(length);
    switch (draw.Below(8)) {
      case 0:
        if (length > 0) *place ^= static_cast<std::byte>(1U << draw.Below(8));
        break;
      case 1:
        if (length > 0) *place = static_cast<std::byte>(draw.Next());
        break;
      case 2:
        bytes.erase(place, end);
        break;
      case 3: {
        const Bytes copy(place, end);
        bytes.insert(place, copy.begin(), copy.end());
        break;
      }
      case 4: {  // a number that lengths and counts break at
        const std::uint64_t number = kNumbers[draw.Below(kNumbers.size())];
        const std::size_t width =
            std::min<std::size_t>(std::size_t{1} << draw.Below(4), bytes.size() - at);
        if (width > 0) std::memcpy(&bytes[at], &number, width);
        break;
      }
      case 5:
        bytes.resize(at);
        break;
      case 6: {  // the end of another seed
        const Bytes& other = pool[draw.Below(pool.size())];
        const std::size_t from = draw.Below(other.size() + 1);
        bytes.resize(at);
        bytes.insert(bytes.end(), other.begin() + static_cast<std::ptrdiff_t>(from), other.end());
        break;
      }
      default:
        bytes.insert(place, static_cast<std::byte>(draw.Next()));
    }
    if (bytes.size() > kLongestInput) bytes.resize(kLongestInput);
  }
  return bytes;
}

Bytes ReadAll(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  return ToBytes(AsBytes(bytes));
}

void AddFiles(const std::filesystem::path& path, Seeds& seeds) {
  std::vector<std::filesystem::path> files;
  if (std::filesystem::is_directory(path)) {
    for (const auto& entry : std::filesystem::directory_iterator(path))
      files.push_back(entry.path());
  } else if (std::filesystem::exists(path)) {
    files.push_back(path);
  }
  std::ranges::sort(files);
  for (const auto& file : files) {
    if (file.filename().string().starts_with("refused-")) {
      seeds.AddRefused(file.string(), ReadAll(file));
    } else {
      seeds.Add(file.string(), ReadAll(file));
    }
  }
}

int MakeCorpus(const std::filesystem::path& folder) {
  Seeds seeds;
  MakeSeeds(seeds);
  std::filesystem::create_directories(folder);
  for (const Seeds::Seed& seed : seeds.all()) {
    const auto path = folder / ((seed.refused ? "refused-" : "") + seed.name);
    std::ofstream out(path, std::ios::binary | std::ios::trunc);
    out.write(reinterpret_cast<const char*>(seed.bytes.data()),
              static_cast<std::streamsize>(seed.bytes.size()));
    if (!out.flush()) {
      fmt::print(stderr, "{} cannot be written\n", path.string());
      return 1;
    }
  }
  return 0;
}

int Replay(const Seeds& seeds, std::size_t mutations) {
  std::size_t runs = 0;
  int wrong = 0;
  std::vector<Bytes> pool{{}};
  for (const Seeds::Seed& seed : seeds.all()) {
    pool.push_back(seed.bytes);
    const bool taken = Run(seed.bytes);
    ++runs;
    if (!taken && !seed.refused) {
      fmt::print(stderr,
                 "{} no longer decodes; when its format has changed: ./run fuzz --make-corpus\n",
                 seed.name);
      ++wrong;
    }
    const std::size_t prefixes =
        std::min(std::max<std::size_t>(8, kMostPrefixes / seeds.all().size()), seed.bytes.size());
    for (std::size_t i = 0; i < prefixes; ++i, ++runs)
      (void)Run(ByteView(seed.bytes).first(seed.bytes.size() * i / prefixes));
  }
  Draw draw;
  for (std::size_t i = 0; i < mutations; ++i, ++runs) (void)Run(Mutated(pool, draw));
  fmt::print("{} inputs, of them {} seeds and {} mutations\n", runs, seeds.all().size(), mutations);
  return wrong == 0 ? 0 : 1;
}

int Main(const std::vector<std::string>& arguments) {
  const std::string name = std::filesystem::path(arguments.at(0)).filename().string();
  const std::string finding = fmt::format("finding-{}", name.substr(name.find('_') + 1));
  std::copy_n(finding.begin(), std::min(finding.size(), running.finding.size() - 1),
              running.finding.begin());
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL})
    (void)std::signal(signal, &KeepFinding);

  Seeds seeds;
  MakeSeeds(seeds);
  std::size_t mutations = 0;
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    const bool more = i + 1 < arguments.size();
    if (arguments[i] == "--make-corpus" && more) return MakeCorpus(arguments[i + 1]);
    if (arguments[i] == "--mutations" && more) {
      mutations = std::strtoul(arguments[++i].c_str(), nullptr, 10);
    } else {
      AddFiles(arguments[i], seeds);
    }
  }
  (void)Run({});  // what is made once, at the first input, is not the next one's
  memory_counts = true;
  return Replay(seeds, mutations);
}

}  // namespace
}  // namespace loom::fuzz

int main(int argc, char** argv) {
  return loom::fuzz::Main(std::vector<std::string>(argv, argv + argc));
}
