// The verbs that look at a peer's folder or speak to its peer: log, status, eval, generate and
// export of a folder, with its lock held and not, whole and damaged; invite and the others over
// control.sock.
#include <atomic>
#include <thread>

#include "app/cli_test_fixture.h"
#include "codec/codec.h"
#include "collab/engine.h"
#include "collab/ledger.h"
#include "crypto/hash.h"
#include "model/config.h"
#include "net/control_socket.h"
#include "net/reactor.h"
#include "node/restore.h"
#include "node/run_data.h"
#include "store/peer_folder.h"
#include "train/spec.h"

namespace loom::app {
namespace {

/// Moves every weight by a little that depends on the round and the place.
class Nudge final : public collab::Worker {
 public:
  Result<collab::WorkDone> Work(const collab::WorkOrder& order, std::span<const float> start,
                                std::span<float> theta, const std::atomic<bool>&) override {
    collab::WorkDone done;
    for (const collab::Range& range : order.ranges) done.samples += range.size();
    done.tokens = done.samples * 64;
    done.steps = 1;
    for (std::size_t i = 0; i < start.size(); ++i) {
      theta[i] = start[i] + 1e-4F * static_cast<float>((i * 7 + order.round) % 5);
    }
    return done;
  }
  Result<collab::WorkDone> Gradient(const collab::WorkOrder&, std::span<float>, std::span<float>,
                                    float) override {
    return MakeError(Code::kInternal, "this run takes local steps");
  }
  void Reset() override {}
  Status SaveState(ByteSink&) const override { return {}; }
  Status RestoreState(ByteSource&) override { return {}; }
};

#define ASSERT_GIVES(decl, expr)                           \
  auto LOOM_CONCAT(gives_, __LINE__) = (expr);             \
  ASSERT_TRUE(LOOM_CONCAT(gives_, __LINE__).ok())          \
      << LOOM_CONCAT(gives_, __LINE__).error().ToString(); \
  decl = std::move(LOOM_CONCAT(gives_, __LINE__)).value()

class PeerVerbs : public Cli {
 protected:
  /// What a peer alone in its run leaves behind after `rounds` rounds, with one checkpoint.
  void MakeFolder(Round rounds, Round checkpoint) {
    Write("story.txt", Story());
    train::RunFile file = train::DefaultRun();
    ASSERT_TRUE(train::ApplyModelPreset("loom-0.2m", file).ok());
    file.spec.data.paths = {Path("story.txt")};
    file.spec.sync.inner_steps = 2;
    file.spec.sync.rounds = rounds;
    dir_path_ = Path("peer");
    fs::create_directories(dir_path_ + "/keys");
    const crypto::SigningKey owner = crypto::SigningKey::Generate();
    const crypto::SigningKey key = crypto::SigningKey::Generate();
    ASSERT_TRUE(key.Save(dir_path_ + "/keys/peer").ok());
    peer_ = key.id();
    ASSERT_GIVES(run_, node::MakeRun(file, dir_path_, {"story", owner, key.public_key(), 1}));
    ASSERT_GIVES(store::PeerFolder folder, store::PeerFolder::Open(disk_, dir_path_, {.pid = 1}));
    ASSERT_TRUE(folder.SetGenesis(run_.genesis.Encode()).ok());

    const collab::SyncConfig& sync = run_.spec.sync;
    ASSERT_GIVES(
        agreed::TileGrid grid,
        agreed::TileGrid::Make(model::ParameterShapes(run_.spec.model), sync.tile_elements));
    ASSERT_GIVES(const codec::CodecKind codec, codec::ParseCodec(sync.codec));
    ASSERT_GIVES(
        collab::Engine engine,
        collab::Engine::Make(std::move(grid), sync, codec, agreed::BestIsa(), [](WorkerIndex) {
          return Result<std::unique_ptr<collab::Worker>>(std::make_unique<Nudge>());
        }));
    model::InitWeights(run_.spec.model, engine.grid(), sync.seed, engine.weights());
    ASSERT_EQ(engine.Root(), run_.genesis.body.root);
    records_ = {run_.genesis};
    const std::atomic<bool> cut{false};
    for (Round round = 1; round <= rounds; ++round) {
      const collab::Record& parent = records_.back();
      const auto order = collab::OrderOf(parent.body, 0, sync);
      ASSERT_TRUE(order.has_value());
      ASSERT_GIVES(const collab::EncodedWork work, engine.Work(*order, cut));
      collab::ReduceInput input{.weight = 1, .units = 1, .tiles = {}};
      const collab::TileLayout& layout = engine.layout();
      for (std::size_t i = 0; i < layout.num_tiles(); ++i) {
        input.tiles.push_back({work.encoded, layout.Offset(i), layout.Size(i)});
      }
      ASSERT_GIVES(const Bytes reduced, engine.Reduce(0, layout.num_tiles(), std::span(&input, 1)));
      ASSERT_GIVES(const collab::NextState next, engine.Next(reduced, {1, 0}));
      collab::Choices choices;
      choices.contributions = {{.worker = 0,
                                .peer = peer_,
                                .samples = work.done.samples,
                                .tokens = work.done.tokens,
                                .millis = 1,
                                .ranges = order->ranges,
                                .commitment = crypto::MerkleRoot(work.hashes)}};
      choices.stay = {peer_};
      choices.tiles = next.tiles;
      choices.root = next.root;
      const collab::Body body = collab::NextBody(parent.body, parent.hash, run_.id, sync, choices);
      ASSERT_GIVES(collab::Record record, collab::Record::FromBody(MakeBlob(body.Encode())));
      std::vector<ByteView> tiles;
      for (std::size_t i = 0; i < layout.num_tiles(); ++i) tiles.push_back(layout.View(reduced, i));
      ASSERT_TRUE(folder.WriteRound(round, tiles).ok());
      ASSERT_TRUE(folder.records().AppendAndSync(record.Encode()).ok());
      ASSERT_TRUE(engine.Apply(reduced, {1, 0}).ok());
      ASSERT_EQ(engine.Root(), record.body.root);
      if (round == checkpoint) {
        ASSERT_TRUE(folder.checkpoints()
                        .Save({round, record.hash, record.body.root},
                              node::StateLayoutOf(engine.grid(), engine.layout().num_planes()),
                              std::as_const(engine.state()).planes(), {})
                        .ok());
      }
      records_.push_back(std::move(record));
    }
  }

