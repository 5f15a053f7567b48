// Checkpoints under full disks, power cuts and flipped bytes.
#include "store/checkpoint.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "crypto/hash.h"
#include "store/manifest.h"
#include "store/sim_file_system.h"

namespace loom::store {
namespace {

StateLayout SmallLayout() {
  StateLayout layout;
  layout.tensors = {"embed.weight", "norm.weight"};
  layout.tiles = {{0, 0, 24}, {0, 24, 10}, {1, 48, 7}};
  layout.flat_size = 64;
  layout.grid = crypto::Sha256(AsBytes("grid"));
  return layout;
}

struct State {
  std::vector<float> w, b;
};

State MakeState(const StateLayout& layout, std::uint64_t seed) {
  std::mt19937 rng(static_cast<unsigned>(seed));
  State state{std::vector<float>(layout.flat_size), std::vector<float>(layout.flat_size)};
  for (const StateTile& tile : layout.tiles) {
    for (std::size_t i = tile.offset; i < tile.offset + tile.size; ++i) {
      state.w[i] = static_cast<float>(rng() % 1000) / 7;
      state.b[i] = static_cast<float>(rng() % 1000) / -3;
    }
  }
  return state;
}

class CheckpointTest : public testing::Test {
 protected:
  Result<CheckpointInfo> Save(Round round) {
    const State state = MakeState(layout_, round);
    const Bytes moments(300, static_cast<std::byte>(round));
    const std::vector<ExtraWriter> extras{
        {"adam_m",
         [&](ByteSink& out) -> Status {
           LOOM_RETURN_IF_ERROR(out.Write(ByteView(moments).first(100)));
           return out.Write(ByteView(moments).subspan(100));
         }},
        {"cursor", [](ByteSink& out) { return out.Write(AsBytes("42")); }}};
    return checkpoints_.Save({round, crypto::Sha256(AsBytes(std::to_string(round))), {}}, layout_,
                             {state.w, state.b}, extras);
  }
  Result<LoadedCheckpoint> LoadLastGood() {
    w_.assign(layout_.flat_size, 0);
    b_.assign(layout_.flat_size, 0);
    return checkpoints_.LoadLastGood(layout_, {w_, b_});
  }
  void ExpectIs(const LoadedCheckpoint& loaded, Round round) {
    EXPECT_EQ(loaded.info.round, round);
    const State state = MakeState(layout_, round);
    EXPECT_EQ(w_, state.w);
    EXPECT_EQ(b_, state.b);
    Bytes moments;
    ASSERT_TRUE(checkpoints_.ReadExtra(round, "adam_m", [&](ByteSource& in) -> Status {
      moments.resize(in.left());
      LOOM_RETURN_IF_ERROR(in.Read(MutableByteView(moments).first(1)));
      return in.Read(MutableByteView(moments).subspan(1));
    }));
    EXPECT_EQ(moments, Bytes(300, static_cast<std::byte>(round)));
  }

