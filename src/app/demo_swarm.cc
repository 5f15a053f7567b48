#include "app/demo_swarm.h"

#include <signal.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "app/args.h"
#include "app/interrupt.h"
#include "app/peer_folder_source.h"
#include "base/file.h"
#include "node/run_data.h"

namespace loom::app {
namespace {

constexpr Duration kStartLimit = 120s;
constexpr Duration kEndLimit = 15s;
constexpr Duration kStep = 200ms;
constexpr std::uint64_t kQuietRounds = 3;   ///< after a change, before the next blow
constexpr std::uint64_t kAwayRounds = 2;    ///< that the killed leader misses at least
constexpr std::uint64_t kMaxKillTries = 3;  ///< until one hits a leader in its reduce

std::string Text(const json::Value& event, std::string_view key) {
  const json::Value* value = event.Find(key);
  const std::string* text = value != nullptr ? value->AsString() : nullptr;
  return text != nullptr ? *text : std::string();
}

std::uint64_t Count(const json::Value& event, std::string_view key) {
  const json::Value* value = event.Find(key);
  const std::uint64_t* number = value != nullptr ? value->AsUnsigned() : nullptr;
  return number != nullptr ? *number : 0;
}

double Number(const json::Value& event, std::string_view key) {
  const json::Value* value = event.Find(key);
  double number = 0;
  return value != nullptr && value->AsNumber(number) ? number : 0;
}

/// What the peer last wrote about itself: newer than its last event when it was killed in between.
std::uint64_t BytesInStatus(const std::string& dir) {
  const auto text = ReadFile(dir + "/status.json", 1U << 20);
  if (!text) return 0;
  const auto status = json::Parse(*text);
  return status ? Count(*status, "bytes_sent") : 0;
}

/// The text is on this machine already: peers get a copy of what the first one made of it, instead
/// of fetching it over the network. A run checks it by hash.
Status CopyData(const std::string& from, const std::string& to) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::create_directories(to, error);
  const std::string data = "/" + std::string(node::kDataFolder);
  if (!error) fs::copy(from + data, to + data, fs::copy_options::recursive, error);
  if (!error) return {};
  return MakeError(Code::kIo,
                   fmt::format("cannot copy {}{} to {}: {}", from, data, to, error.message()));
}

}  // namespace

std::string DemoSwarm::NameOf(const std::string& id) const {
  for (const Slot& slot : slots_) {
    if (slot.id == id) return fmt::format("peer {}", slot.number);
  }
  return "peer " + id.substr(0, 8);
}

/// Every member tells of the same event; people hear it once.
bool DemoSwarm::Fresh(const std::string& kind, std::uint64_t round, const std::string& id) {
  return told_.insert(fmt::format("{} {} {}", kind, round, id)).second;
}

Status DemoSwarm::Failed(const Slot& slot, const std::string& what) const {
  // What a peer finds wrong with the corpus or the disk is no defect.
  constexpr std::array kTold{Code::kInvalid, Code::kNotFound, Code::kDiskFull, Code::kLimit};
  const auto told = std::ranges::find_if(
      kTold, [&](Code code) { return slot.child && slot.child->exit_code() == ExitCode(code); });
  return MakeError(told == kTold.end() ? Code::kInternal : *told,
                   fmt::format("peer {} {}; its last words: {}", slot.number, what,
                               slot.child ? slot.child->LogTail() : "none"),
                   fmt::format("read {}.log", slot.dir));
}

Status DemoSwarm::Start(Slot& slot, std::vector<std::string> arguments) {
  arguments.insert(arguments.end(), {"--dir", slot.dir, "--listen", "127.0.0.1:0", "--json"});
  slot.life_bytes = 0;
  slot.phase.clear();
  LOOM_ASSIGN(slot.child, Child::Start({.program = plan_.program,
                                        .arguments = std::move(arguments),
                                        .environment = {},
                                        .log = slot.dir + ".log",
                                        .events = slot.dir + ".events"}));
  return {};
}

