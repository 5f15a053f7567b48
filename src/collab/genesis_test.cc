// The genesis record's contents: what was written is read, a run without a model to start from is
// written as before there was such a thing, and nothing is believed before it is capped.
#include <gtest/gtest.h>

#include "collab/record.h"
#include "crypto/hash.h"

namespace loom::collab {
namespace {

Genesis Plain() {
  Genesis genesis;
  genesis.spec = ToBytes(AsBytes("spec"));
  genesis.owners.resize(2);
  genesis.tokenizer = {crypto::Sha256(AsBytes("t")), 7};
  genesis.train_shards = {{crypto::Sha256(AsBytes("a")), 100}};
  genesis.dataset = ToBytes(AsBytes("{}"));
  genesis.created = 5;
  genesis.name = "run";
  return genesis;
}

Genesis Started() {
  Genesis genesis = Plain();
  genesis.start = {{"config.json", {crypto::Sha256(AsBytes("c")), 600}},
                   {"model.safetensors", {crypto::Sha256(AsBytes("w")), std::uint64_t{1} << 40}}};
  return genesis;
}

TEST(Genesis, ComesBack) {
  for (const Genesis& genesis : {Plain(), Started()}) {
    const Bytes encoded = genesis.Encode();
    const auto back = Genesis::Decode(encoded);
    ASSERT_TRUE(back.ok()) << back.error().ToString();
    EXPECT_EQ(back->start, genesis.start);
    EXPECT_EQ(back->name, "run");
    EXPECT_EQ(back->Encode(), encoded);
  }
}

TEST(Genesis, OfARunWithoutAModelIsWhatItWas) {
  const Bytes plain = Plain().Encode();
  const Bytes started = Started().Encode();
  ASSERT_LT(plain.size(), started.size());
  EXPECT_TRUE(std::equal(plain.begin(), plain.end(), started.begin()));
}

TEST(Genesis, EveryCutAndEveryCountBeyondTheCapIsRefused) {
  const Bytes plain = Plain().Encode();
  const Bytes started = Started().Encode();
  for (std::size_t size = 0; size < started.size(); ++size) {
    const bool whole = size == plain.size();  // without its last part it is another run
    EXPECT_EQ(Genesis::Decode(ByteView(started).first(size)).ok(), whole) << size;
  }
  const auto with_count = [&](std::uint8_t low, std::uint8_t high) {
    Bytes bytes = started;
    bytes[plain.size()] = std::byte{low};
    bytes[plain.size() + 3] = std::byte{high};
    return Genesis::Decode(bytes).ok();
  };
  EXPECT_TRUE(with_count(2, 0));
  EXPECT_FALSE(with_count(0, 0));
  EXPECT_FALSE(with_count(3, 0));
  EXPECT_FALSE(with_count(2, 0xff));
  Bytes none = plain;
  none.resize(plain.size() + 4);
  EXPECT_FALSE(Genesis::Decode(none).ok()) << "no model is no count at all";

  Genesis many = Plain();
  many.start.assign(kMaxStartFiles + 1, {"a", {}});
  EXPECT_FALSE(Genesis::Decode(many.Encode()).ok());
  Genesis wordy = Plain();
  wordy.start = {{std::string(kMaxStartName + 1, 'a'), {}}};
  EXPECT_FALSE(Genesis::Decode(wordy.Encode()).ok());
}

}  // namespace
}  // namespace loom::collab