  StateLayout layout_ = SmallLayout();
  SimFileSystem fs_;
  Checkpoints checkpoints_{fs_, "checkpoints"};
  std::vector<float> w_, b_;
};

TEST_F(CheckpointTest, ComesBackBitEqualAndKeepsTheNewestTwo) {
  for (Round round : {3, 6, 9}) ASSERT_TRUE(Save(round)) << round;
  EXPECT_EQ(checkpoints_.List(), (std::vector<Round>{6, 9}));
  const auto loaded = LoadLastGood();
  ASSERT_TRUE(loaded);
  ExpectIs(*loaded, 9);
  EXPECT_TRUE(loaded->skipped.empty());
  ASSERT_EQ(loaded->extras.size(), 2u);
  EXPECT_EQ(loaded->extras[0].name, "adam_m");
  const auto read = [&](const char* name, std::size_t bytes) {
    Bytes out(bytes);
    return checkpoints_.ReadExtra(9, name, [&](ByteSource& in) { return in.Read(out); });
  };
  EXPECT_TRUE(read("adam_m", 300));
  EXPECT_EQ(read("adam_m", 301).error().code, Code::kCorrupt);
  EXPECT_EQ(read("adam_m", 299).error().code, Code::kCorrupt) << "a byte nobody read";
  EXPECT_EQ(read("none", 0).error().code, Code::kNotFound);
  ASSERT_TRUE(fs_.FlipByte("checkpoints/9/extra/adam_m.bin", 200, std::byte{1}));
  EXPECT_EQ(read("adam_m", 300).error().code, Code::kCorrupt);
}

// The content hash of the region of tile i is state leaf i: what transfer relies on (R11).
TEST_F(CheckpointTest, R11TilesAreServedByTheirLeaves) {
  const auto info = Save(1);
  ASSERT_TRUE(info);
  const auto state = checkpoints_.OpenState(1, layout_);
  ASSERT_TRUE(state);
  EXPECT_EQ(crypto::MerkleRoot(state->leaves()), info->root);
  const State expected = MakeState(layout_, 1);
  for (std::size_t i = 0; i < layout_.tiles.size(); ++i) {
    const StateTile& tile = layout_.tiles[i];
    const auto bytes = state->ReadTile(i);
    ASSERT_TRUE(bytes);
    EXPECT_EQ(crypto::Sha256(*bytes), state->leaves()[i]);
    EXPECT_EQ(std::memcmp(bytes->data(), expected.w.data() + tile.offset, tile.size * 4), 0);
    EXPECT_EQ(
        std::memcmp(bytes->data() + tile.size * 4, expected.b.data() + tile.offset, tile.size * 4),
        0);
  }
}

// "A disk-full at any byte leaves the older one loadable."
TEST_F(CheckpointTest, FullDiskAtEveryOperationLeavesTheOlderOne) {
  ASSERT_TRUE(Save(1));
  ASSERT_TRUE(Save(2));
  const auto before = fs_.Snapshot();
  std::uint64_t failures = 0;
  for (std::uint64_t at = 0;; ++at) {
    fs_.Restore(before);
    const std::uint64_t target = fs_.operations() + at;
    fs_.FailAt(target, Code::kDiskFull, false);
    const auto saved = Save(3);
    const bool reached = fs_.operations() > target;
    fs_.Kill();
    ASSERT_TRUE(checkpoints_.Clean());
    const auto loaded = LoadLastGood();
    ASSERT_TRUE(loaded) << "operation " << at << ": " << loaded.error().ToString();
    EXPECT_TRUE(loaded->skipped.empty()) << loaded->skipped[0];
    ASSERT_TRUE(loaded->info.round == 2 || loaded->info.round == 3);
    ExpectIs(*loaded, loaded->info.round);
    if (saved) {
      EXPECT_EQ(loaded->info.round, 3u);
    } else {
      EXPECT_EQ(saved.error().code, Code::kDiskFull);
      ++failures;
    }
    if (!reached) break;
  }
  EXPECT_GT(failures, 15u);
}

TEST_F(CheckpointTest, EveryCapacityLeavesTheOlderOne) {
  ASSERT_TRUE(Save(1));
  const auto before = fs_.Snapshot();
  for (std::uint64_t room = 0; room < 4000; room += 7) {
    fs_.Restore(before);
    fs_.SetCapacity(fs_.used_bytes() + room);
    const auto saved = Save(2);
    fs_.Kill();
    const auto loaded = LoadLastGood();
    ASSERT_TRUE(loaded);
    ExpectIs(*loaded, saved ? 2 : 1);
    if (!saved) {
      EXPECT_EQ(saved.error().code, Code::kDiskFull);
    }
    fs_.SetCapacity(UINT64_MAX);
  }
}

TEST_F(CheckpointTest, PowerCutAtEveryOperationLeavesAGoodOne) {
  ASSERT_TRUE(Save(1));
  ASSERT_TRUE(Save(2));
  const auto before = fs_.Snapshot();
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    for (const Round next : {Round{3}, Round{2}}) {  // a new one, and the same one again
      for (std::uint64_t at = 0;; ++at) {
        fs_.Restore(before);
        const std::uint64_t target = fs_.operations() + at;
        fs_.FailAt(target, Code::kIo, true);
        const bool saved = Save(next).ok();
        const bool reached = fs_.operations() > target;
        fs_.Crash(seed * 100000 + at);
        ASSERT_TRUE(checkpoints_.Clean());
        const auto loaded = LoadLastGood();
        ASSERT_TRUE(loaded) << "operation " << at << " seed " << seed << ": "
                            << loaded.error().ToString();
        EXPECT_GE(loaded->info.round, saved ? next : Round{2});
        ExpectIs(*loaded, loaded->info.round);
        if (!reached) break;
      }
    }
  }
}

TEST_F(CheckpointTest, FlippedByteAtEveryOffsetIsNamedAndTheOlderOneUsed) {
  ASSERT_TRUE(Save(1));
  ASSERT_TRUE(Save(2));
  const auto before = fs_.Snapshot();
  for (const std::string name :
       {"state.bin", "leaves.bin", "manifest.json", "extra/adam_m.bin", "extra/cursor.bin"}) {
    const std::string path = "checkpoints/2/" + name;
    const std::uint64_t size = *fs_.Size(path);
    for (std::uint64_t offset = 0; offset < size; ++offset) {
      fs_.Restore(before);
      ASSERT_TRUE(fs_.FlipByte(path, offset, std::byte{0x20}));
      const auto loaded = LoadLastGood();
      ASSERT_TRUE(loaded) << loaded.error().ToString();
      ExpectIs(*loaded, 1);
      ASSERT_EQ(loaded->skipped.size(), 1u) << path << " offset " << offset;
      EXPECT_NE(loaded->skipped[0].find(path), std::string::npos) << loaded->skipped[0];
      if (name == "state.bin") {
        const std::size_t tile = offset < 192 ? 0 : offset < 272 ? 1 : 2;
        const std::uint64_t starts[] = {0, 192, 272};
        EXPECT_NE(loaded->skipped[0].find(fmt::format("tile {} of tensor {} at offset {}", tile,
                                                      tile == 2 ? "norm.weight" : "embed.weight",
                                                      starts[tile])),
                  std::string::npos)
            << loaded->skipped[0];
      }
    }
  }
}

TEST_F(CheckpointTest, TruncatedAndMissingFilesAreSkipped) {
  ASSERT_TRUE(Save(1));
  ASSERT_TRUE(Save(2));
  const auto before = fs_.Snapshot();
  for (const std::string name : {"state.bin", "leaves.bin", "manifest.json", "extra/adam_m.bin"}) {
    fs_.Restore(before);
    ASSERT_TRUE((*fs_.Open("checkpoints/2/" + name, OpenMode::kWrite))->Truncate(1));
    auto loaded = LoadLastGood();
    ASSERT_TRUE(loaded);
    ExpectIs(*loaded, 1);
    EXPECT_EQ(checkpoints_.List(), (std::vector<Round>{1}));
    ASSERT_TRUE(fs_.Remove("checkpoints/2/" + name));
    loaded = LoadLastGood();
    ASSERT_TRUE(loaded);
    ExpectIs(*loaded, 1);
  }
  ASSERT_TRUE(fs_.FlipByte("checkpoints/1/state.bin", 0, std::byte{1}));
  const auto none = LoadLastGood();
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Code::kNotFound);
}

