#include "store/peer_folder.h"

#include <gtest/gtest.h>

#include "crypto/hash.h"
#include "store/piece_list.h"
#include "store/sim_file_system.h"

namespace loom::store {
namespace {

const PeerFolder::Options kOptions{4711, 2};

Result<std::vector<Bytes>> AllTiles(const RoundFile& file) {
  std::vector<Bytes> tiles;
  for (std::size_t i = 0; i < file.num_tiles(); ++i) {
    LOOM_ASSIGN(Bytes tile, file.ReadTile(i));
    tiles.push_back(std::move(tile));
  }
  return tiles;
}

std::vector<ByteView> Views(const std::vector<Bytes>& tiles) {
  return {tiles.begin(), tiles.end()};
}

TEST(PeerFolder, TheSameFolderTwiceNamesTheOtherProcess) {
  SimFileSystem fs;
  auto first = PeerFolder::Open(fs, "D", kOptions);
  ASSERT_TRUE(first) << first.error().ToString();
  const auto second = PeerFolder::Open(fs, "D", {99, 2});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::kConflict);
  EXPECT_NE(second.error().message.find("4711"), std::string::npos);
  fs.Kill();
  EXPECT_TRUE(PeerFolder::Open(fs, "D", kOptions)) << "the lock ends with its process";
}

TEST(PeerFolder, ResumesItsRunAndRefusesAnother) {
  SimFileSystem fs;
  {
    auto folder = PeerFolder::Open(fs, "D", kOptions);
    ASSERT_TRUE(folder);
    EXPECT_FALSE(folder->has_run());
    ASSERT_TRUE(folder->SetGenesis(AsBytes("genesis body")));
    ASSERT_TRUE(folder->SetGenesis(AsBytes("genesis body")));
    const Status other = folder->SetGenesis(AsBytes("other body"));
    ASSERT_FALSE(other);
    EXPECT_EQ(other.error().code, Code::kConflict);
    ASSERT_TRUE(folder->records().AppendAndSync(AsBytes("record 0")));
    ASSERT_TRUE(folder->votes().AppendAndSync(AsBytes("vote")));
    ASSERT_TRUE(folder->WriteKey("peer", AsBytes("secret")));
    EXPECT_FALSE(folder->WriteKey("../peer", AsBytes("secret")));
    ASSERT_TRUE(folder->WriteStatus("{\"state\":\"working\"}"));
    ASSERT_TRUE(folder->AppendMetrics("{\"step\":1}"));
  }
  fs.Crash(1);
  auto folder = PeerFolder::Open(fs, "D", kOptions);
  ASSERT_TRUE(folder) << folder.error().ToString();
  ASSERT_TRUE(folder->has_run());
  EXPECT_EQ(AsText(folder->genesis()), "genesis body");
  EXPECT_EQ(folder->records().size(), 1u);
  EXPECT_EQ(AsText(*folder->votes().Read(0)), "vote");
  EXPECT_EQ(AsText(*folder->ReadKey("peer")), "secret");
  const PeerFolderView view(fs, "D");
  EXPECT_EQ(AsText(view.Records()->entries.at(0)), "record 0");
  EXPECT_EQ(AsText(*view.Genesis()), "genesis body");
}

TEST(PeerFolder, MetricsGoOnAfterATornLine) {
  SimFileSystem fs;
  ASSERT_TRUE(PeerFolder::Open(fs, "D", kOptions));
  ASSERT_TRUE((*fs.Open("D/metrics.jsonl", OpenMode::kWrite))->Append(AsBytes("{\"st")));
  auto folder = PeerFolder::Open(fs, "D", kOptions);
  ASSERT_TRUE(folder->AppendMetrics("{\"step\":2}"));
  EXPECT_EQ(AsText(*ReadWholeFile(fs, "D/metrics.jsonl", 100)), "{\"st\n{\"step\":2}\n");
}

// Either of the two is put right from the other one; when both are damaged, both are named.
TEST(PeerFolder, DamagedGenesisIsMendedFromItsCopy) {
  SimFileSystem fs;
  {
    auto folder = PeerFolder::Open(fs, "D", kOptions);
    ASSERT_TRUE(folder->SetGenesis(AsBytes("genesis body")));
  }
  const auto before = fs.Snapshot();
  const Bytes whole = *ReadWholeFile(fs, "D/genesis", 1000);
  for (const char* name : {"D/genesis", "D/genesis.copy"}) {
    for (std::uint64_t offset = 0; offset <= whole.size(); ++offset) {
      fs.Restore(before);
      ASSERT_TRUE(offset < whole.size() ? fs.FlipByte(name, offset, std::byte{2})
                                        : fs.Remove(name));
      EXPECT_EQ(AsText(*PeerFolderView(fs, "D").Genesis()), "genesis body");
      {
        const auto folder = PeerFolder::Open(fs, "D", kOptions);
        ASSERT_TRUE(folder) << folder.error().ToString();
        EXPECT_EQ(AsText(folder->genesis()), "genesis body");
        ASSERT_EQ(folder->notes().size(), 1U);
        EXPECT_TRUE(folder->notes()[0].starts_with(std::string(name) + " was damaged or missing"));
      }
      EXPECT_EQ(*ReadWholeFile(fs, name, 1000), whole);
      EXPECT_TRUE(PeerFolder::Open(fs, "D", kOptions)->notes().empty());
    }
  }
  for (const char* name : {"D/genesis", "D/genesis.copy"})
    ASSERT_TRUE(fs.FlipByte(name, 9, std::byte{2}));
  const auto folder = PeerFolder::Open(fs, "D", kOptions);
  ASSERT_FALSE(folder);
  EXPECT_EQ(folder.error().code, Code::kCorrupt);
  EXPECT_NE(folder.error().message.find("D/genesis: "), std::string::npos);
  EXPECT_NE(folder.error().message.find("D/genesis.copy: "), std::string::npos);
}

// R6: what is behind a vote is durable before the vote can be. R3: a new attempt does not touch
// the bytes behind the last vote.
TEST(PeerFolder, R3R6RoundBytesAreDurableAndAttemptsApart) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    SimFileSystem fs;
    auto folder = PeerFolder::Open(fs, "D", kOptions);
    const std::vector<Bytes> first{Bytes(700, std::byte{1}), Bytes(), Bytes(20, std::byte{2})};
    const std::vector<Bytes> second{Bytes(700, std::byte{3}), Bytes(5), Bytes(20, std::byte{4})};
    const auto a = folder->WriteRound(5, Views(first));
    const auto b = folder->WriteRound(5, Views(second));
    ASSERT_TRUE(a && b);
    ASSERT_NE(*a, *b);
    fs.Crash(seed);
    folder = PeerFolder::Open(fs, "D", kOptions);
    ASSERT_TRUE(folder);
    const auto file = folder->OpenRound(5, *a);
    ASSERT_TRUE(file) << file.error().ToString();
    EXPECT_EQ(*AllTiles(*file), first);
    EXPECT_EQ(*AllTiles(*folder->OpenRound(5, *b)), second);
    ASSERT_TRUE(folder->KeepOnlyRound(5, *b));
    EXPECT_FALSE(folder->HasRound(5, *a));
    EXPECT_TRUE(folder->HasRound(5, *b));
  }
}