  std::vector<json::Value> Lines(const std::string& text) const {
    std::vector<json::Value> lines;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      lines.push_back(Parsed(text.substr(at, end - at)));
      at = end + 1;
    }
    return lines;
  }
  static std::string TextAt(const json::Value& value, const char* key) {
    const json::Value* found = value.Find(key);
    EXPECT_TRUE(found != nullptr && found->AsString() != nullptr) << key;
    return found != nullptr && found->AsString() != nullptr ? *found->AsString() : "";
  }
  void Flip(const std::string& path, std::uint64_t offset) const {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(offset));
    const int byte = file.get();
    file.seekp(static_cast<std::streamoff>(offset));
    file.put(static_cast<char>(byte ^ 0x10));
  }
  std::string Exported(const std::string& name) const {
    const Ran ran = Run("export " + dir_path_ + " --out " + Path(name));
    EXPECT_EQ(ran.code, 0) << ran.err;
    return Read(name + "/model.safetensors");
  }

  store::PosixFileSystem disk_;
  std::string dir_path_;
  PeerId peer_;
  node::Run run_;
  std::vector<collab::Record> records_;
};

TEST_F(PeerVerbs, LogListsEveryRecord) {
  MakeFolder(3, 2);
  if (HasFatalFailure()) return;
  ASSERT_GIVES(const store::PeerFolder held, store::PeerFolder::Open(disk_, dir_path_, {.pid = 1}));
  const Ran log = Run("log --dir " + dir_path_ + " --json");
  ASSERT_EQ(log.code, 0) << log.err;
  const std::vector<json::Value> lines = Lines(log.out);
  ASSERT_EQ(lines.size(), 4u);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const collab::Record& record = records_[i];
    std::vector<std::string> keys;
    for (const auto& [key, value] : *lines[i].AsObject()) keys.push_back(key);
    keys.resize(10);
    EXPECT_EQ(keys, (std::vector<std::string>{"era", "round", "kind", "parent", "hash", "root",
                                              "members", "contributors", "fates", "term"}));
    EXPECT_EQ(Number(lines[i], "round"), static_cast<double>(i));
    EXPECT_EQ(TextAt(lines[i], "kind"), i == 0 ? "genesis" : "step");
    EXPECT_EQ(TextAt(lines[i], "hash"), record.hash.Hex());
    EXPECT_EQ(TextAt(lines[i], "root"), record.body.root.Hex());
    EXPECT_EQ(TextAt(lines[i], "parent"), i == 0 ? Hash().Hex() : records_[i - 1].hash.Hex());
    const json::Array& members = *lines[i].Find("members")->AsArray();
    ASSERT_EQ(members.size(), 1u);
    EXPECT_EQ(*members[0].AsString(), peer_.Hex());
    const json::Array& contributors = *lines[i].Find("contributors")->AsArray();
    ASSERT_EQ(contributors.size(), i == 0 ? 0u : 1u);
    if (i == 0) continue;
    const json::Array& ranges = *contributors[0].Find("ranges")->AsArray();
    const json::Array& first = *ranges.at(0).AsArray();
    EXPECT_EQ(*first.at(0).AsUnsigned(), record.body.contributions[0].ranges[0].first);
    EXPECT_EQ(*first.at(1).AsUnsigned(), record.body.contributions[0].ranges[0].last);
    const json::Array& fates = *lines[i].Find("fates")->AsArray();
    ASSERT_FALSE(fates.empty());
    EXPECT_EQ(TextAt(fates[0], "fate"), "used");
    EXPECT_EQ(fates[0].Find("range")->AsArray()->size(), 2u);
  }
  EXPECT_NE(Run("log --dir " + dir_path_).out.find(records_[3].body.root.Short()),
            std::string::npos);
}

