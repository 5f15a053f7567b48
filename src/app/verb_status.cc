// loom status: what a peer does and what it waits for. A running peer is asked; of one that does
// not run, its last report is shown, corrected by the records in its folder.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>

#include "app/control.h"
#include "app/output.h"
#include "app/peer_folder_source.h"
#include "app/verbs.h"
#include "crypto/keys.h"
#include "store/peer_folder.h"

namespace loom::app {
namespace {

struct Options {
  std::string dir;
  bool json = false;
};

constexpr Duration kPatience = 2s;  ///< with a peer that does not answer

/// The keys that scripts rely on, in the order they are shown; others follow.
constexpr std::array kKeys{"run",    "peer", "state",  "reason",    "round",
                           "tokens", "root", "leader", "waits_for", "peers"};

void Set(json::Object& object, std::string_view key, json::Value value) {
  for (auto& [name, old] : object) {
    if (name == key) {
      old = std::move(value);
      return;
    }
  }
  object.emplace_back(std::string(key), std::move(value));
}

std::string Text(const json::Value& value, std::string_view key) {
  const json::Value* found = value.Find(key);
  const std::string* text = found != nullptr ? found->AsString() : nullptr;
  return text != nullptr ? *text : "";
}

std::uint64_t Count(const json::Value& value, std::string_view key) {
  const json::Value* found = value.Find(key);
  const std::uint64_t* count = found != nullptr ? found->AsUnsigned() : nullptr;
  return count != nullptr ? *count : 0;
}

/// The array's strings; of objects their "id".
std::vector<std::string> Ids(const json::Value& value, std::string_view key) {
  std::vector<std::string> ids;
  const json::Value* found = value.Find(key);
  const json::Array* items = found != nullptr ? found->AsArray() : nullptr;
  if (items == nullptr) return ids;
  for (const json::Value& item : *items) {
    ids.push_back(item.AsString() != nullptr ? *item.AsString() : Text(item, "id"));
  }
  return ids;
}

/// What a peer that never reported would say.
json::Object Unreported() {
  json::Object status;
  for (const char* key : kKeys) status.emplace_back(key, json::Value(""));
  Set(status, "round", json::Value(std::uint64_t{0}));
  Set(status, "tokens", json::Value(std::uint64_t{0}));
  Set(status, "waits_for", json::Value(json::Array{}));
  Set(status, "peers", json::Value(json::Array{}));
  return status;
}

json::Object LastReport(const std::string& dir) {
  const store::PosixFileSystem disk;
  const auto text = store::PeerFolderView(disk, dir).StatusJson();
  auto parsed = text ? json::Parse(*text) : Result<json::Value>(text.error());
  json::Object status = Unreported();
  if (parsed && parsed->AsObject() != nullptr) {
    for (const auto& [key, value] : *parsed->AsObject()) Set(status, key, value);
  }
  if (Text(json::Value(status), "peer").empty()) {
    if (const auto key = crypto::SigningKey::Load(dir + "/keys/peer")) {
      Set(status, "peer", json::Value(key->id().Hex()));
    }
  }
  return status;
}

/// Round, root and tokens of the newest record: a killed peer's last report may be older.
void ApplyRecords(const std::string& dir, json::Object& status) {
  const auto folder = ReadFolderRecords(dir);
  if (!folder) {
    if (folder.error().code == Code::kNotFound) return;
    Set(status, "state", json::Value("failed"));
    Set(status, "reason", json::Value(folder.error().ToString()));
    return;
  }
  const collab::Record& head =
      folder->records.empty() ? folder->run.genesis : folder->records.back();
  Set(status, "run", json::Value(folder->run.id.Hex()));
  Set(status, "round", json::Value(head.body.round));
  Set(status, "tokens", json::Value(head.body.tokens));
  Set(status, "root", json::Value(head.body.root.Hex()));
  Set(status, "record", json::Value(head.hash.Hex()));
  Set(status, "era", json::Value(head.body.era));
}

/// The last report of a peer whose process is gone.
json::Object Stopped(const std::string& dir) {
  json::Object status = LastReport(dir);
  const json::Value before(status);
  const std::string state = Text(before, "state");
  const std::string self = Text(before, "peer");
  if (state != "stopped" && state != "failed") {
    Set(status, "state", json::Value("stopped"));
    Set(status, "reason",
        json::Value(state.empty() ? "it ended before its first report"
                                  : fmt::format("its process is gone; it was {}", state)));
  }
  ApplyRecords(dir, status);
  // Nobody looks after the others any more, so what is known of them is old.
  Set(status, "waits_for", json::Value(json::Array{}));
  Set(status, "critical", json::Value(json::Array{}));
  Set(status, "isolations", json::Value(json::Array{}));
  json::Array peers;
  if (const json::Value* found = before.Find("peers"); found != nullptr && found->AsArray()) {
    for (const json::Value& item : *found->AsArray()) {
      if (item.AsObject() == nullptr) continue;
      json::Object peer = *item.AsObject();
      if (Text(item, "id") == self) {
        const json::Value now(status);
        Set(peer, "state", json::Value(Text(now, "state")));
        Set(peer, "reason", json::Value(Text(now, "reason")));
      } else {
        Set(peer, "reason",
            json::Value(fmt::format("as last seen{}{}", Text(item, "reason").empty() ? "" : ": ",
                                    Text(item, "reason"))));
      }
      peers.emplace_back(std::move(peer));
    }
  }
  Set(status, "peers", json::Value(std::move(peers)));
  return status;
}

/// The peer's own answer, or that it is about to give answers, or what its folder says.
Result<json::Object> ReadStatus(const std::string& dir) {
  const auto answer = AskPeer(dir, {{"verb", json::Value("status")}}, kPatience);
  json::Object status;
  bool running = true;
  if (answer) {
    status = Unreported();
    for (const auto& [key, value] : *answer->AsObject()) Set(status, key, value);
  } else if (answer.error().code == Code::kNotFound) {
    status = Stopped(dir);
    running = false;
  } else if (answer.error().code == Code::kConflict) {
    status = LastReport(dir);
    Set(status, "state", json::Value("starting"));
    Set(status, "reason", json::Value("its process reads the folder"));
    ApplyRecords(dir, status);
  } else if (answer.error().code == Code::kTimeout) {
    status = LastReport(dir);
    ApplyRecords(dir, status);
    Set(status, "reason",
        json::Value(fmt::format("its process does not answer within {:.0f} s: frozen or busy; this "
                                "is its last report",
                                Seconds(kPatience))));
  } else {
    return answer.error();
  }
  Set(status, "running", json::Value(running));
  return status;
}

std::string Short(const std::string& id) { return id.substr(0, 8); }

const json::Array& Items(const json::Value& value, std::string_view key) {
  static const json::Array kNone;
  const json::Value* found = value.Find(key);
  return found != nullptr && found->AsArray() != nullptr ? *found->AsArray() : kNone;
}

/// "A", "A and B", "A, B and C".
std::string Listed(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == names.size() ? " and " : ", ") + names[i];
  }
  return text;
}

