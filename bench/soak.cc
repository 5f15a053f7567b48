// Hours of a swarm in minutes: two peers go through many short rounds on loopback, and now and then
// a third one joins, takes part and leaves. What a process holds must not grow with the rounds:
//
//   soak [ROUNDS]   anonymous memory, descriptors, threads, and the bytes of the folder, sampled
//                   through the run; at the end what each grew by since the first tenth
//
// Ends with 1 when descriptors or threads grew, or memory by more than a record's worth a round, or
// the folder holds more than the kept checkpoints, the rounds since, and the logs.
#include <fmt/core.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>

#include "app/demo_child.h"
#include "base/time.h"
#include "tests/e2e/tiny_run.h"

namespace loom {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kSamples = 20;
constexpr std::uint64_t kCheckpointEvery = 10;
constexpr std::uint64_t kKeptCheckpoints = 2;
/// What a process may keep of each round: its record, as bytes and taken apart.
constexpr double kBytesOfARound = 16e3;

struct Sample {
  std::uint64_t round = 0;
  std::uint64_t memory = 0;  ///< bytes, RssAnon
  std::uint64_t descriptors = 0;
  std::uint64_t threads = 0;
  std::map<std::string, std::uint64_t> folder;  ///< bytes by kind of file
  std::uint64_t Folder() const {
    std::uint64_t sum = 0;
    for (const auto& [kind, bytes] : folder) sum += bytes;
    return sum;
  }
};

struct Peer {
  std::string name;
  std::string dir;
  std::string invite;
  std::unique_ptr<app::Child> child;
  std::uint64_t round = 0;
  std::uint64_t members = 0;
  std::vector<Sample> samples;
};

std::uint64_t StatusOf(pid_t pid, std::string_view key) {
  std::ifstream status(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key)) return std::strtoull(line.c_str() + key.size(), nullptr, 10);
  }
  return 0;
}

Sample Take(const Peer& peer) {
  Sample sample;
  const pid_t pid = peer.child->pid();
  sample.round = peer.round;
  sample.memory = StatusOf(pid, "RssAnon:") * 1024;
  sample.threads = StatusOf(pid, "Threads:");
  std::error_code gone;
  for (fs::directory_iterator it(fmt::format("/proc/{}/fd", pid), gone), end; !gone && it != end;
       it.increment(gone)) {
    ++sample.descriptors;
  }
  for (fs::recursive_directory_iterator it(peer.dir, gone), end; !gone && it != end;
       it.increment(gone)) {
    std::error_code no_file;
    const std::uint64_t size = it->is_regular_file(no_file) ? it->file_size(no_file) : 0;
    const fs::path inside = fs::relative(it->path(), peer.dir, no_file);
    if (!no_file) sample.folder[inside.begin()->string()] += size;
  }
  return sample;
}

class Soak {
 public:
  explicit Soak(std::string program)
      : program_(std::move(program)), dir_(fs::temp_directory_path() / "loom_soak") {
    fs::remove_all(dir_);
    fs::create_directories(dir_);
    std::ofstream text(dir_ / "story.txt");
    std::uint32_t state = 1;
    for (int i = 0; i < 400000; ++i) {
      state = state * 1664525U + 1013904223U;
      text << static_cast<char>(' ' + (state >> 16) % 60);
    }
    std::ofstream(dir_ / "run.toml")
        << e2e::TinyRun("batch = 2\ntotal_tokens = 100000000\n", "rounds = 0\ninner_steps = 2\n",
                        fmt::format("checkpoint_every = {}\nkeep_checkpoints = {}\n",
                                    kCheckpointEvery, kKeptCheckpoints));
  }
  ~Soak() {
    peers_.clear();
    fs::remove_all(dir_);
  }
  Soak(const Soak&) = delete;
  Soak& operator=(const Soak&) = delete;

  int Run(std::uint64_t rounds) {
    Peer& host = Start("host", {"host", (dir_ / "run.toml").string(), "--listen", "127.0.0.1:0"});
    Until("an invite", [&] { return !host.invite.empty(); });
    Peer& second = Start("second", {"join", host.invite});
    Until("two members", [&] { return host.members == 2; });
    const std::uint64_t first = host.round;
    std::uint64_t guests = 0;
    for (std::uint64_t k = 1; k <= kSamples; ++k) {
      const std::uint64_t goal = first + rounds * k / kSamples;
      if (k % 4 == 0) Guest(host, ++guests);
      Until(fmt::format("round {}", goal),
            [&] { return host.round >= goal && second.round >= goal; });
      for (Peer* peer : {&host, &second}) peer->samples.push_back(Take(*peer));
      Show(host.samples.back());
    }
    fmt::print("{} guests joined and left\n", guests);
    const bool good = Judge(host) & Judge(second);
    for (Peer* peer : {&second, &host}) peer->child->Signal(SIGINT);
    Until("the end", [&] { return second.child->Ended() && host.child->Ended(); });
    return good ? 0 : 1;
  }

 private:
  Peer& Start(const std::string& name, std::vector<std::string> arguments) {
    peers_.push_back(std::make_unique<Peer>());
    Peer& peer = *peers_.back();
    peer.name = name;
    peer.dir = (dir_ / name).string();
    arguments.insert(arguments.end(), {"--dir", peer.dir, "--json"});
    auto child = app::Child::Start(
        {.program = program_,
         .arguments = std::move(arguments),
         .environment = {"LOOM_OWNER_KEY=" + (dir_ / "owner").string(), "OMP_WAIT_POLICY=passive"},
         .log = peer.dir + ".log",
         .events = {}});
    if (!child) Die(child.error().ToString());
    peer.child = std::move(*child);
    return peer;
  }

