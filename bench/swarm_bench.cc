// Whole peers as processes on loopback:
//   swarm_bench round  4 peers, 10M parameters, one tiny inner step: what a committed round takes
//                      beyond the slowest peer's work, over a plain loop that moves the same bytes
//   swarm_bench scale  tokens a second of two peers over one, in turn, local steps
//   swarm_bench kill   kill -9 of a member, of the leader, and of a leader in its reduce: seconds
//                      to the survivors' next committed round
#include <fmt/core.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>

#include "app/demo_child.h"
#include "app/peer_folder_source.h"
#include "base/time.h"
#include "round_floor.h"

namespace loom {
namespace {

namespace fs = std::filesystem;

struct Peer {
  std::unique_ptr<app::Child> child;
  std::string dir;
  std::string invite;
  std::string phase;
  bool leading = false;
  std::uint64_t round = 0;
  std::uint64_t members = 0;
  std::vector<std::pair<std::uint64_t, Time>> commits;  ///< round, and when it was told
  std::uint64_t tokens = 0;
};

std::string TextOf(const json::Value& event, std::string_view key) {
  const json::Value* v = event.Find(key);
  return v != nullptr && v->AsString() != nullptr ? *v->AsString() : "";
}
std::uint64_t CountOf(const json::Value& event, std::string_view key) {
  const json::Value* v = event.Find(key);
  return v != nullptr && v->AsUnsigned() != nullptr ? *v->AsUnsigned() : 0;
}

class Swarm {
 public:
  Swarm(std::string program, std::string dir, const std::string& toml)
      : program_(std::move(program)), dir_(std::move(dir)) {
    fs::remove_all(dir_);
    fs::create_directories(dir_);
    std::ofstream text(dir_ + "/story.txt");
    std::uint32_t state = 1;
    for (int i = 0; i < 400000; ++i) {
      state = state * 1664525U + 1013904223U;
      text << static_cast<char>(' ' + (state >> 16) % 60);
    }
    std::ofstream(dir_ + "/run.toml") << toml;
  }
  ~Swarm() {
    for (auto& peer : peers_) peer->child.reset();
    fs::remove_all(dir_);
  }

  Peer& Start(std::vector<std::string> arguments, Peer* again = nullptr) {
    if (again == nullptr) {
      peers_.push_back(std::make_unique<Peer>());
      again = peers_.back().get();
      again->dir = fmt::format("{}/{}", dir_, peers_.size());
    }
    again->round = again->members = 0;
    arguments.insert(arguments.end(), {"--dir", again->dir, "--json"});
    auto child = app::Child::Start({.program = program_,
                                    .arguments = std::move(arguments),
                                    .environment = {"LOOM_OWNER_KEY=" + dir_ + "/owner.pem"},
                                    .log = again->dir + ".log",
                                    .events = {}});
    if (!child) Die(child.error().ToString());
    again->child = std::move(*child);
    return *again;
  }
  Peer& Host() {
    Peer& peer = Start({"host", dir_ + "/run.toml", "--listen", "127.0.0.1:0"});
    Until("an invite", [&] { return !peer.invite.empty(); });
    return peer;
  }
  Peer& Join(const Peer& host) { return Start({"join", host.invite}); }
  void Resume(Peer& peer) { Start({"join", "--listen", "127.0.0.1:0"}, &peer); }

  void Until(const std::string& what, const std::function<bool()>& done, Duration limit = 300s) {
    const Time end = SystemClock().Now() + limit;
    while (!done()) {
      std::vector<app::Child*> running;
      for (auto& peer : peers_) {
        if (peer->child != nullptr) running.push_back(peer->child.get());
      }
      app::WaitForOutput(running, 5ms);
      for (auto& peer : peers_) {
        if (peer->child == nullptr) continue;
        (void)peer->child->Read([&](const json::Value& event) { Hear(*peer, event); });
      }
      if (SystemClock().Now() > end) Die("waited in vain for " + what);
    }
  }
  std::vector<std::unique_ptr<Peer>>& peers() { return peers_; }