/// Whose loss would cut whom off, and who is cut off already: a sentence for each set of groups and
/// for each pair, this peer first.
std::vector<std::string> IsolationSentences(const json::Value& status, const std::string& self) {
  using Names = std::vector<std::string>;
  static const std::string kSelf = "this peer";
  const auto name = [&](const std::string& id) { return id == self ? kSelf : Short(id); };
  const auto names = [&](const json::Value& ids) {
    Names list;
    if (ids.AsArray() == nullptr) return list;
    for (const json::Value& id : *ids.AsArray()) {
      if (id.AsString() != nullptr) list.push_back(name(*id.AsString()));
    }
    std::stable_partition(list.begin(), list.end(), [](const auto& n) { return n == kSelf; });
    return list;
  };
  Names sentences;
  for (const json::Value& isolation : Items(status, "isolations")) {
    const std::string without = Text(isolation, "without");
    const std::string when = without.empty() ? "" : fmt::format("if {} goes, ", name(without));
    std::vector<Names> groups;
    for (const json::Value& group : Items(isolation, "groups")) groups.push_back(names(group));
    std::stable_partition(groups.begin(), groups.end(),
                          [](const Names& g) { return !g.empty() && g.front() == kSelf; });
    const bool single =
        std::all_of(groups.begin(), groups.end(), [](const Names& g) { return g.size() == 1; });
    if (groups.size() == 2 && !single) {
      sentences.push_back(
          fmt::format("{}{} cannot reach {}", when, Listed(groups[0]), Listed(groups[1])));
    } else if (!groups.empty()) {
      Names sides;
      for (const Names& group : groups) sides.push_back(fmt::format("{}", fmt::join(group, "+")));
      sentences.push_back(fmt::format("{}{} cannot reach each other", when, Listed(sides)));
    }
    for (const json::Value& pair : Items(isolation, "pairs")) {
      sentences.push_back(fmt::format("{}{} cannot reach each other", when, Listed(names(pair))));
    }
  }
  return sentences;
}