Status DemoSwarm::StartOthers() {
  out_.Say("Peer 1 has started the run. Peers 2 to {} join it with its invite.", plan_.peers);
  for (Slot& slot : slots_) {
    if (slot.number == 1) continue;
    LOOM_RETURN_IF_ERROR(CopyData(slots_[0].dir, slot.dir));
    LOOM_RETURN_IF_ERROR(Start(slot, {"join", invite_, "--threads", "1"}));
  }
  return {};
}

void DemoSwarm::OnRound(Slot& slot, const json::Value& event) {
  slot.round = Count(event, "round");
  slot.life_bytes = std::max(slot.life_bytes, Count(event, "bytes_sent"));
  const std::string root = Text(event, "root");
  const auto [known, first] = roots_.emplace(slot.round, root);
  if (!first && known->second != root) {
    end_.roots_equal = false;
    out_.Say("Round {}: peer {} has root {}, another peer has {}.", slot.round, slot.number,
             root.substr(0, 8), known->second.substr(0, 8));
  }
  if (slot.round <= round_) return;
  round_ = slot.round;
  members_ = Count(event, "peers");
  last_news_ = SystemClock().Now();
  const double seconds = Seconds(last_news_ - began_);
  const double left = seconds / static_cast<double>(round_) *
                      static_cast<double>(plan_.rounds - std::min(round_, plan_.rounds));
  json::Object told{{"peer", json::Value(std::uint64_t{slot.number})}};
  told.insert(told.end(), event.AsObject()->begin(), event.AsObject()->end());
  out_.Event(told);
  const double loss = Number(event, "loss");
  out_.Progress(fmt::format("round {}/{}  {}{} members  {:.0f} tokens/s  root {}  {} left", round_,
                            plan_.rounds, loss > 0 ? fmt::format("loss {:.3f}  ", loss) : "",
                            members_, static_cast<double>(Count(event, "tokens")) / seconds,
                            root.substr(0, 8), HumanSeconds(left)));
}

void DemoSwarm::Kill(Slot& slot) {
  slot.killed = true;
  slot.child->Signal(SIGKILL);
  kill_at_.reset();
  out_.Say("kill -9 on peer {}{} in the {} of round {}.", slot.number,
           slot.leading ? ", the leader," : "", slot.phase, slot.phase_round);
}

DemoSwarm::Slot* DemoSwarm::Victim() {
  for (auto slot = slots_.rbegin(); slot != slots_.rend(); ++slot) {
    if (!slot->killed && slot->child && slot->number != first_killed_ && !slot->leading)
      return &*slot;
  }
  return nullptr;
}

void DemoSwarm::OnPhase(Slot& slot, const json::Value& event) {
  slot.phase = Text(event, "phase");
  slot.phase_round = Count(event, "round");
  const json::Value* leading = event.Find("leading");
  slot.leading = leading != nullptr && leading->AsBool() != nullptr && *leading->AsBool();
  if (slot.killed) return;
  if (stage_ == Stage::kKillLeader && slot.phase_round >= kill_from_ && slot.phase == "reduce" &&
      slot.leading) {
    first_killed_ = slot.number;
    killed_round_ = slot.phase_round;
    Kill(slot);
  } else if (stage_ == Stage::kKillMember && !kill_at_ && slot.phase_round >= kill_from_ &&
             slot.phase == "work" && &slot == Victim()) {
    kill_whom_ = slot.number;
    kill_at_ = SystemClock().Now() + kStep;  // well into its work
  }
}

