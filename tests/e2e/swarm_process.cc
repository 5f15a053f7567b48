#include "tests/e2e/swarm_process.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>

#include "base/file.h"
#include "tests/e2e/tiny_run.h"

namespace loom::e2e {
namespace {

constexpr Duration kPoll = 50ms;

std::string Story() {
  static constexpr const char* kNames[] = {"Anne", "the captain", "her sister", "Mr. Bell"};
  static constexpr const char* kDeeds[] = {"walked to", "wrote about", "thought of",
                                           "returned from"};
  static constexpr const char* kThings[] = {"the village", "a letter", "the old house", "the sea",
                                            "town"};
  std::string text;
  std::uint32_t state = 12345;
  const auto pick = [&state](std::uint32_t n) {
    state = state * 1664525U + 1013904223U;
    return (state >> 16) % n;
  };
  for (int i = 0; i < 3000; ++i) {
    text += std::string(kNames[pick(4)]) + " " + kDeeds[pick(4)] + " " + kThings[pick(5)] +
            (pick(3) == 0 ? ".\n" : ", and ");
  }
  return text;
}

std::vector<std::string> CommandLine(const Setting& setting,
                                     const std::vector<std::string>& arguments) {
  std::vector<std::string> words = setting.prefix;
  words.emplace_back(LOOM_BINARY);
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

std::uint64_t Count(const json::Value& event, std::string_view key) {
  const json::Value* value = event.Find(key);
  return value != nullptr && value->AsUnsigned() != nullptr ? *value->AsUnsigned() : 0;
}

std::string Text(const json::Value& event, std::string_view key) {
  const json::Value* value = event.Find(key);
  return value != nullptr && value->AsString() != nullptr ? *value->AsString() : "";
}

}  // namespace

void SwarmTest::SetUp() {
  // Several peers share the processors: compute threads that wait must not spin in each other's
  // way.
  ::setenv("OMP_WAIT_POLICY", "passive", 1);
  const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
  dir_ = (std::filesystem::temp_directory_path() /
          fmt::format("loom_e2e_{}_{}_{}", info->test_suite_name(), info->name(), ::getpid()))
             .string();
  std::filesystem::create_directories(dir_);
  std::ofstream(Path("story.txt")) << Story();
  // Rounds that take a fraction of a second, until the test ends the run.
  std::ofstream(Path("run.toml")) << TinyRun("batch = 2\ntotal_tokens = 1000000\n",
                                             "rounds = 0\ninner_steps = 30\n",
                                             "checkpoint_every = 4\n");
}

void SwarmTest::TearDown() {
  for (auto& peer : peers_) peer->child.reset();
  if (!HasFailure()) {
    std::error_code ignored;
    std::filesystem::remove_all(dir_, ignored);
  } else {
    fmt::print("folders and logs are kept in {}\n", dir_);
  }
}

Peer& SwarmTest::Add(const std::string& name) {
  peers_.push_back(std::make_unique<Peer>());
  peers_.back()->name = name;
  peers_.back()->dir = Path(name);
  return *peers_.back();
}

void SwarmTest::Start(Peer& peer, std::vector<std::string> arguments, const Setting& setting) {
  arguments.insert(arguments.end(), {"--dir", peer.dir, "--json"});
  arguments.insert(arguments.end(), setting.arguments.begin(), setting.arguments.end());
  peer.Forget();
  std::vector<std::string> words = CommandLine(setting, arguments);
  const std::string program = words.front();
  words.erase(words.begin());
  auto child = app::Child::Start({.program = program,
                                  .arguments = std::move(words),
                                  .environment = setting.environment,
                                  .log = peer.dir + ".log",
                                  .events = peer.dir + ".events"});
  ASSERT_TRUE(child.ok()) << child.error().ToString();
  peer.child = std::move(*child);
}

Peer& SwarmTest::Host(const std::string& name, const Setting& setting) {
  Peer& peer = Add(name);
  std::vector<std::string> arguments{"host", Path("run.toml")};
  if (std::ranges::find(setting.arguments, "--listen") == setting.arguments.end())
    arguments.insert(arguments.end(), {"--listen", "127.0.0.1:0"});
  Start(peer, std::move(arguments), setting);
  Until("the invite of " + name, [&] { return !peer.invite.empty(); });
  return peer;
}

Peer& SwarmTest::Join(const std::string& name, const std::string& invite, const Setting& setting) {
  Peer& peer = Add(name);
  Start(peer, {"join", invite}, setting);
  return peer;
}

std::vector<Peer*> SwarmTest::Three() {
  Peer& host = Host("host");
  Peer& second = Join("second", host.invite);
  Peer& third = Join("third", host.invite);
  std::vector<Peer*> all{&host, &second, &third};
  UntilRound(all, 2, 3);
  return all;
}

void SwarmTest::Resume(Peer& peer, const Setting& setting) {
  Start(peer, {"join", "--listen", "127.0.0.1:0"}, setting);
}

Peer& SwarmTest::Train(const std::string& name, const std::string& run_toml) {
  Peer& peer = Add(name);
  TrainAgain(peer, run_toml);
  return peer;
}

void SwarmTest::TrainAgain(Peer& peer, const std::string& run_toml) {
  Start(peer, {"train", run_toml}, {});
}

void SwarmTest::Kill(Peer& peer) {
  peer.child->Signal(SIGKILL);
  AwaitEnd(peer, 10s);
}

int SwarmTest::Interrupt(Peer& peer) {
  peer.child->Signal(SIGINT);
  return AwaitEnd(peer, 90s);
}

int SwarmTest::AwaitEnd(Peer& peer, Duration limit) {
  const Time begin = SystemClock().Now();
  while (!peer.child->Ended() && SystemClock().Now() - begin < limit) {
    app::WaitForOutput({}, kPoll);
    Take();
  }
  EXPECT_TRUE(peer.child->Ended())
      << peer.name << " has not ended after " << Seconds(limit) << " s\n"
      << peer.child->LogTail(5);
  const Status read = peer.child->Read([&](const json::Value& event) { OnEvent(peer, event); });
  EXPECT_TRUE(read.ok());
  const int code = peer.child->Ended() ? peer.child->exit_code() : -1;
  peer.child.reset();
  return code;
}

Ended SwarmTest::Run(const std::vector<std::string>& arguments, Duration limit,
                     const Setting& setting) {
  Ended ended;
  const std::string log =
      fmt::format("{}/run-{}.log", dir_, std::filesystem::hash_value(arguments.back()));
  for (const std::string& old : {log, log + ".out"}) std::filesystem::remove(old);
  std::vector<std::string> words = CommandLine(setting, arguments);
  const std::string program = words.front();
  words.erase(words.begin());
  auto child = app::Child::Start({.program = program,
                                  .arguments = std::move(words),
                                  .environment = setting.environment,
                                  .log = log,
                                  .events = log + ".out"});
  EXPECT_TRUE(child.ok());
  if (!child) return ended;
  const auto hear = [&] {
    static_cast<void>((*child)->Read([&](const json::Value& said) { ended.said.push_back(said); }));
  };
  const Time begin = SystemClock().Now();
  while (!(*child)->Ended() && SystemClock().Now() - begin < limit) {
    app::WaitForOutput({child->get()}, kPoll);
    hear();
    Take();
  }
  hear();
  ended.seconds = Seconds(SystemClock().Now() - begin);
  EXPECT_TRUE((*child)->Ended()) << "loom " << arguments.front() << " did not end in "
                                 << Seconds(limit) << " s";
  if ((*child)->Ended()) ended.code = (*child)->exit_code();
  ended.log = (*child)->LogTail(40);
  if (const auto text = ReadFile(log + ".out", 16U << 20)) ended.text = *text;
  return ended;
}

void SwarmTest::OnEvent(Peer& peer, const json::Value& event) {
  const std::string kind = Text(event, "event");
  ++peer.events;
  EXPECT_FALSE(peer.done) << peer.name << " says '" << kind << "' after it was done";
  if (kind == "invite" || kind == "started") {
    peer.id = Text(event, "peer");
    if (kind == "invite") peer.invite = Text(event, "invite");
  } else if (kind == "round") {
    peer.round = Count(event, "round");
    peer.members = Count(event, "peers");
    const std::string root = Text(event, "root");
    const auto [known, first] = roots_.emplace(peer.round, root);
    if (compare_roots_ && !first && known->second != root) {
      ADD_FAILURE() << peer.name << " has root " << root << " after round " << peer.round
                    << ", another peer has " << known->second;
    }
  } else if (kind == "phase") {
    peer.phase = Text(event, "phase");
    peer.phase_round = Count(event, "round");
    const json::Value* leading = event.Find("leading");
    peer.leading = leading != nullptr && leading->AsBool() != nullptr && *leading->AsBool();
  } else if (kind == "done") {
    peer.done = true;
  } else if (kind == "problem") {
    peer.problems.push_back(Text(event, "text"));
  }
}

void SwarmTest::Take() {
  for (auto& peer : peers_) {
    if (!peer->running()) continue;
    const Status read = peer->child->Read([&](const json::Value& event) { OnEvent(*peer, event); });
    if (!read) ADD_FAILURE() << peer->name << ": " << read.error().ToString();
  }
}

bool SwarmTest::Until(const std::string& what, const std::function<bool()>& condition,
                      Duration limit) {
  const Time begin = SystemClock().Now();
  std::string why = fmt::format("after {} s", Seconds(limit));
  while (SystemClock().Now() - begin < limit) {
    Take();
    if (condition()) return true;
    std::vector<app::Child*> running;
    bool ended = false;
    for (auto& peer : peers_) {
      if (!peer->running()) continue;
      running.push_back(peer->child.get());
      if (peer->child->Ended()) {
        Take();
        if (condition()) return true;
        why = fmt::format("and {} ended with code {}", peer->name, peer->child->exit_code());
        ended = true;
      }
    }
    if (ended) break;
    app::WaitForOutput(running, kPoll);
  }
  std::string text = fmt::format("waited for {} in vain, {}", what, why);
  for (const auto& peer : peers_) {
    text += fmt::format("\n  {}: {}, round {} with {} members, phase {} of round {}", peer->name,
                        peer->running() ? "runs" : "does not run", peer->round, peer->members,
                        peer->phase, peer->phase_round);
    if (peer->running()) text += "\n    " + peer->child->LogTail(3);
  }
  ADD_FAILURE() << text;
  return false;
}

bool SwarmTest::UntilRound(const std::vector<Peer*>& peers, std::uint64_t round,
                           std::uint64_t members, Duration limit) {
  std::string names;
  for (const Peer* peer : peers) names += peer->name + " ";
  return Until(
      fmt::format("round {} with {} members of {}", round, members, names),
      [&] {
        return std::all_of(peers.begin(), peers.end(), [&](const Peer* peer) {
          return peer->round >= round && (members == 0 || peer->members == members);
        });
      },
      limit);
}

app::FolderRecords SwarmTest::Records(const Peer& peer) {
  auto records = app::ReadFolderRecords(peer.dir);
  EXPECT_TRUE(records.ok()) << peer.name << ": " << records.error().ToString();
  return records ? std::move(*records) : app::FolderRecords{};
}

void SwarmTest::ExpectOneHistory() {
  std::map<std::uint64_t, Hash> hashes;
  for (const auto& peer : peers_) {
    if (!std::filesystem::exists(peer->dir + "/genesis")) continue;
    for (const collab::Record& record : Records(*peer).records) {
      const auto [known, first] = hashes.emplace(record.body.round, record.hash);
      EXPECT_TRUE(first || known->second == record.hash)
          << peer->name << " has another record of round " << record.body.round;
    }
  }
}

std::uint16_t SwarmTest::PortOf(const Peer& peer) {
  std::uint16_t port = 0;
  Until("an address of " + peer.name, [&] {
    const auto text = ReadFile(peer.dir + "/status.json", 1U << 20);
    if (!text) return false;
    const auto status = json::Parse(*text);
    const json::Value* addresses = status ? status->Find("addresses") : nullptr;
    if (addresses == nullptr || addresses->AsArray() == nullptr) return false;
    for (const json::Value& address : *addresses->AsArray()) {
      const std::string* a = address.AsString();
      const std::size_t colon = a != nullptr ? a->rfind(':') : std::string::npos;
      if (colon == std::string::npos) continue;
      std::from_chars(a->data() + colon + 1, a->data() + a->size(), port);
    }
    return port != 0;
  });
  return port;
}

}  // namespace loom::e2e