// Rule 26: a checkpoint with a value that is not finite is never made.
TEST_F(CheckpointTest, RefusesWhatIsNotFinite) {
  ASSERT_TRUE(Save(1));
  State state = MakeState(layout_, 2);
  state.w[50] = std::numeric_limits<float>::quiet_NaN();
  const auto saved = checkpoints_.Save({2, {}, {}}, layout_, {state.w, state.b}, {});
  ASSERT_FALSE(saved);
  EXPECT_EQ(saved.error().code, Code::kInvalid);
  EXPECT_NE(saved.error().message.find("norm.weight"), std::string::npos);
  const auto loaded = LoadLastGood();
  ASSERT_TRUE(loaded);
  ExpectIs(*loaded, 1);
}

TEST_F(CheckpointTest, RefusesAnotherRootGridOrName) {
  const State state = MakeState(layout_, 1);
  const Hash wrong = crypto::Sha256(AsBytes("wrong"));
  EXPECT_EQ(checkpoints_.Save({1, {}, wrong}, layout_, {state.w, state.b}, {}).error().code,
            Code::kCorrupt);
  const std::vector<ExtraWriter> bad{{"../up", [](ByteSink&) { return Status(); }}};
  EXPECT_EQ(checkpoints_.Save({1, {}, {}}, layout_, {state.w, state.b}, bad).error().code,
            Code::kInvalid);
  ASSERT_TRUE(Save(1));
  StateLayout other = layout_;
  other.grid = wrong;
  EXPECT_EQ(checkpoints_.OpenState(1, other).error().code, Code::kConflict);
}

TEST(Manifest, AcceptsOnlyItsOwnText) {
  const Manifest manifest{7,
                          crypto::Sha256(AsBytes("r")),
                          crypto::Sha256(AsBytes("s")),
                          {},
                          {{"state.bin", 12, crypto::Sha256(AsBytes("f"))}}};
  const std::string text = ToJson(manifest);
  const auto parsed = FromJson(text);
  ASSERT_TRUE(parsed) << parsed.error().ToString();
  EXPECT_EQ(*parsed, manifest);
  EXPECT_FALSE(FromJson(text + " "));
  for (const std::string name :
       {"../x", "extra/.bin", "extra/A.bin", "/state.bin", "extra/a/b.bin"}) {
    Manifest strange = manifest;
    strange.files[0].name = name;
    EXPECT_FALSE(FromJson(ToJson(strange))) << name;
  }
  std::string newer = text;
  newer.replace(newer.find("\"schema\": 1"), 11, "\"schema\": 2");
  EXPECT_EQ(FromJson(newer).error().code, Code::kInvalid);
}

}  // namespace
}  // namespace loom::store
