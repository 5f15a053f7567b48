// loom owner, delegate, amend, continue: the owner's key, and what it signs, by the peer that runs
// beside it.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <thread>

#include "app/control.h"
#include "app/output.h"
#include "app/peer_folder_source.h"
#include "app/print.h"
#include "app/verbs.h"
#include "base/toml.h"
#include "node/owner_key.h"

namespace loom::app {
namespace {

using namespace std::chrono_literals;

struct Options {
  std::string dir;
  std::string set;
  std::optional<std::uint64_t> from;
  std::uint64_t wait = 8;
  std::string peer;
  std::uint64_t seconds = 7 * 24 * 3600;
  std::string backup;
  bool leave_behind = false;
  bool yes = false;
  bool json = false;
};

/// A word gets the quotes that a shell has taken off.
std::string ValueOf(const std::string& text) {
  static constexpr std::array<std::string_view, 4> kOther{"true", "false", "inf", "nan"};
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  const bool word = !text.empty() && is_letter(text[0]) && std::ranges::all_of(text, [&](char c) {
    return is_letter(c) || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
  return word && std::ranges::find(kOther, text) == kOther.end() ? TomlQuote(text) : text;
}

/// "optim.lr=1e-4,sync.rounds=500" as run.toml has it.
Result<std::string> TomlOf(const std::string& set) {
  std::map<std::string, std::string> tables;
  for (std::size_t at = 0; at < set.size();) {
    const std::size_t end = std::min(set.find(',', at), set.size());
    const std::string one = set.substr(at, end - at);
    at = end + 1;
    const std::size_t dot = one.find('.');
    const std::size_t equals = one.find('=');
    if (dot == std::string::npos || equals == std::string::npos || dot > equals) {
      return MakeError(Code::kInvalid, fmt::format("'{:.60}' is not TABLE.KEY=VALUE", one),
                       "for example: optim.lr=1e-4,sync.rounds=500");
    }
    const std::string line = fmt::format("{} = {}\n", one.substr(dot + 1, equals - dot - 1),
                                         ValueOf(one.substr(equals + 1)));
    if (!ParseToml(line, one)) {
      return MakeError(Code::kInvalid,
                       fmt::format("'{:.60}': '{:.60}' is no value", one, one.substr(equals + 1)),
                       "a number, true or false, or a word");
    }
    tables[one.substr(0, dot)] += line;
  }
  std::string toml;
  for (const auto& [name, lines] : tables) toml += fmt::format("[{}]\n{}", name, lines);
  return toml;
}

std::uint64_t Number(const json::Value& answer, std::string_view key) {
  const json::Value* found = answer.Find(key);
  return found != nullptr && found->AsUnsigned() != nullptr ? *found->AsUnsigned() : 0;
}

std::string Text(const json::Value& object, std::string_view key) {
  const json::Value* found = object.Find(key);
  return found != nullptr && found->AsString() != nullptr ? *found->AsString() : "";
}

/// The record that took the order up; 0 when none has within the time. kConflict when it was
/// another one's turn.
Result<std::uint64_t> AwaitOrder(const Options& options, const std::string& dir,
                                 const std::string& id) {
  const Time begin = SystemClock().Now();
  while (SystemClock().Now() - begin < std::chrono::seconds(options.wait)) {
    const auto state = AskPeer(dir, {{"verb", json::Value("ordered")}, {"order", json::Value(id)}});
    if (state && Number(*state, "taken") != 0) return Number(*state, "taken");
    if (state && state->Find("lost") != nullptr) {
      return MakeError(Code::kConflict, "another order was taken up in its place",
                       "loom log shows which; give this one again if it is still wanted");
    }
    std::this_thread::sleep_for(100ms);  // it starts anew where a record took it up
  }
  return 0;
}

Status Order(const Options& options) {
  LOOM_ASSIGN(const std::string dir, FindPeerFolder(options.dir));
  LOOM_ASSIGN(const std::string toml, TomlOf(options.set));
  const json::Object request{{"verb", json::Value("order")},
                             {"toml", toml.empty() ? json::Value() : json::Value(toml)},
                             {"revert", options.from ? json::Value(*options.from) : json::Value()}};
  auto asked = AskPeer(dir, request);
  if (!asked) {
    return toml.empty() ? std::move(asked).error() : std::move(asked).error().Context(options.set);
  }
  const json::Value& answer = *asked;
  LOOM_ASSIGN(const std::uint64_t taken, AwaitOrder(options, dir, Text(answer, "id")));
  Output out(options.json);
  out.Event({{"event", json::Value("ordered")},
             {"order", json::Value(Number(answer, "order"))},
             {"round", json::Value(Number(answer, "round"))},
             {"taken", taken == 0 ? json::Value() : json::Value(taken)}});
  if (options.json) return {};
  if (taken != 0) {
    out.Say("Order {} holds from record {} on.", Number(answer, "order"), taken);
  } else {
    out.Say(
        "Order {} is on its way: the next record takes it up (loom log --dir {} shows it, loom "
        "status for whom the run waits).",
        Number(answer, "order"), ShellWord(dir));
  }
  return {};
}

Status Amend(const Options& options) {
  if (options.set.empty()) {
    return MakeError(Code::kInvalid, "nothing to change",
                     "for example: loom amend optim.lr=1e-4,sync.rounds=500 --dir loom-run-1");
  }
  return Order(options);
}

void Show(const json::Value& view, Output& out) {
  const json::Value* survivors = view.Find("survivors");
  if (survivors != nullptr && survivors->AsArray() != nullptr) {
    for (const json::Value& s : *survivors->AsArray()) {
      const json::Value* holds = s.Find("holds_state");
      const bool proved = holds != nullptr && holds->AsBool() != nullptr && *holds->AsBool();
      out.Say("  goes on     {}  round {}{}", Text(s, "peer").substr(0, 12), Number(s, "round"),
              proved ? "" : ", does not hold the newest state yet");
    }
  }
  const json::Value* abandoned = view.Find("abandoned");
  if (abandoned != nullptr && abandoned->AsArray() != nullptr) {
    for (const json::Value& peer : *abandoned->AsArray())
      out.Say("  abandoned   {}  not heard", peer.AsString()->substr(0, 12));
  }
}

bool Agreed(const Options& options) {
  if (options.yes) return true;
  Print(
      stdout,
      "Those who are abandoned must not be running: what they did since is given up when they come "
      "back.\nType yes to go on: ");
  std::fflush(stdout);
  std::string answer;
  std::getline(std::cin, answer);
  return answer == "yes";
}

json::Object Step(const char* step, const Options& options) {
  return {{"verb", json::Value("reset")},
          {"step", json::Value(step)},
          {"leave_behind", json::Value(options.leave_behind)}};
}

bool AllAreHere(const json::Value& view) {
  const json::Value* abandoned = view.Find("abandoned");
  return abandoned != nullptr && abandoned->AsArray() != nullptr && abandoned->AsArray()->empty();
}

Status Reset(const Options& options) {
  LOOM_ASSIGN(const std::string dir, FindPeerFolder(options.dir));
  if (!options.yes && ::isatty(STDIN_FILENO) == 0) {
    return MakeError(Code::kRefused,
                     "not confirmed, and nobody can be asked: the input is no terminal. Nothing "
                     "has changed",
                     "give --yes");
  }
  LOOM_ASSIGN(json::Value view, AskPeer(dir, Step("seal", options)));
  Output out(options.json);
  const std::uint64_t era = Number(view, "sealed_for");
  const Time begin = SystemClock().Now();
  while (SystemClock().Now() - begin < std::chrono::seconds(options.wait)) {
    std::this_thread::sleep_for(500ms);
    LOOM_ASSIGN(view, AskPeer(dir, Step("view", options)));
    if (AllAreHere(view)) break;
  }
  if (AllAreHere(view) && !options.leave_behind) {
    LOOM_ASSIGN(view, AskPeer(dir, Step("cancel", options)));
    return MakeError(Code::kConflict,
                     "every member is here: the run goes on by itself. The seal is ended, nothing "
                     "has changed",
                     "loom status says what it waits for; loom continue --from ROUND goes back");
  }
  out.Event({{"event", json::Value("sealed")}, {"view", view}});
  Show(view, out);
  if (!Agreed(options)) {
    LOOM_ASSIGN(view, AskPeer(dir, Step("cancel", options)));
    return MakeError(Code::kRefused, "not confirmed: the seal is ended, nothing has changed",
                     "type yes when asked, or give --yes");
  }
  const Time agreed = SystemClock().Now();
  Error last = MakeError(Code::kTimeout, "the reset was not taken up");
  while (SystemClock().Now() - agreed < 60s) {
    auto answer = AskPeer(dir, Step("commit", options));
    if (answer && Number(*answer, "era") >= era) {
      out.Event({{"event", json::Value("reset")}, {"era", json::Value(era)}});
      if (!options.json) out.Say("The run goes on in era {}.", era);
      return {};
    }
    if (!answer) last = answer.error();
    if (!answer && answer.error().code != Code::kConflict) break;
    std::this_thread::sleep_for(300ms);
    auto now = AskPeer(dir, Step("view", options));
    if (now && Number(*now, "era") >= era) continue;
  }
  return Error(last).Context("the survivors are still sealed; run loom continue again");
}

Status Continue(const Options& options) {
  if (options.from) return Order(options);
  if (!options.set.empty()) {
    return MakeError(Code::kInvalid, "--set goes with --from ROUND",
                     "to change settings alone: loom amend TABLE.KEY=VALUE");
  }
  return Reset(options);
}

Status Owner(const Options& options) {
  const std::string path = node::OwnerKeyPath();
  LOOM_ASSIGN(const crypto::SigningKey key, node::LoadOwnerKey(path));
  if (!options.backup.empty()) {
    std::error_code ignored;  // what cannot be made, Save says
    std::filesystem::create_directories(std::filesystem::path(options.backup).parent_path(),
                                        ignored);
    LOOM_RETURN_IF_ERROR(key.Save(options.backup));
  }
  Hash shown;
  shown.bytes = key.public_key().bytes;
  Output out(options.json);
  out.Event({{"path", json::Value(path)},
             {"public_key", json::Value(shown.Hex())},
             {"backup", json::Value(options.backup)}});
  if (!options.json) {
    out.Say("owner key   {}\npublic key  {}", path, shown.Hex());
    if (!options.backup.empty())
      out.Say("A copy is in {}. LOOM_OWNER_KEY={} uses it.", options.backup,
              ShellWord(options.backup));
  }
  return {};
}

Status Delegate(const Options& options) {
  LOOM_RETURN_IF_ERROR(CheckRange("--seconds", options.seconds, 1, 10ULL * 365 * 24 * 3600));
  LOOM_ASSIGN(const std::string dir, FindPeerFolder(options.dir));
  LOOM_ASSIGN(const json::Value answer, AskPeer(dir, {{"verb", json::Value("delegate")},
                                                      {"peer", json::Value(options.peer)},
                                                      {"seconds", json::Value(options.seconds)}}));
  Output out(options.json);
  out.Event({{"event", json::Value("delegated")},
             {"peer", json::Value(options.peer)},
             {"seconds", json::Value(options.seconds)}});
  if (!options.json) out.Say("The member may sign invites now: loom invite on its machine.");
  return {};
}

void DeclareDir(Args& args, Options& options) {
  args.Option("--dir", "DIR", options.dir,
              "Folder of a running peer; default: this folder or the only ./loom-*");
}

}  // namespace

Verb OwnerVerb() {
  auto options = std::make_shared<Options>();
  return {.name = "owner",
          .summary = "Show the owner key of this user, or keep a copy of it",
          .example = "loom owner --backup /media/stick/loom-owner.pem",
          .declare =
              [options](Args& args) {
                args.Option("--backup", "FILE", options->backup,
                            "Write a copy there (mode 600); nothing is replaced");
                args.Flag("--json", options->json, "One object: path, public_key, backup");
              },
          .run = [options] { return Owner(*options); }};
}

Verb DelegateVerb() {
  auto options = std::make_shared<Options>();
  return {.name = "delegate",
          .summary = "Let a member sign invites while the owner is away",
          .example = "loom delegate 4f2a --seconds 604800 --dir loom-run-1",
          .declare =
              [options](Args& args) {
                args.Positional("PEER", options->peer, "How the member's id begins (loom status)");
                DeclareDir(args, *options);
                args.Option("--seconds", "N", options->seconds, "How long its word counts");
                args.Flag("--json", options->json, "One object: event, peer, seconds");
              },
          .run = [options] { return Delegate(*options); }};
}

Verb AmendVerb() {
  auto options = std::make_shared<Options>();
  return {.name = "amend",
          .summary = "Change settings of a living run, by its owner's key",
          .example = "loom amend optim.lr=1e-4,sync.rounds=500 --dir loom-run-1",
          .declare =
              [options](Args& args) {
                args.Positional("settings", options->set,
                                "TABLE.KEY=VALUE of run.toml, several with commas");
                DeclareDir(args, *options);
                args.Flag("--json", options->json, "One object: event, order, round");
              },
          .run = [options] { return Amend(*options); }};
}

Verb ContinueVerb() {
  auto options = std::make_shared<Options>();
  return {.name = "continue",
          .summary =
              "Go on without the members that are lost, or from an older round, by the owner's key",
          .example = "loom continue --dir loom-run-1",
          .declare =
              [options](Args& args) {
                DeclareDir(args, *options);
                args.Option("--from", "ROUND", options->from,
                            "Return to the state after this round (a quorum has to be there)");
                args.Option("--set", "TABLE.KEY=VALUE", options->set,
                            "With --from: other settings, too, several with commas");
                args.Option("--wait", "SECONDS", options->wait,
                            "How long survivors are waited for");
                args.Flag("--leave-behind", options->leave_behind,
                          "Do not wait for survivors that lack the newest state");
                args.Flag("--yes", options->yes, "Do not ask");
                args.Flag("--json", options->json, "NDJSON events on stdout");
              },
          .run = [options] { return Continue(*options); }};
}

}  // namespace loom::app
