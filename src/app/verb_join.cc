// loom join: takes part in a run with an invite, or goes on with the run of a folder.
#include <algorithm>
#include <memory>

#include "agreed/isa.h"
#include "app/folders.h"
#include "app/model_source.h"
#include "app/passive_wait.h"
#include "app/peer_process.h"
#include "app/verbs.h"
#include "base/file.h"
#include "base/toml.h"
#include "swarm/invite.h"
#include "tensor/runtime.h"

namespace loom::app {
namespace {

struct Options {
  std::string invite;
  std::string dir;
  std::string listen;
  std::string announce;
  std::string device;
  std::string isa = "auto";
  std::uint64_t threads = 0;
  std::uint64_t max_up = 0;
  std::uint64_t max_down = 0;
  std::uint64_t checkpoint_every = 0;
  bool json = false;
};

constexpr const char* kEverywhere = "*:0";

/// A run whose peers are all on one machine stays there, in the family of its host's address.
std::string WhereToListen(const swarm::Invite& invite) {
  const auto loopback = [](const swarm::InviteAddress& a) { return a.address.IsLoopback(); };
  if (!std::all_of(invite.addresses.begin(), invite.addresses.end(), loopback)) return kEverywhere;
  const bool v6 = !invite.addresses.empty() && invite.addresses[0].address.IsIpv6();
  return v6 ? "[::1]:0" : "127.0.0.1:0";
}

/// What the folder's last start had, where the command line does not say otherwise.
Result<train::LocalConfig> LocalOf(const std::string& dir, const Options& options) {
  train::LocalConfig local;
  const std::string path = fmt::format("{}/keys/{}", dir, node::kLocalKey);
  if (const auto kept = ReadFile(path, kMaxTomlBytes)) {
    LOOM_ASSIGN(const train::RunFile run, train::ParseRun(*kept, path));
    local = run.local;
  }
  if (!options.device.empty()) local.device = options.device;
  if (options.threads != 0) local.threads = static_cast<std::uint32_t>(options.threads);
  if (!options.announce.empty()) local.announce = options.announce;
  if (options.max_up != 0) local.max_up = options.max_up;
  if (options.max_down != 0) local.max_down = options.max_down;
  if (options.checkpoint_every != 0)
    local.checkpoint_every = static_cast<std::uint32_t>(options.checkpoint_every);
  return local;
}

Status Join(const Options& options) {
  LOOM_RETURN_IF_ERROR(agreed::ParseIsa(options.isa));
  if (!options.device.empty()) LOOM_RETURN_IF_ERROR(tensor::ParseDevice(options.device));
  PeerProcess process;
  process.json = options.json;
  LOOM_RETURN_IF_ERROR(CheckRange("--threads", options.threads, 0, 256));
  LOOM_RETURN_IF_ERROR(CheckRange("--checkpoint-every", options.checkpoint_every, 0, 100000));
  process.node.isa = options.isa;
  if (!options.invite.empty()) {
    LOOM_ASSIGN(process.node.invite, swarm::ParseInvite(options.invite));
    LOOM_RETURN_IF_ERROR(swarm::CheckInviteTime(*process.node.invite, SystemClock().WallSeconds()));
    process.node.invite_token = options.invite;
    process.node.dir = ChooseFolder(options.dir, process.node.invite->run.Short());
    process.node.listen = {WhereToListen(*process.node.invite)};
  } else if (options.dir.empty()) {
    return MakeError(Code::kInvalid, "neither an invite nor --dir was given",
                     "loom join INVITE, or loom join --dir DIR to go on with a folder");
  } else {
    process.node.dir = options.dir;
    process.node.listen = {kEverywhere};
    if (!store::PeerFolderView(node::Disk(), options.dir).HasRun()) {
      return MakeError(Code::kNotFound, fmt::format("{} holds no run", options.dir),
                       "give the folder of an earlier loom host or loom join, or an invite");
    }
  }
  if (!options.listen.empty()) process.node.listen = {options.listen};
  LOOM_ASSIGN(process.node.local, LocalOf(process.node.dir, options));
  WaitPassively(ComputeThreads({}, process.node.local));
  const auto before_run = [&](node::Node& node, Output& out) -> Status {
    out.Event({{"event", json::Value("started")}, {"peer", json::Value(node.id().Hex())}});
    out.Say("Peer {}.", node.id().Short());
    return {};
  };
  process.node.listen_as_before = options.listen.empty();
  return RunPeer(std::move(process), [](node::Node&) -> Status { return {}; }, before_run);
}

}  // namespace

Verb JoinVerb() {
  auto options = std::make_shared<Options>();
  return {
      .name = "join",
      .summary = "Take part in a run, or go on with the run of a folder",
      .example = "loom join loom1... --dir mine",
      .declare =
          [options](Args& args) {
            args.Positional("invite", options->invite, "The loom1... line that loom host printed",
                            Need::kOptional);
            args.Option("--dir", "DIR", options->dir,
                        "Folder of this peer, default the first free ./loom-ID-k; without an "
                        "invite: the one to go on with");
            args.Option(
                "--listen", "HOST:PORT", options->listen,
                "Where to listen; default: loopback for a loopback invite, else every interface");
            args.Option("--announce", "HOST:PORT", options->announce,
                        "Address under which others reach this peer");
            args.Option("--device", "NAME", options->device,
                        "auto, cpu or cuda; default: as before, or auto");
            args.Option(
                "--threads", "N", options->threads,
                "Threads of tensor operators; default: as before, or half of the processors");
            args.Size("--max-up", options->max_up,
                      "Most bytes a second sent, also as 2M; default: as before, or no limit");
            args.Size("--max-down", options->max_down,
                      "Most bytes a second received, also as 2M; default: as before, or no limit");
            args.Option("--checkpoint-every", "ROUNDS", options->checkpoint_every,
                        "Rounds between checkpoints; default: as before, or 10");
            args.Option("--isa", "NAME", options->isa,
                        "Kernel path of agreed arithmetic: auto, plain, avx2, avx512");
            args.Flag("--json", options->json, "NDJSON events on stdout");
          },
      .run = [options] { return Join(*options); }};
}

}  // namespace loom::app
