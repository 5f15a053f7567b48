// The demo's story: four peers as real processes on this machine, one of them killed while it leads
// a reduce and brought back from its folder, another killed for good, told as it happens.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "app/demo_child.h"
#include "app/output.h"
#include "base/result.h"

namespace loom::app {

struct SwarmPlan {
  std::string program;   ///< the loom executable
  std::string run_toml;  ///< of the run; its rounds end it
  std::string out;       ///< peer-1 .. peer-N, their logs and events go here
  std::uint32_t peers = 4;
  std::uint64_t rounds = 0;
  Duration stall_limit = 90s;  ///< without a new round, the demo gives up
};

struct SwarmEnd {
  std::uint64_t killed = 0;
  std::uint64_t bytes_sent = 0;        ///< by every process, each until its last report
  bool roots_equal = true;             ///< as the peers reported them, in every round
  std::vector<std::string> survivors;  ///< folders of the peers that reached the end
  std::vector<std::string> folders;    ///< of all peers
};

/// Runs the story to its end. Not thread-safe: children belong to the calling thread.
class DemoSwarm {
 public:
  DemoSwarm(SwarmPlan plan, Output& out) : plan_(std::move(plan)), out_(out) {}
  /// Errors: a peer failed or nothing moved for stall_limit (with the log to read), or Ctrl-C.
  Result<SwarmEnd> Run();

 private:
  enum class Stage : std::uint8_t { kGather, kKillLeader, kDown, kReturning, kKillMember, kRunOut };
  struct Slot {
    std::uint32_t number = 0;
    std::string dir;
    std::unique_ptr<Child> child;
    std::string id;
    std::uint64_t round = 0;       ///< last committed that it told of
    std::uint64_t life_bytes = 0;  ///< of the process that runs now
    std::uint64_t phase_round = 0;
    std::string phase;
    bool leading = false;
    bool killed = false;  ///< by the demo; stays so when it does not come back
    bool finished = false;
  };

  Status Start(Slot& slot, std::vector<std::string> arguments);
  Status StartOthers();
  Status Turn();
  void OnEvent(Slot& slot, const json::Value& event);
  void OnRound(Slot& slot, const json::Value& event);
  void OnPhase(Slot& slot, const json::Value& event);
  void Kill(Slot& slot);
  Status OnEnd(Slot& slot);
  Status Bury(Slot& slot);
  Status BringBack();
  Status Failed(const Slot& slot, const std::string& what) const;
  void EndChildren();
  void TellOfRound(std::uint64_t round);
  std::string NameOf(const std::string& id) const;
  bool Fresh(const std::string& kind, std::uint64_t round, const std::string& id);
  Slot* Victim();

  SwarmPlan plan_;
  Output& out_;
  SwarmEnd end_;
  Stage stage_ = Stage::kGather;
  std::vector<Slot> slots_;
  std::string invite_;
  std::uint64_t round_ = 0;  ///< newest that anybody committed
  std::uint64_t members_ = 0;
  std::uint64_t kill_from_ = 0;
  std::uint64_t kill_tries_ = 0;
  std::uint64_t killed_round_ = 0;
  std::uint32_t first_killed_ = 0;  ///< number of the peer that comes back
  std::optional<Time> kill_at_;
  std::uint32_t kill_whom_ = 0;
  Time began_{};
  Time last_news_{};
  std::map<std::uint64_t, std::string> roots_;
  std::set<std::string> told_;
  std::optional<std::uint64_t> to_tell_;
};

}  // namespace loom::app
