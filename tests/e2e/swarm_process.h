// A swarm of real processes for tests: a tiny model on generated text, every event looked at, every
// root compared with everybody else's, and waiting only for things that events or folders show.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "app/demo_child.h"
#include "app/peer_folder_source.h"
#include "base/time.h"

namespace loom::e2e {

/// What a peer's process has told so far. Survives the process; a new life of the same folder goes
/// on with it.
struct Peer {
  std::string name;
  std::string dir;
  std::string id;
  std::string invite;  ///< the one that a host printed
  std::unique_ptr<app::Child> child;
  std::uint64_t round = 0;    ///< last committed
  std::uint64_t members = 0;  ///< at that round
  std::string phase;
  std::uint64_t phase_round = 0;
  bool leading = false;
  bool done = false;         ///< said its last word
  std::uint64_t events = 0;  ///< of this life
  std::vector<std::string> problems;

  bool running() const { return child != nullptr; }
  void Forget() {  ///< what the last life told
    round = members = phase_round = events = 0;
    phase.clear();
    leading = done = false;
  }
};

struct Setting {
  std::vector<std::string> arguments;
  std::vector<std::string> environment;
  std::vector<std::string> prefix =
      {};  ///< a command that runs the program: /usr/sbin/ip netns ...
};

/// What a process that ended left behind.
struct Ended {
  int code = -1;
  std::string log;                ///< stderr
  std::string text;               ///< stdout
  std::vector<json::Value> said;  ///< the objects on it
  double seconds = 0;
};

class SwarmTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  Peer& Host(const std::string& name, const Setting& setting = {});
  Peer& Join(const std::string& name, const std::string& invite, const Setting& setting = {});
  /// Host and two others, all members, past the first rounds.
  std::vector<Peer*> Three();
  void Resume(Peer& peer, const Setting& setting = {});
  /// loom train, also of a folder that has begun.
  Peer& Train(const std::string& name, const std::string& run_toml);
  void TrainAgain(Peer& peer, const std::string& run_toml);
  /// kill -9, and the folder is free when it returns.
  void Kill(Peer& peer);
  /// Ctrl-C; the exit code.
  int Interrupt(Peer& peer);
  /// Waits for a process to end by itself; its exit code, -1 after the limit.
  int AwaitEnd(Peer& peer, Duration limit);
  /// Runs a verb to its end. Fails the test when that takes longer than the limit.
  Ended Run(const std::vector<std::string>& arguments, Duration limit = 60s,
            const Setting& setting = {});

  /// Takes in events until the condition holds. False (and a failure that says what was waited for,
  /// with everybody's last words) after the limit, or when a process ends by itself.
  bool Until(const std::string& what, const std::function<bool()>& condition,
             Duration limit = 120s);
  /// All of them have committed `round`, with `members` members.
  bool UntilRound(const std::vector<Peer*>& peers, std::uint64_t round, std::uint64_t members = 0,
                  Duration limit = 120s);
  /// From here on there are two histories for a while: the folders tell in the end.
  void LetHistoriesDiffer() { compare_roots_ = false; }
  /// One history in all folders: equal hashes and roots as far as each goes.
  void ExpectOneHistory();
  app::FolderRecords Records(const Peer& peer);
  /// The peer's listening port, from its status.
  std::uint16_t PortOf(const Peer& peer);
  std::string Path(const std::string& name) const { return dir_ + "/" + name; }

 private:
  Peer& Add(const std::string& name);
  void Start(Peer& peer, std::vector<std::string> arguments, const Setting& setting);
  void Take();
  void OnEvent(Peer& peer, const json::Value& event);

  std::string dir_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::map<std::uint64_t, std::string> roots_;
  bool compare_roots_ = true;
};

}  // namespace loom::e2e