  void Guest(const Peer& host, std::uint64_t number) {
    Peer& guest = Start(fmt::format("guest-{}", number), {"join", host.invite});
    Until("a guest that takes part",
          [&] { return host.members == 3 && guest.round >= host.round && guest.members == 3; });
    guest.child->Signal(SIGINT);  // of three it leaves first
    Until("its leave", [&] { return guest.child->Ended() && host.members == 2; });
    guest.child.reset();
  }

  void Until(const std::string& what, const std::function<bool()>& done) {
    constexpr Duration kLimit = 600s;
    const Time end = SystemClock().Now() + kLimit;
    while (!done()) {
      std::vector<app::Child*> running;
      for (auto& peer : peers_) {
        if (peer->child != nullptr) running.push_back(peer->child.get());
      }
      app::WaitForOutput(running, 50ms);
      for (auto& peer : peers_) {
        if (peer->child != nullptr)
          (void)peer->child->Read([&](const json::Value& event) { Hear(*peer, event); });
      }
      if (SystemClock().Now() > end) Die("waited in vain for " + what);
    }
  }

  static void Hear(Peer& peer, const json::Value& event) {
    const auto text = [&](const char* key) {
      const json::Value* v = event.Find(key);
      return v != nullptr && v->AsString() != nullptr ? *v->AsString() : std::string();
    };
    const auto count = [&](const char* key) {
      const json::Value* v = event.Find(key);
      return v != nullptr && v->AsUnsigned() != nullptr ? *v->AsUnsigned() : 0;
    };
    if (text("event") == "invite") peer.invite = text("invite");
    if (text("event") == "round") {
      peer.round = count("round");
      peer.members = count("peers");
    }
  }

  static void Show(const Sample& s) {
    static bool begun = false;
    if (!std::exchange(begun, true)) {
      fmt::print("{:>7} {:>11} {:>5} {:>8} {:>11}\n", "round", "memory MB", "fds", "threads",
                 "folder kB");
    }
    fmt::print("{:>7} {:>11.1f} {:>5} {:>8} {:>11.0f}\n", s.round,
               static_cast<double>(s.memory) / 1e6, s.descriptors, s.threads,
               static_cast<double>(s.Folder()) / 1e3);
    std::fflush(stdout);
  }

  /// Since the first tenth, in which buffers grow to their size.
  static bool Judge(const Peer& peer) {
    const Sample& from = peer.samples[kSamples / 10 - 1];
    const Sample& to = peer.samples.back();
    const auto grown = [](std::uint64_t before, std::uint64_t after) {
      return static_cast<double>(after) - static_cast<double>(before);
    };
    const double rounds = static_cast<double>(to.round - from.round);
    const double memory = grown(from.memory, to.memory) / rounds;
    fmt::print(
        "{}: since round {} memory grew by {:.0f} bytes a round, descriptors by {}, threads "
        "by {}\n",
        peer.name, from.round, memory, grown(from.descriptors, to.descriptors),
        grown(from.threads, to.threads));
    fmt::print("  the folder:");
    for (const auto& [kind, bytes] : to.folder) {
      const auto before = from.folder.find(kind);
      const double growth = grown(before == from.folder.end() ? 0 : before->second, bytes);
      if (bytes >= 1000)
        fmt::print(" {} {:.0f} kB ({:+.0f} a round)", kind, static_cast<double>(bytes) / 1e3,
                   growth / rounds);
    }
    fmt::print("\n");
    // One more checkpoint may be in the making, and the rounds of one distance more.
    const auto at_most = [&](const char* kind, double times) {
      const double before = static_cast<double>(std::max<std::uint64_t>(1, Of(from, kind)));
      return static_cast<double>(Of(to, kind)) <= times * before;
    };
    const bool bounded =
        at_most("checkpoints", 1.5) && at_most("rounds", 3) && Of(to, "votes.log") < (6U << 20);
    const bool good = bounded && memory < kBytesOfARound && to.threads <= from.threads &&
                      to.descriptors <= from.descriptors + 2;
    if (!good) fmt::print("  NOT FLAT\n");
    return good;
  }
  static std::uint64_t Of(const Sample& sample, const char* kind) {
    const auto it = sample.folder.find(kind);
    return it == sample.folder.end() ? 0 : it->second;
  }

  [[noreturn]] void Die(const std::string& why) {
    fmt::print(stderr, "soak: {}\n", why);
    for (auto& peer : peers_) {
      if (peer->child != nullptr) fmt::print(stderr, "  {}\n", peer->child->LogTail(3));
    }
    peers_.clear();
    std::exit(1);
  }

  std::string program_;
  fs::path dir_;
  std::vector<std::unique_ptr<Peer>> peers_;
};

}  // namespace
}  // namespace loom

int main(int argc, char** argv) {
  const std::uint64_t rounds = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1000;
  if (rounds < 100) {
    fmt::print(stderr, "usage: soak [ROUNDS, at least 100]\n");
    return 2;
  }
  return loom::Soak(LOOM_BINARY).Run(rounds);
}