TEST_F(PeerVerbs, ADamagedLogIsNamedAndATornOneRead) {
  MakeFolder(3, 0);
  if (HasFatalFailure()) return;
  const std::string log = dir_path_ + "/records.log";
  fs::copy_file(log, Path("whole"));
  fs::resize_file(log, fs::file_size(log) - 5);
  const Ran torn = Run("log --dir " + dir_path_ + " --json");
  EXPECT_EQ(torn.code, 0) << torn.err;
  EXPECT_EQ(Lines(torn.out).size(), 3u);
  EXPECT_NE(torn.err.find("entry 2"), std::string::npos) << torn.err;
  fs::copy_file(Path("whole"), log, fs::copy_options::overwrite_existing);
  Flip(log, store::kLogHeaderBytes + 40);
  const Ran flipped = Run("log --dir " + dir_path_ + " --json");
  EXPECT_EQ(flipped.code, 0) << flipped.err;
  EXPECT_EQ(Lines(flipped.out).size(), 4u);
  EXPECT_NE(flipped.err.find("records.log: the disk changed the byte at offset 96"),
            std::string::npos)
      << flipped.err;
  Flip(log, store::kLogHeaderBytes + 44);
  const Ran bad = Run("log --dir " + dir_path_ + " --json");
  EXPECT_EQ(bad.code, 5) << bad.err;
  EXPECT_NE(bad.err.find("records.log: entry 0 at offset 56"), std::string::npos) << bad.err;
  EXPECT_EQ(TextAt(*Parsed(bad.out).Find("error"), "code"), "corrupt");
  for (const char* name : {"/genesis", "/genesis.copy"}) Flip(dir_path_ + name, 100);
  const Ran genesis = Run("log --dir " + dir_path_);
  EXPECT_EQ(genesis.code, 5);
  EXPECT_NE(genesis.err.find("genesis"), std::string::npos) << genesis.err;
}

TEST_F(PeerVerbs, StatusOfAPeerThatDoesNotRun) {
  MakeFolder(2, 0);
  if (HasFatalFailure()) return;
  const Ran never = Run("status --dir " + dir_path_ + " --json");
  ASSERT_EQ(never.code, 0) << never.err;
  const json::Value first = Parsed(never.out);
  std::vector<std::string> keys;
  for (const auto& [key, value] : *first.AsObject()) keys.push_back(key);
  keys.resize(10);
  EXPECT_EQ(keys, (std::vector<std::string>{"run", "peer", "state", "reason", "round", "tokens",
                                            "root", "leader", "waits_for", "peers"}));
  EXPECT_EQ(TextAt(first, "state"), "stopped");
  EXPECT_EQ(TextAt(first, "run"), run_.id.Hex());
  EXPECT_EQ(TextAt(first, "peer"), peer_.Hex());
  EXPECT_EQ(Number(first, "round"), 2);
  EXPECT_EQ(TextAt(first, "root"), records_[2].body.root.Hex());

  // A killed peer's last report says what it was; the records may know more.
  const std::string report = R"({"run":"","peer":")" + peer_.Hex() +
                             R"(","state":"working","reason":"","round":1,"peers":[{"id":")" +
                             peer_.Hex() + R"(","state":"working","reason":""}]})";
  Write("peer/status.json", report);
  const json::Value killed = Parsed(Run("status --dir " + dir_path_ + " --json").out);
  EXPECT_EQ(TextAt(killed, "state"), "stopped");
  EXPECT_NE(TextAt(killed, "reason").find("working"), std::string::npos);
  EXPECT_EQ(Number(killed, "round"), 2);
  EXPECT_EQ(TextAt(killed.Find("peers")->AsArray()->at(0), "state"), "stopped");
  const Ran people = Run("status --dir " + dir_path_);
  EXPECT_NE(people.out.find("loom join --dir"), std::string::npos) << people.out;

  Write("peer/status.json",
        R"({"state":"stopped","reason":"interrupted; go on with: loom train a.toml --dir b"})");
  const Ran told = Run("status --dir " + dir_path_);
  EXPECT_EQ(told.out.find("loom join --dir"), std::string::npos) << "one command: " << told.out;

  Write("peer/status.json", R"({"state":"failed","reason":"the disk is full"})");
  const json::Value failed = Parsed(Run("status --dir " + dir_path_ + " --json").out);
  EXPECT_EQ(TextAt(failed, "state"), "failed");
  EXPECT_EQ(TextAt(failed, "reason"), "the disk is full");

  ASSERT_GIVES(const store::PeerFolder held,
               store::PeerFolder::Open(disk_, dir_path_, {.pid = ::getpid()}));
  const json::Value starting = Parsed(Run("status --dir " + dir_path_ + " --json").out);
  EXPECT_EQ(TextAt(starting, "state"), "starting");
  EXPECT_EQ(Run("status --dir " + Path("nowhere")).code, 4);
  EXPECT_EQ(Run("log --dir " + Path("nowhere")).code, 4);
}

