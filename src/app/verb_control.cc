// loom invite, pause, resume, finish, leave: what the owner of a running peer tells it.
#include <fmt/core.h>

#include <memory>

#include "app/control.h"
#include "app/output.h"
#include "app/peer_folder_source.h"
#include "app/verbs.h"

namespace loom::app {
namespace {

constexpr std::uint64_t kMaxInviteSeconds = 10ULL * 365 * 24 * 3600;
constexpr std::uint64_t kMaxInviteUses = 100000;

struct Options {
  std::string dir;
  std::uint64_t seconds = 7 * 24 * 3600;
  std::uint64_t uses = 16;
  bool json = false;
};

void DeclareDir(Args& args, Options& options) {
  args.Option("--dir", "DIR", options.dir,
              "Folder of the running peer; default: this folder or the only ./loom-*");
}

Status Invite(const Options& options) {
  if (options.seconds < 1 || options.seconds > kMaxInviteSeconds || options.uses < 1 ||
      options.uses > kMaxInviteUses) {
    return MakeError(Code::kInvalid,
                     fmt::format("--seconds {} --uses {}: limits are 1 .. {} and 1 .. {}",
                                 options.seconds, options.uses, kMaxInviteSeconds, kMaxInviteUses));
  }
  LOOM_ASSIGN(const std::string dir, FindPeerFolder(options.dir));
  LOOM_ASSIGN(const json::Value answer, AskPeer(dir, {{"verb", json::Value("invite")},
                                                      {"seconds", json::Value(options.seconds)},
                                                      {"uses", json::Value(options.uses)}}));
  const json::Value* found = answer.Find("invite");
  const std::string* invite = found != nullptr ? found->AsString() : nullptr;
  if (invite == nullptr) {
    return MakeError(Code::kInternal, fmt::format("the peer in {} gave no invite", dir),
                     "are the peer and this program of one version?");
  }
  Output out(options.json);
  out.Event({{"invite", json::Value(*invite)},
             {"seconds", json::Value(options.seconds)},
             {"uses", json::Value(options.uses)}});
  if (!options.json) out.Say("{}", *invite);
  return {};
}

constexpr const char* kOnlyOneLeaves =
    "The peer stops. It was the only member, so the run waits in its folder: keep it. loom join "
    "--dir DIR goes on.";

/// What it means for the run that a running peer was told something.
struct Meaning {
  std::string told;
  std::string already = {};  ///< where it was so before
};

/// The sentence with the folder in its command.
std::string WithFolder(std::string text, const std::string& dir) {
  constexpr std::string_view kPlace = "--dir DIR";
  const std::size_t at = text.find(kPlace);
  if (at != std::string::npos) text.replace(at, kPlace.size(), "--dir " + ShellWord(dir));
  return text;
}

/// A request without arguments.
Status Tell(const std::string& verb, const Meaning& meaning, const Options& options) {
  LOOM_ASSIGN(const std::string dir, FindPeerFolder(options.dir));
  LOOM_ASSIGN(const json::Value answer, AskPeer(dir, {{"verb", json::Value(verb)}}));
  const json::Value* found = answer.Find("state");
  const std::string state =
      found != nullptr && found->AsString() != nullptr ? *found->AsString() : "";
  const json::Value* members = answer.Find("members");
  const bool only_one = verb == "leave" && members != nullptr && members->AsUnsigned() != nullptr &&
                        *members->AsUnsigned() <= 1;
  const json::Value* changed = answer.Find("changed");
  const bool already = changed != nullptr && changed->AsBool() != nullptr && !*changed->AsBool();
  Output out(options.json);
  out.Event({{"verb", json::Value(verb)},
             {"dir", json::Value(dir)},
             {"state", json::Value(state)},
             {"changed", json::Value(!already)}});
  if (options.json) return {};
  out.Say("{} (state now: {})",
          WithFolder(only_one  ? kOnlyOneLeaves
                     : already ? meaning.already
                               : meaning.told,
                     dir),
          state);
  return {};
}

Verb TellVerb(const std::string& verb, const std::string& summary, Meaning meaning) {
  auto options = std::make_shared<Options>();
  return {.name = verb,
          .summary = summary,
          .example = fmt::format("loom {} --dir loom-run-1", verb),
          .declare =
              [options](Args& args) {
                DeclareDir(args, *options);
                args.Flag("--json", options->json, "One object: verb, dir, state, changed");
              },
          .run = [options, verb,
                  meaning = std::move(meaning)] { return Tell(verb, meaning, *options); }};
}

}  // namespace

Verb InviteVerb() {
  auto options = std::make_shared<Options>();
  return {.name = "invite",
          .summary = "Print a signed invite to the run of a running peer",
          .example = "loom invite --dir loom-run-1 --uses 3 --seconds 86400",
          .declare =
              [options](Args& args) {
                DeclareDir(args, *options);
                args.Option("--seconds", "N", options->seconds, "How long it is valid");
                args.Option("--uses", "N", options->uses, "How many new peers it admits");
                args.Flag("--json", options->json, "One object: invite, seconds, uses");
              },
          .run = [options] { return Invite(*options); }};
}

Verb PauseVerb() {
  return TellVerb(
      "pause", "Let a running peer do no work until loom resume",
      {"The peer pauses: the others go on without it, and it keeps up with their records. "
       "loom resume --dir DIR brings it back.",
       "The peer is paused already: nothing changes. loom resume --dir DIR brings it back."});
}

Verb ResumeVerb() {
  return TellVerb("resume", "Let a paused peer work again",
                  {"The peer goes on: it works from the round in which the others list it again.",
                   "The peer is not paused: nothing changes."});
}

Verb FinishVerb() {
  return TellVerb(
      "finish", "Stop a running peer once its round is recorded",
      {"The peer stops once this round is recorded. loom join --dir DIR brings it back."});
}

Verb LeaveVerb() {
  return TellVerb(
      "leave", "Take a running peer out of its run, then stop it",
      {"The peer leaves: it stops once the others have recorded that it is gone, after a "
       "minute at the latest. loom join --dir DIR brings it back."});
}

}  // namespace loom::app