// Promise 5: stopped at any operation of a peer's life and the power cut, the folder opens again
// and holds everything that was acknowledged.
TEST(PeerFolder, PowerCutAtEveryOperationKeepsWhatWasAcknowledged) {
  const StateLayout layout{{"t"}, {{0, 0, 4}}, 16, 2, {}};
  const std::vector<Bytes> tiles{Bytes(900, std::byte{1}), Bytes(30, std::byte{2})};
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    for (std::uint64_t stop = 0;; ++stop) {
      SCOPED_TRACE(fmt::format("seed {} stop {}", seed, stop));
      SimFileSystem fs;
      fs.FailAt(stop, Code::kIo, true);
      bool genesis = false;
      std::size_t votes = 0, records = 0, saved = 0;
      std::vector<Hash> rounds;
      const auto live = [&]() -> Status {
        LOOM_ASSIGN(PeerFolder folder, PeerFolder::Open(fs, "D", kOptions));
        LOOM_RETURN_IF_ERROR(folder.SetGenesis(AsBytes("genesis")));
        genesis = true;
        for (Round round = 1; round <= 3; ++round) {
          LOOM_ASSIGN(const Hash id, folder.WriteRound(round, Views(tiles)));
          rounds.push_back(id);
          LOOM_RETURN_IF_ERROR(folder.votes().AppendAndSync(AsBytes(std::to_string(round))));
          ++votes;
          LOOM_RETURN_IF_ERROR(folder.records().AppendAndSync(AsBytes(std::to_string(round))));
          ++records;
          const std::vector<float> values(16, static_cast<float>(round));
          LOOM_ASSIGN(const auto info,
                      folder.checkpoints().Save({round, {}, {}}, layout, {values, values}, {}));
          saved = info.round;
        }
        return {};
      };
      const bool finished = live().ok();
      fs.Crash(seed * 10'000 + stop);
      auto folder = PeerFolder::Open(fs, "D", kOptions);
      ASSERT_TRUE(folder) << folder.error().ToString();
      if (genesis) {
        ASSERT_TRUE(folder->has_run());
        EXPECT_GE(folder->votes().size(), votes);
        EXPECT_GE(folder->records().size(), records);
        for (Round round = 1; round <= rounds.size(); ++round) {
          const auto file = folder->OpenRound(round, rounds[round - 1]);
          ASSERT_TRUE(file) << file.error().ToString();
          EXPECT_EQ(*AllTiles(*file), tiles);
        }
      }
      if (saved > 0) {
        std::vector<float> w(16), b(16);
        const auto loaded = folder->checkpoints().LoadLastGood(layout, {w, b});
        ASSERT_TRUE(loaded) << loaded.error().ToString();
        EXPECT_GE(loaded->info.round, saved);
        EXPECT_EQ(w[0], static_cast<float>(loaded->info.round));
      }
      if (finished) break;
    }
  }
}