TEST_F(PeerVerbs, AFolderIsAModel) {
  MakeFolder(3, 2);
  if (HasFatalFailure()) return;
  std::string whole;
  {
    ASSERT_GIVES(const store::PeerFolder held,
                 store::PeerFolder::Open(disk_, dir_path_, {.pid = ::getpid()}));
    whole = Exported("a");
    for (const char* split : {"val", "train"}) {
      const Ran eval = Run("eval " + dir_path_ + " --split " + split + " --json");
      ASSERT_EQ(eval.code, 0) << eval.err;
      EXPECT_GT(Number(Parsed(eval.out), "tokens"), 1000);
      EXPECT_GT(Number(Parsed(eval.out), "loss"), 1);
    }
    const Ran text = Run("generate " + dir_path_ + " --prompt \"the\" --tokens 4 --greedy --json");
    ASSERT_EQ(text.code, 0) << text.err;
    EXPECT_EQ(Parsed(text.out).Find("ids")->AsArray()->size(), 4u);
  }
  EXPECT_EQ(Run("eval " + dir_path_ + " --split test").code, 3);
  EXPECT_EQ(Run("eval " + Path("a") + " --split val").code, 3);

  // A damaged checkpoint: the first weights and every round lead to the same state.
  Flip(dir_path_ + "/checkpoints/2/state.bin", 1000);
  const Ran damaged = Run("export " + dir_path_ + " --out " + Path("b"));
  ASSERT_EQ(damaged.code, 0) << damaged.err;
  EXPECT_NE(damaged.err.find("checkpoints/2"), std::string::npos) << damaged.err;
  EXPECT_TRUE(Read("b/model.safetensors") == whole);
  Flip(dir_path_ + "/checkpoints/2/state.bin", 1000);

  // The last round's bytes damaged: the state before it, and the reason.
  for (const auto& entry : fs::directory_iterator(dir_path_ + "/rounds")) {
    if (entry.path().filename().string().starts_with("3-")) {
      Flip(entry.path().string(), fs::file_size(entry.path()) - 9);
    }
  }
  const Ran behind = Run("export " + dir_path_ + " --out " + Path("c"));
  ASSERT_EQ(behind.code, 0) << behind.err;
  EXPECT_NE(behind.err.find("the state stops at round 2 of 3"), std::string::npos) << behind.err;
  EXPECT_NE(behind.out.find("after round 2"), std::string::npos) << behind.out;
  EXPECT_FALSE(Read("c/model.safetensors") == whole);
}

TEST_F(PeerVerbs, AModelWithoutATokenizerTakesIds) {
  MakeFolder(1, 1);
  if (HasFatalFailure()) return;
  Exported("m");
  fs::remove(Path("m/tokenizer.json"));
  Write("ids.json", "[1, 2, 3]");
  const Ran ids = Run("eval " + Path("m") + " --ids " + Path("ids.json") + " --logits " +
                      Path("l.safetensors"));
  EXPECT_EQ(ids.code, 0) << ids.err;
  for (const std::string& other : {"eval " + Path("m") + " --text " + Path("story.txt"),
                                   "generate " + Path("m") + " --prompt a"}) {
    const Ran ran = Run(other);
    EXPECT_EQ(ran.code, 4) << other;
    EXPECT_NE(ran.err.find("tokenizer.json"), std::string::npos) << ran.err;
  }
}