void Show(const json::Value& status, const std::string& dir, Output& out) {
  const std::string self = Text(status, "peer");
  const std::string reason = Text(status, "reason");
  const std::string leader = Text(status, "leader");
  out.Say("peer     {} in {}", self.empty() ? "(no key yet)" : self, dir);
  out.Say("run      {}", Text(status, "run").empty() ? "(none yet)" : Text(status, "run"));
  out.Say("state    {}{}{}", Text(status, "state"), reason.empty() ? "" : ": ", Printable(reason));
  double loss = 0;
  const json::Value* shown_loss = status.Find("loss");
  const bool has_loss = shown_loss != nullptr && shown_loss->AsNumber(loss) && loss > 0;
  out.Say("round    {}, {} tokens, root {}{}", Count(status, "round"),
          HumanCount(Count(status, "tokens")),
          Text(status, "root").empty() ? "-" : Short(Text(status, "root")),
          has_loss ? fmt::format(", loss {:.3f}", loss) : "");
  if (!leader.empty()) {
    out.Say("leader   {}{}", Short(leader), leader == self ? " (this peer)" : "");
  }
  const json::Value* peers = status.Find("peers");
  if (peers != nullptr && peers->AsArray() != nullptr && !peers->AsArray()->empty()) {
    out.Say("peers");
    for (const json::Value& peer : *peers->AsArray()) {
      double rtt = 0;
      const json::Value* shown_rtt = peer.Find("rtt_ms");
      const bool has_rtt = shown_rtt != nullptr && shown_rtt->AsNumber(rtt);
      std::string about = Text(peer, "id") == self ? "this peer" : Printable(Text(peer, "reason"));
      if (has_rtt) about += fmt::format("{}{:.1f} ms away", about.empty() ? "" : ", ", rtt);
      out.Say("  {}  {:<11}  {}", Short(Text(peer, "id")), Printable(Text(peer, "state")), about);
    }
  }
  const std::vector<std::string> waits_for = Ids(status, "waits_for");
  for (const std::string& id : waits_for) out.Say("this run waits for {}", Short(id));
  if (waits_for.empty()) {
    for (const std::string& id : Ids(status, "critical")) {
      out.Say("if {} dies this run waits", id == self ? "this peer" : Short(id));
    }
  }
  constexpr std::size_t kMostSentences = 12;
  const std::vector<std::string> sentences = IsolationSentences(status, self);
  for (std::size_t i = 0; i < std::min(kMostSentences, sentences.size()); ++i) {
    out.SayLine(sentences[i]);
  }
  if (sentences.size() > kMostSentences) {
    out.Say("and {} more such; loom status --json has them", sentences.size() - kMostSentences);
  }
  const json::Value* running = status.Find("running");
  if (running != nullptr && running->AsBool() != nullptr && !*running->AsBool()) {
    const bool at_end = Text(status, "state") == "stopped" && reason.starts_with("finished: all");
    const bool told = reason.find("go on with: ") != std::string::npos;
    out.Say("It does not run.{}",
            at_end || told ? "" : " Go on with: loom join --dir " + ShellWord(dir));
  }
}

Status ShowStatus(const Options& options) {
  LOOM_ASSIGN(const std::string dir, FindPeerFolder(options.dir));
  LOOM_ASSIGN(json::Object status, ReadStatus(dir));
  const auto place = [](const json::Member& member) {
    return std::find(kKeys.begin(), kKeys.end(), member.first) - kKeys.begin();
  };
  std::stable_sort(status.begin(), status.end(), [&](const json::Member& a, const json::Member& b) {
    return place(a) < place(b);
  });
  Output out(options.json);
  out.Event(status);
  if (!options.json) Show(json::Value(status), dir, out);
  return {};
}

}  // namespace

Verb StatusVerb() {
  auto options = std::make_shared<Options>();
  return {.name = "status",
          .summary = "Show what a peer does and what it waits for",
          .example = "loom status --dir loom-run-1",
          .declare =
              [options](Args& args) {
                args.Option("--dir", "DIR", options->dir,
                            "Folder of a peer, running or not; default: this folder or the only "
                            "./loom-*");
                args.Flag("--json", options->json,
                          "One object: run, peer, state, reason, round, tokens, root, leader, "
                          "waits_for, peers, running");
              },
          .run = [options] { return ShowStatus(*options); }};
}

}  // namespace loom::app