 private:
  [[noreturn]] void Die(const std::string& why) {
    fmt::print(stderr, "swarm_bench: {}\n", why);
    for (auto& peer : peers_) {
      if (peer->child != nullptr) fmt::print(stderr, "  {}\n", peer->child->LogTail(3));
    }
    std::exit(1);
  }
  static void Hear(Peer& peer, const json::Value& event) {
    const std::string kind = TextOf(event, "event");
    if (kind == "invite") peer.invite = TextOf(event, "invite");
    if (kind == "phase") {
      peer.phase = TextOf(event, "phase");
      const json::Value* leading = event.Find("leading");
      peer.leading = leading != nullptr && leading->AsBool() != nullptr && *leading->AsBool();
    }
    if (kind == "round") {
      peer.round = CountOf(event, "round");
      peer.members = CountOf(event, "peers");
      peer.tokens = CountOf(event, "tokens");
      peer.commits.emplace_back(peer.round, SystemClock().Now());
    }
  }

  std::string program_, dir_;
  std::vector<std::unique_ptr<Peer>> peers_;
};

double Median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return x.empty() ? 0 : x[x.size() / 2];
}
double Worst(const std::vector<double>& x) {
  return x.empty() ? 0 : *std::max_element(x.begin(), x.end());
}

std::string Toml(std::string_view model, std::string_view optim, std::string_view sync) {
  return fmt::format(
      "[model]\npreset = \"nano\"\n{}\n[data]\npaths = [\"story.txt\"]\ntokenizer = \"chars\"\n"
      "[optim]\ntotal_tokens = 100000000\n{}\n[sync]\nrounds = 0\n{}\n[local]\nthreads = 1\n"
      "checkpoint_every = 1000\n",
      model, optim, sync);
}

void Rounds(const std::string& program, const std::string& dir, int samples) {
  constexpr std::size_t kElements = 10'652'544;  // of the model below
  std::vector<double> exchange, whole;
  const auto floor = [&] {
    fs::create_directories(dir);
    std::vector<double> seconds =
        RoundFloor(dir, 4, kElements, static_cast<std::size_t>(samples) / 2 + 3);
    fs::remove_all(dir);
    seconds.erase(seconds.begin(), seconds.begin() + 2);  // pages that were never touched
    return seconds;
  };
  std::vector<double> floors = floor();
  {
    Swarm swarm(
        program, dir,
        Toml("layers = 6\nwidth = 384\nheads = 6\ncontext = 16", "batch = 1", "inner_steps = 1"));
    Peer& host = swarm.Host();
    for (int i = 0; i < 3; ++i) swarm.Join(host);
    swarm.Until("four members", [&] { return host.members == 4; });
    const std::uint64_t first = host.round + 3;
    const std::uint64_t last = first + static_cast<std::uint64_t>(samples);
    swarm.Until("the samples", [&] { return host.round > last; });
    for (auto& peer : swarm.peers()) peer->child->Signal(SIGKILL);
    const auto records = app::ReadFolderRecords(host.dir).value().records;
    std::map<std::uint64_t, Time> at(host.commits.begin(), host.commits.end());
    for (std::uint64_t r = first; r <= last; ++r) {
      if (!at.contains(r) || !at.contains(r - 1)) continue;
      const auto work = collab::SlowestWork(records[r - 1]);
      whole.push_back(Seconds(at[r] - at[r - 1]));
      exchange.push_back(whole.back() - (work ? Seconds(*work) : 0));
    }
  }
  const std::vector<double> after = floor();
  floors.insert(floors.end(), after.begin(), after.end());
  fmt::print(
      "4 peers, {:.1f}M parameters, int8: a round median {:.3f} s; beyond the slowest work median "
      "{:.3f} s, worst {:.3f} s\nthe same bytes, sums, hashes and sync in a plain loop: median "
      "{:.3f} s, worst {:.3f} s; ratio of the medians {:.2f}\n",
      static_cast<double>(kElements) / 1e6, Median(whole), Median(exchange), Worst(exchange),
      Median(floors), Worst(floors), Median(exchange) / Median(floors));
}

double TokensPerSecond(const std::string& program, const std::string& dir, int peers) {
  Swarm swarm(program, dir, Toml("", "batch = 12", "inner_steps = 40"));
  Peer& host = swarm.Host();
  for (int i = 1; i < peers; ++i) swarm.Join(host);
  swarm.Until("the members",
              [&] { return host.members == static_cast<std::uint64_t>(peers) && host.round >= 3; });
  const std::uint64_t first = host.round + 1;
  swarm.Until("a first round", [&] { return host.round >= first; });
  const Time begin = SystemClock().Now();
  const std::uint64_t from = host.round;
  swarm.Until("some rounds", [&] { return host.round >= from + 6; });
  const double seconds = Seconds(SystemClock().Now() - begin);
  const std::uint64_t to = host.round;
  for (auto& peer : swarm.peers()) peer->child->Signal(SIGKILL);
  const auto records = app::ReadFolderRecords(host.dir).value().records;
  return static_cast<double>(records[to - 1].body.tokens - records[from - 1].body.tokens) / seconds;
}

void Scale(const std::string& program, const std::string& dir, int samples) {
  std::vector<double> ratios;
  for (int i = 0; i < samples; ++i) {
    const double one = TokensPerSecond(program, dir, 1);
    const double two = TokensPerSecond(program, dir, 2);
    ratios.push_back(two / one);
    fmt::print("one peer {:.0f} tokens/s, two {:.0f}: {:.2f} x\n", one, two, ratios.back());
    std::fflush(stdout);
  }
  fmt::print("median {:.2f} x\n", Median(ratios));
}

void Kills(const std::string& program, const std::string& dir, int samples) {
  Swarm swarm(program, dir,
              Toml("layers = 2\nwidth = 64\ncontext = 32", "batch = 2", "inner_steps = 20"));
  Peer& host = swarm.Host();
  for (int i = 0; i < 3; ++i) swarm.Join(host);
  std::mt19937 random(1);
  std::map<std::string, std::vector<double>> seconds;
  const auto settled = [&](std::uint64_t more) {
    std::uint64_t head = 0;
    for (auto& p : swarm.peers()) head = std::max(head, p->round);
    swarm.Until("four members", [&] {
      return std::ranges::all_of(
          swarm.peers(), [&](const auto& p) { return p->members == 4 && p->round >= head + more; });
    });
  };
  settled(4);
  for (int i = 0; i < samples; ++i) {
    for (const char* whom : {"member", "leader", "leader in its reduce"}) {
      settled(2);
      Peer* victim = nullptr;
      const std::string kind = whom;
      swarm.Until(kind, [&] {
        victim = nullptr;
        for (auto& p : swarm.peers()) {
          const bool in_phase = kind != "leader in its reduce" || p->phase == "reduce";
          if ((kind == "member") != p->leading && in_phase &&
              (victim == nullptr || random() % 2 == 0))
            victim = p.get();
        }
        return victim != nullptr;
      });
      std::vector<double> usual;
      for (std::size_t k = victim->commits.size() - 3; k + 1 < victim->commits.size(); ++k)
        usual.push_back(Seconds(victim->commits[k + 1].second - victim->commits[k].second));
      victim->child->Signal(SIGKILL);
      const Time begin = SystemClock().Now();
      std::uint64_t head = 0;
      for (auto& p : swarm.peers()) head = std::max(head, p->round);
      swarm.Until("the next round", [&] {
        return std::ranges::any_of(
            swarm.peers(), [&](const auto& p) { return p.get() != victim && p->round > head; });
      });
      const double took = Seconds(SystemClock().Now() - begin);
      seconds[kind].push_back(took);
      fmt::print("{}: {:.2f} s to the next committed round, {:.2f} s before\n", kind, took,
                 Median(usual));
      std::fflush(stdout);
      swarm.Until("its end", [&] { return victim->child->Ended(); });
      swarm.Resume(*victim);
    }
  }
  for (const auto& [kind, all] : seconds)
    fmt::print("{}: median {:.2f} s, worst {:.2f} s of {}\n", kind, Median(all), Worst(all),
               all.size());
}

}  // namespace
}  // namespace loom

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  const int samples = argc > 2 ? std::atoi(argv[2]) : 0;
  const std::string dir =
      fmt::format("{}/loom_swarm_bench", std::filesystem::temp_directory_path().string());
  const std::string program = LOOM_BINARY;
  if (what == "round") {
    loom::Rounds(program, dir, samples > 0 ? samples : 20);
  } else if (what == "scale") {
    loom::Scale(program, dir, samples > 0 ? samples : 5);
  } else if (what == "kill") {
    loom::Kills(program, dir, samples > 0 ? samples : 20);
  } else {
    fmt::print(stderr, "usage: swarm_bench round|scale|kill [samples]\n");
    return 2;
  }
  return 0;
}