TEST_F(PeerVerbs, WhatIsToldToARunningPeer) {
  fs::create_directories(Path("peer/keys"));
  Write("peer/keys/peer", "");
  const std::string dir = Path("peer");
  for (const char* verb : {"invite", "pause", "resume", "finish", "leave"}) {
    const Ran none = Run(std::string(verb) + " --dir " + dir);
    EXPECT_EQ(none.code, 4) << verb;
    EXPECT_NE(none.err.find("start it with: loom join --dir " + dir), std::string::npos)
        << none.err;
  }
  fs::create_directories(Path("my peer/keys"));
  Write("my peer/keys/peer", "");
  const Ran quoted = Run("pause --dir '" + Path("my peer") + "'");
  EXPECT_NE(quoted.err.find("loom join --dir '" + Path("my peer") + "'"), std::string::npos)
      << quoted.err;
  net::Reactor reactor;
  std::vector<std::string> asked;
  int times_status = 0;
  auto server = net::ControlServer::Listen(
      reactor, dir + "/control.sock",
      [&](const std::string& request, const net::ControlServer::Reply& reply) {
        asked.push_back(request);
        if (request.find("invite") != std::string::npos) {
          reply(R"({"ok":true,"invite":"loom1abc"})");
        } else if (request.find("status") != std::string::npos) {
          const bool waits = ++times_status > 1;
          reply(std::string(R"({"run":"","peer":"aa","state":"working","reason":"","round":7,)"
                            R"("critical":["aa","bbbbbbbbbbbb"],"peers":[],"isolations":[)"
                            R"({"without":"","groups":[],"pairs":[["aa","dddddddddddd"]]},)"
                            R"({"without":"cccccccccccc","groups":[["aa","bbbbbbbbbbbb"],)"
                            R"(["dddddddddddd"]],"pairs":[]},{"without":"aa","groups":)"
                            R"([["bbbbbbbbbbbb"],["cccccccccccc"],["dddddddddddd"]],"pairs":[]}],)"
                            R"("waits_for":[)") +
                (waits ? R"("cccccccccccc"]})" : "]}"));
        } else if (request.find("leave") != std::string::npos) {
          reply(R"({"ok":false,"code":"refused","error":"not now"})");
        } else {
          reply(R"({"ok":true,"state":"paused"})");
        }
      });
  ASSERT_TRUE(server.ok()) << server.error().ToString();
  std::thread running([&] { reactor.Run(); });
  const Ran invite = Run("invite --dir " + dir + " --uses 3 --seconds 60 --json");
  const Ran plain = Run("invite --dir " + dir);
  const Ran pause = Run("pause --dir " + dir + " --json");
  const Ran leave = Run("leave --dir " + dir);
  const Ran status = Run("status --dir " + dir);
  const Ran waiting = Run("status --dir " + dir);
  const Ran bad = Run("invite --uses 0 --dir " + dir);
  reactor.Post([&] { reactor.Stop(); });
  running.join();
  EXPECT_EQ(invite.code, 0) << invite.err;
  EXPECT_EQ(TextAt(Parsed(invite.out), "invite"), "loom1abc");
  EXPECT_EQ(plain.out, "loom1abc\n");
  EXPECT_EQ(TextAt(Parsed(pause.out), "state"), "paused");
  EXPECT_EQ(leave.code, 10);
  EXPECT_NE(leave.err.find("not now"), std::string::npos);
  EXPECT_NE(status.out.find("if bbbbbbbb dies this run waits"), std::string::npos) << status.out;
  for (const char* line :
       {"\nthis peer and dddddddd cannot reach each other\n",
        "\nif cccccccc goes, this peer and bbbbbbbb cannot reach dddddddd\n",
        "\nif this peer goes, bbbbbbbb, cccccccc and dddddddd cannot reach each other\n"}) {
    EXPECT_NE(status.out.find(line), std::string::npos) << line << status.out;
  }
  EXPECT_NE(waiting.out.find("this run waits for cccccccc"), std::string::npos) << waiting.out;
  EXPECT_EQ(waiting.out.find("dies"), std::string::npos) << waiting.out;
  EXPECT_EQ(bad.code, 3);
  ASSERT_EQ(asked.size(), 6u);
  EXPECT_EQ(Number(Parsed(asked[0]), "uses"), 3);
  EXPECT_EQ(Number(Parsed(asked[0]), "seconds"), 60);
}

}  // namespace
}  // namespace loom::app
