// Wrong ways with the folder of a peer, running or not. Each ends by itself with an exit code of
// its own, names the thing and the next step, and changes no byte that matters.
#include <fstream>

#include "tests/e2e/wrong_ways.h"

namespace loom::e2e {
namespace {

namespace fs = std::filesystem;
using WrongWays = WrongWaysTest;

/// The files of a folder as they are found; some go while they are copied.
void CopyRunning(const std::string& from, const std::string& to) {
  std::error_code gone;
  do {  // a folder that goes ends the walk
    for (fs::recursive_directory_iterator at(from, gone), end; !gone && at != end;
         at.increment(gone)) {
      const fs::path target = to / fs::relative(at->path(), from);
      std::error_code ignored;
      if (!at->is_regular_file(ignored)) continue;
      fs::create_directories(target.parent_path(), ignored);
      fs::copy_file(at->path(), target, fs::copy_options::overwrite_existing, ignored);
    }
  } while (gone);
}

TEST_F(WrongWays, WithAFolderWhosePeerDoesNotRun) {
  Peer& host = Host("host");
  ASSERT_TRUE(UntilRound({&host}, 5));
  EXPECT_EQ(Interrupt(host), 0);
  const std::string dir = host.dir;
  const auto copy = [&](const std::string& name) {
    fs::copy(dir, Path(name), fs::copy_options::recursive);
    return Path(name);
  };
  const std::string no_key = copy("no-key");
  fs::remove(no_key + "/keys/peer");
  const std::string empty_key = copy("empty-key");
  std::ofstream(empty_key + "/keys/peer", std::ios::trunc);
  const std::string no_genesis = copy("no-genesis");
  fs::remove(no_genesis + "/genesis");
  fs::remove(no_genesis + "/genesis.copy");
  const std::string torn = copy("torn");
  {
    std::fstream log(torn + "/records.log", std::ios::in | std::ios::out | std::ios::binary);
    log.seekp(300);
    log << std::string(64, '#');  // one byte would be mended
  }
  const std::string stranger = swarm::EncodeInvite(Stranger(3600));
  std::vector<Way> ways{
      {"settings of another run",
       {"host", Toml("wide.toml", "width = 32", "width = 64"), "--dir", dir},
       11,
       {dir, "model.width", "64", "32"}},
      {"an invite to another run", {"join", stranger, "--dir", dir}, 11, {dir, "05050505"}},
      {"an address of another machine",
       {"join", "--dir", dir, "--listen", "203.0.113.9:1"},
       6,
       {"203.0.113.9:1"}},
      {"a cap below the least", {"join", "--dir", dir, "--max-down", "3"}, 3, {"max_down 3"}},
      {"a folder without its key", {"join", "--dir", no_key}, 5, {"keys/peer is missing"}},
      {"a folder with an empty key", {"join", "--dir", empty_key}, 5, {"keys/peer (0 bytes)"}},
      {"a folder without its run", {"join", "--dir", no_genesis}, 5, {"genesis"}},
      {"changed records", {"log", "--dir", torn}, 5, {"records.log"}},
      {"a split that there is not", {"eval", dir, "--split", "test"}, 3, {"test"}},
      {"a reset with nobody", {"continue", "--yes", "--dir", dir}, 4, {"no peer runs"}},
      {"an amendment for nobody", {"amend", "optim.lr=1e-4", "--dir", dir}, 4, {"no peer runs"}},
      {"an invite from nobody", {"invite", "--dir", dir}, 4, {"no peer runs", "loom join --dir"}},
  };
  for (const char* verb : {"pause", "resume", "finish", "leave"}) {
    ways.push_back({fmt::format("{} when nothing runs", verb),
                    {verb, "--dir", dir},
                    4,
                    {"no peer runs", "loom join --dir"}});
    ways.push_back({fmt::format("{} of no peer's folder", verb),
                    {verb, "--dir", Path("nowhere")},
                    4,
                    {"nowhere", "no peer's folder"}});
  }
  Try(ways, {dir, no_key, empty_key, no_genesis, torn});
  // And the right way still is one.
  Resume(host);
  EXPECT_TRUE(UntilRound({&host}, 8));
  ExpectOneHistory();
}

TEST_F(WrongWays, BesideARunningPeer) {
  Peer& host = Host("host", {.arguments = {"--invite-uses", "1"}, .environment = {}});
  Peer& second = Join("second", host.invite,
                      {.arguments = {}, .environment = {"LOOM_OWNER_KEY=" + Path("nobody.pem")}});
  ASSERT_TRUE(UntilRound({&host, &second}, 2, 2));
  const std::string run = Path("run.toml");
  const auto way = [](const std::string& name, std::vector<std::string> arguments, int code,
                      std::vector<std::string> says, std::vector<std::string> environment = {}) {
    return Way{name, std::move(arguments), code, std::move(says), std::move(environment)};
  };
  const std::vector<std::string> no_key{"LOOM_OWNER_KEY=" + Path("nobody.pem")};
  Try({way("a folder in use, hosted", {"host", run, "--dir", host.dir}, 11,
           {host.dir, "in use by process"}),
       way("a folder in use, joined", {"join", "--dir", second.dir}, 11, {"in use by process"}),
       way("its own invite", {"join", host.invite, "--dir", host.dir}, 11, {"in use by process"}),
       way("joined twice", {"join", host.invite, "--dir", second.dir}, 11, {"in use by process"}),
       way("an invite that is used up", {"join", host.invite, "--dir", Path("third")}, 10, {"use"}),
       way("an invite without the owner's key", {"invite", "--dir", second.dir}, 4, {"nobody.pem"},
           no_key),
       way("an amendment without the owner's key", {"amend", "optim.lr=1e-4", "--dir", second.dir},
           4, {"nobody.pem"}, no_key),
       way("a reset without the owner's key", {"continue", "--yes", "--dir", second.dir}, 4,
           {"nobody.pem"}, no_key),
       way("a setting that cannot change", {"amend", "model.layers=9", "--dir", host.dir}, 3,
           {"layers"}),
       way("a setting without a number", {"amend", "optim.lr=abc", "--dir", host.dir}, 3,
           {"optim.lr=abc"}),
       way("a setting with half a value", {"amend", "optim.lr=1e", "--dir", host.dir}, 3,
           {"'optim.lr=1e'", "'1e' is no value"}),
       way("a reset that nobody confirms", {"continue", "--dir", host.dir}, 10,
           {"no terminal", "--yes"}),
       way("a setting out of range", {"amend", "optim.lr=-1", "--dir", host.dir}, 3,
           {"optim.lr", "-1", "0 .. 10"}),
       way("an end before the present round", {"amend", "sync.rounds=1", "--dir", host.dir}, 3,
           {"sync.rounds = 1", "the run has done"}),
       way("back to no round", {"continue", "--from", "18446744073709551615", "--dir", host.dir}, 3,
           {"18446744073709551615"}),
       way("one process in a peer's folder",
           {"train", Toml("five.toml", "rounds = 0", "rounds = 5"), "--one-process", "--dir",
            host.dir},
           11, {host.dir, "a peer's folder"}),
       way("workers of no process", {"train", run, "--workers", "4"}, 3, {"--workers 4"}),
       way("no setting", {"amend", "nonsense", "--dir", host.dir}, 3,
           {"'nonsense'", "TABLE.KEY=VALUE"}),
       way("back to a round to come", {"continue", "--from", "999999", "--dir", host.dir}, 3,
           {"999999"}),
       way("a delegation to nobody", {"delegate", "zzz", "--dir", host.dir}, 4, {"'zzz'"}),
       way("an invite for nobody", {"invite", "--uses", "0", "--dir", host.dir}, 3, {"--uses 0"})},
      {run, Path("story.txt"), host.dir + "/keys", second.dir + "/keys", host.dir + "/genesis"});
  EXPECT_FALSE(fs::exists(Path("third")));
  const Ended resumed = Run({"resume", "--dir", host.dir});
  EXPECT_EQ(resumed.code, 0) << resumed.log;
  EXPECT_NE(resumed.text.find("not paused: nothing changes"), std::string::npos) << resumed.text;
  const std::string copy = Path("copy");
  CopyRunning(second.dir, copy);
  Try({way("a copy of a folder whose original runs", {"join", "--dir", copy}, 11,
           {"already connected", "a folder of its own"})},
      {second.dir + "/keys"});
  EXPECT_TRUE(UntilRound({&host, &second}, host.round + 2, 2)) << "nobody was disturbed";
  ExpectOneHistory();
}

TEST_F(WrongWays, TheOnlyOneThatLeavesIsToldThatTheRunStaysInItsFolder) {
  Peer& host = Host("host");
  ASSERT_TRUE(UntilRound({&host}, 3));
  const Ended ended = Run({"leave", "--dir", host.dir});
  EXPECT_EQ(ended.code, 0) << ended.log;
  EXPECT_NE(ended.text.find("the run waits in its folder"), std::string::npos) << ended.text;
  EXPECT_EQ(AwaitEnd(host, 60s), 0);
  const std::uint64_t left_at = host.round;
  Resume(host);
  EXPECT_TRUE(UntilRound({&host}, left_at + 2));
}

}  // namespace
}  // namespace loom::e2e
