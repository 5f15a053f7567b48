// loom host: starts a run from run.toml and prints the invite with which others join it; with a
// folder that has a run already it goes on with that run.
#include <algorithm>
#include <memory>
#include <vector>

#include "agreed/isa.h"
#include "app/folders.h"
#include "app/model_source.h"
#include "app/passive_wait.h"
#include "app/peer_process.h"
#include "app/verbs.h"
#include "train/spec.h"

namespace loom::app {
namespace {

struct Options {
  std::string run_toml;
  std::string dir;
  std::string listen;
  std::string announce;
  std::string isa = "auto";
  std::uint64_t max_up = 0;
  std::uint64_t max_down = 0;
  std::uint64_t invite_days = 7;
  std::uint64_t invite_uses = 64;
  std::string co_owners;
  bool json = false;
};

/// Public keys of 64 hex digits each, with commas between.
Result<std::vector<crypto::PublicKey>> ReadKeys(const std::string& text) {
  std::vector<crypto::PublicKey> keys;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const std::string one = text.substr(at, end - at);
    at = end + 1;
    const auto hex = Hash::FromHex(one);
    if (!hex || keys.size() >= 15) {
      return MakeError(Code::kInvalid,
                       fmt::format("--co-owner: '{:.70}' is no public key of 64 hex digits, or one "
                                   "too many (15)",
                                   one),
                       "loom owner prints the key of a user");
    }
    const crypto::PublicKey key{hex->bytes};
    if (hex->IsZero() || std::ranges::find(keys, key) != keys.end()) {
      return MakeError(Code::kInvalid,
                       fmt::format("--co-owner: {} {}", one,
                                   hex->IsZero() ? "is nobody's key" : "is there twice"),
                       "loom owner prints the key of a user");
    }
    keys.push_back(key);
  }
  return keys;
}

Status Host(const Options& options) {
  LOOM_RETURN_IF_ERROR(agreed::ParseIsa(options.isa));
  LOOM_RETURN_IF_ERROR(CheckRange("--invite-days", options.invite_days, 1, 3650));
  LOOM_RETURN_IF_ERROR(CheckRange("--invite-uses", options.invite_uses, 1, 100000));
  LOOM_ASSIGN(const std::vector<crypto::PublicKey> co_owners, ReadKeys(options.co_owners));
  LOOM_ASSIGN(train::RunFile file, LoadRunOf(options.run_toml, options.dir));
  WaitPassively(ComputeThreads(file.spec.determinism, file.local));
  PeerProcess process;
  process.json = options.json;
  process.node.local = file.local;
  process.node.dir =
      ChooseFolder(options.dir.empty() ? file.local.dir : options.dir, options.run_toml);
  if (!options.announce.empty()) process.node.local.announce = options.announce;
  if (options.max_up != 0) process.node.local.max_up = options.max_up;
  if (options.max_down != 0) process.node.local.max_down = options.max_down;
  process.node.isa = options.isa;
  const std::string listen = !options.listen.empty() ? options.listen : file.local.listen;
  process.node.listen = {listen.empty() ? "*:0" : listen};
  const std::string dir = process.node.dir;
  const auto prepare = [&](node::Node& node) -> Status {
    if (!node.has_run()) return node.Host(file, NameOfRun(options.run_toml), co_owners);
    LOOM_RETURN_IF_ERROR(CheckSameRun(file, node, dir));
    node.RebuildDataFrom(file);
    return {};
  };
  const auto before_run = [&](node::Node& node, Output& out) -> Status {
    LOOM_ASSIGN(const std::string invite,
                node.MakeInvite(static_cast<std::int64_t>(options.invite_days) * 24 * 3600,
                                static_cast<std::uint32_t>(options.invite_uses)));
    out.Event({{"event", json::Value("invite")},
               {"invite", json::Value(invite)},
               {"run", json::Value(node.run().id.Hex())},
               {"peer", json::Value(node.id().Hex())},
               {"dir", json::Value(dir)}});
    out.Say("Run {} ({}), folder {}.", node.run().content.name, node.run().id.Short(), dir);
    out.SayLine("invite: " + invite);
    out.Say("Others join with: loom join INVITE");
    return {};
  };
  return RunPeer(std::move(process), prepare, before_run);
}

}  // namespace

Verb HostVerb() {
  auto options = std::make_shared<Options>();
  return {
      .name = "host",
      .summary = "Start a run and print the invite with which others join",
      .example = "loom host run.toml --dir first",
      .declare =
          [options](Args& args) {
            args.Positional("run.toml", options->run_toml,
                            "Settings of the run (loom init writes one)");
            args.Option("--dir", "DIR", options->dir,
                        "Folder of this peer; default: the first free ./loom-RUN-k");
            args.Option("--listen", "HOST:PORT", options->listen,
                        "Where to listen; default: every interface, a port chosen once and kept");
            args.Option("--announce", "HOST:PORT", options->announce,
                        "Address under which others reach this peer");
            args.Size("--max-up", options->max_up,
                      "Most bytes a second sent, also as 2M; default: no limit");
            args.Size("--max-down", options->max_down,
                      "Most bytes a second received, also as 2M; default: no limit");
            args.Option("--invite-days", "N", options->invite_days,
                        "Days until the printed invite expires");
            args.Option("--invite-uses", "N", options->invite_uses, "How many peers may use it");
            args.Option("--co-owner", "KEY[,KEY]", options->co_owners,
                        "Public keys that own the run, too (loom owner prints one)");
            args.Option("--isa", "NAME", options->isa,
                        "Kernel path of agreed arithmetic: auto, plain, avx2, avx512");
            args.Flag("--json", options->json, "NDJSON events on stdout");
          },
      .run = [options] { return Host(*options); }};
}

}  // namespace loom::app