TEST(RoundFile, FlippedByteIsFoundAtEveryOffset) {
  SimFileSystem fs;
  const std::vector<Bytes> tiles{Bytes(30, std::byte{1}), Bytes(40, std::byte{2})};
  const std::vector<Hash> hashes{crypto::Sha256(tiles[0]), crypto::Sha256(tiles[1])};
  ASSERT_TRUE(WriteRoundFile(fs, "round", 3, Views(tiles), hashes));
  EXPECT_EQ(RoundFile::Open(fs, "round", 4).error().code, Code::kCorrupt);
  const auto before = fs.Snapshot();
  const std::uint64_t size = *fs.Size("round");
  for (std::uint64_t offset = 0; offset < size; ++offset) {
    fs.Restore(before);
    ASSERT_TRUE(fs.FlipByte("round", offset, std::byte{8}));
    const auto file = RoundFile::Open(fs, "round", 3);
    const auto all = file ? AllTiles(*file) : Result<std::vector<Bytes>>(file.error());
    ASSERT_FALSE(all) << "offset " << offset;
    if (offset >= size - 40) {
      EXPECT_TRUE(file->ReadTile(0)) << "the other tile is still good";
      EXPECT_NE(all.error().message.find("tile 1 at offset"), std::string::npos);
    }
  }
  for (std::uint64_t cut = 0; cut < size; ++cut) {
    fs.Restore(before);
    ASSERT_TRUE((*fs.Open("round", OpenMode::kWrite))->Truncate(cut));
    EXPECT_FALSE(RoundFile::Open(fs, "round", 3)) << "cut to " << cut;
  }
}

TEST(PeerFolder, KeepsTheRoundsSinceTheOldestCheckpoint) {
  SimFileSystem fs;
  auto folder = PeerFolder::Open(fs, "D", kOptions);
  const std::vector<Bytes> tiles{Bytes(30, std::byte{1})};
  std::vector<Hash> ids;
  for (Round round = 1; round <= 9; ++round) {
    const auto id = folder->WriteRound(round, Views(tiles));
    ASSERT_TRUE(id);
    ids.push_back(*id);
  }
  ASSERT_TRUE(folder->PruneRounds());
  EXPECT_TRUE(folder->HasRound(1, ids[0])) << "no checkpoint yet: everything is needed";
  StateLayout layout{{"t"}, {{0, 0, 4}}, 16, 2, {}};
  const std::vector<float> values(16, 1.0f);
  for (Round round : {3, 5, 8}) {
    ASSERT_TRUE(folder->checkpoints().Save({round, {}, {}}, layout, {values, values}, {}));
  }
  ASSERT_TRUE(folder->PruneRounds());
  for (Round round = 1; round <= 9; ++round) {
    EXPECT_EQ(folder->HasRound(round, ids[round - 1]), round > 5) << round;
  }
}

TEST(PieceList, LargeObjectsArePiecesUnderOneRoot) {
  Bytes big(2 * kPieceBytes + 100);
  for (std::size_t i = 0; i < big.size(); ++i)
    big[i] = static_cast<std::byte>(i * 2654435761u >> 24);
  const PieceList list = PieceList::Of(big);
  EXPECT_EQ(list.pieces.size(), 3u);
  EXPECT_EQ(list.PieceSize(2), 100u);
  const auto decoded = PieceList::Decode(list.Encode());
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->Root(), list.Root());
  EXPECT_EQ(PieceList::Of(AsBytes("tokenizer")).Root(), crypto::Sha256(AsBytes("tokenizer")));
}

TEST(PieceList, RefusesCountsThatDoNotFit) {
  PieceList list{kPieceBytes + 1, {Hash()}};
  EXPECT_FALSE(PieceList::Decode(list.Encode()));
  list.pieces.push_back(Hash());
  EXPECT_TRUE(PieceList::Decode(list.Encode()));
  list.size = UINT64_MAX;
  EXPECT_FALSE(PieceList::Decode(list.Encode()));
}

}  // namespace
}  // namespace loom::store