void DemoSwarm::OnEvent(Slot& slot, const json::Value& event) {
  const std::string kind = Text(event, "event");
  const std::string id = Text(event, "peer");
  const std::uint64_t round = Count(event, "round");
  if (kind == "invite") {
    invite_ = Text(event, "invite");
    slot.id = id;
  } else if (kind == "started") {
    slot.id = id;
  } else if (kind == "round") {
    OnRound(slot, event);
  } else if (kind == "phase") {
    OnPhase(slot, event);
  } else if (kind == "joined") {
    if (Fresh(kind, round, id)) {
      out_.Say("Round {}: {} is a member from now on.", round, NameOf(id));
      if (stage_ == Stage::kReturning && id == slots_[first_killed_ - 1].id) {
        out_.Say("It has fetched what it missed and holds the same weights as the others again.");
        stage_ = kill_tries_ < kMaxKillTries && end_.killed == 0 ? Stage::kKillLeader
                                                                 : Stage::kKillMember;
        kill_from_ = std::max(round + kQuietRounds, plan_.rounds * 6 / 10);
        if (stage_ == Stage::kKillLeader) kill_from_ = round + kQuietRounds;
      }
    }
  } else if (kind == "left") {
    if (Fresh(kind, round, id))
      out_.Say("Round {}: {} is taken off the list of members.", round, NameOf(id));
  } else if (kind == "leader") {
    if (Fresh(kind, round, id))
      out_.Say("Round {}: {} leads now: {}.", round, NameOf(id), Text(event, "text"));
  } else if (kind == "excluded") {
    if (Fresh(kind, round, id)) {
      out_.Say("Round {}: the work of {} is left out: {}.", round, NameOf(id), Text(event, "text"));
    }
  } else if (kind == "done") {
    slot.finished = Text(event, "state") == "stopped";
  }
}

/// Which work made the round, and what became of the rest: from a survivor's folder, as anybody
/// can.
void DemoSwarm::TellOfRound(std::uint64_t round) {
  for (const Slot& slot : slots_) {
    if (slot.killed || slot.round < round) continue;
    const auto folder = ReadFolderRecords(slot.dir);
    if (!folder || folder->records.size() < round) continue;
    const collab::Body& body = folder->records[round - 1].body;
    std::string who;
    for (const collab::Contribution& c : body.contributions) {
      who += (who.empty() ? "" : ", ") + NameOf(c.peer.Hex());
    }
    std::uint64_t returned = 0;
    for (const collab::RangeFate& fate : body.fates) {
      if (fate.fate == collab::Fate::kReturned) returned += fate.range.size();
    }
    out_.Say("Round {} was finished all the same, {}.{}", round,
             who.empty() ? std::string("without anybody's work") : "with the work of " + who,
             returned == 0
                 ? std::string(" No sample was lost.")
                 : fmt::format(" {} samples that did not make it are handed out again.", returned));
    return;
  }
}

Status DemoSwarm::Bury(Slot& slot) {
  end_.bytes_sent += std::max(slot.life_bytes, BytesInStatus(slot.dir));
  slot.life_bytes = 0;
  if (stage_ != Stage::kKillLeader) {
    ++end_.killed;
    out_.Say("Peer {} is gone for good.", slot.number);
    to_tell_ = slot.phase_round;
    stage_ = Stage::kRunOut;
    return {};
  }
  ++kill_tries_;
  stage_ = Stage::kDown;
  if (slot.phase == "reduce" && slot.phase_round == killed_round_) {
    ++end_.killed;
    to_tell_ = killed_round_;
  } else {
    if (kill_tries_ == kMaxKillTries) {
      return MakeError(Code::kInternal,
                       fmt::format("{} leaders were killed, none in its reduce", kMaxKillTries));
    }
    out_.Say("The blow came too late, its reduce was over. It is brought back for another try.");
  }
  return {};
}

Status DemoSwarm::BringBack() {
  Slot& slot = slots_[first_killed_ - 1];
  out_.Say("Starting peer {} again, with nothing but its folder.", slot.number);
  slot.killed = false;
  stage_ = Stage::kReturning;
  return Start(slot, {"join", "--threads", "1"});
}

Status DemoSwarm::OnEnd(Slot& slot) {
  LOOM_RETURN_IF_ERROR(slot.child->Read([&](const json::Value& event) { OnEvent(slot, event); }));
  const int code = slot.child->exit_code();
  if (slot.killed) {
    slot.child.reset();
    return Bury(slot);
  }
  if (code != 0) return Failed(slot, fmt::format("ended with exit code {}", code));
  if (slot.round < plan_.rounds)
    return Failed(slot, fmt::format("ended after round {}", slot.round));
  end_.bytes_sent += std::max(slot.life_bytes, BytesInStatus(slot.dir));
  end_.survivors.push_back(slot.dir);
  slot.child.reset();
  return {};
}

Status DemoSwarm::Turn() {
  std::vector<Child*> running;
  for (Slot& slot : slots_) {
    if (slot.child) running.push_back(slot.child.get());
  }
  WaitForOutput(running, kStep / 2);
  for (Slot& slot : slots_) {
    if (!slot.child) continue;
    const bool ended = slot.child->Ended();
    LOOM_RETURN_IF_ERROR(slot.child->Read([&](const json::Value& event) { OnEvent(slot, event); }));
    if (ended) LOOM_RETURN_IF_ERROR(OnEnd(slot));
  }
  const Time now = SystemClock().Now();
  if (kill_at_ && now >= *kill_at_) {
    Slot& slot = slots_[kill_whom_ - 1];
    if (slot.child) Kill(slot);
  }
  if (stage_ == Stage::kGather && members_ == plan_.peers) {
    out_.Say("All {} are in.", plan_.peers);
    stage_ = Stage::kKillLeader;
    kill_from_ = std::max(round_ + kQuietRounds, plan_.rounds / 4);
  }
  if (to_tell_ && round_ > *to_tell_) {
    TellOfRound(*to_tell_);
    to_tell_.reset();
  }
  if (stage_ == Stage::kDown && round_ >= killed_round_ + kAwayRounds)
    LOOM_RETURN_IF_ERROR(BringBack());
  const Duration limit = round_ == 0 ? kStartLimit : plan_.stall_limit;
  if (now - last_news_ > limit) {
    std::string logs;
    for (const Slot& slot : slots_) logs += fmt::format(" {}.log", slot.dir);
    return MakeError(Code::kTimeout,
                     fmt::format("no round was finished for {}, the last one was {}",
                                 HumanSeconds(Seconds(limit)), round_),
                     "read" + logs);
  }
  return {};
}

void DemoSwarm::EndChildren() {
  std::vector<Child*> running;
  for (Slot& slot : slots_) {
    if (slot.child) running.push_back(slot.child.get());
  }
  for (Child* child : running) child->Signal(SIGTERM);
  const Time begin = SystemClock().Now();
  while (
      SystemClock().Now() - begin < kEndLimit &&
      !std::all_of(running.begin(), running.end(), [](Child* child) { return child->Ended(); })) {
    for (Child* child : running) static_cast<void>(child->Read([](const json::Value&) {}));
    WaitForOutput({}, kStep);
  }
  for (Slot& slot : slots_) slot.child.reset();
}

Result<SwarmEnd> DemoSwarm::Run() {
  const std::atomic<bool>& interrupted = InterruptFlag();
  for (std::uint32_t k = 1; k <= plan_.peers; ++k) {
    Slot slot;
    slot.number = k;
    slot.dir = fmt::format("{}/peer-{}", plan_.out, k);
    end_.folders.push_back(slot.dir);
    slots_.push_back(std::move(slot));
  }
  began_ = last_news_ = SystemClock().Now();
  const auto story = [&]() -> Status {
    LOOM_RETURN_IF_ERROR(Start(slots_[0], {"host", plan_.run_toml}));
    bool others = false;
    const auto running = [](const Slot& slot) { return slot.child != nullptr; };
    while (std::any_of(slots_.begin(), slots_.end(), running)) {
      LOOM_RETURN_IF_ERROR(Turn());
      if (interrupted.load())
        return MakeError(Code::kRefused, "stopped by Ctrl-C; the peers' folders are kept");
      if (!others && !invite_.empty()) {
        LOOM_RETURN_IF_ERROR(StartOthers());
        others = true;
      }
    }
    if (end_.killed < 2) {
      return MakeError(Code::kInternal,
                       fmt::format("the run ended after {} of 2 kills", end_.killed),
                       "use more rounds");
    }
    return {};
  }();
  if (!story) {
    EndChildren();
    return story.error();
  }
  return end_;
}

}  // namespace loom::app
