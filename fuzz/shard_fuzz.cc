// A token shard from a peer or a disk: what is accepted has its hash, its size and only ids of the
// vocabulary.
#include "crypto/hash.h"
#include "data/shards.h"
#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace loom;
  const auto header = data::ParseShard(fuzz::View(data, size), 256);
  if (!header.ok()) {
    fuzz::ExpectGoodError(header.error());
    return 0;
  }
  fuzz::Expect(header.value().vocab == 256, "the vocabulary is the one asked for");
  fuzz::Expect(size == data::kShardHeaderBytes + header.value().PayloadBytes(),
               "the file is exactly header and ids");
  fuzz::Accept();
  return 0;
}

void loom::fuzz::MakeSeeds(Seeds& seeds) {
  for (const std::size_t width : {2U, 4U}) {
    Script ids;
    for (const std::uint32_t id : {0U, 1U, 97U, 255U}) {
      for (std::size_t i = 0; i < width; ++i) ids.Byte(id >> (8 * i));
    }
    Script shard;
    shard.Raw(AsBytes(std::string_view("LOOMTOK\0", 8)));
    shard.Int(std::uint32_t{1}).Int(static_cast<std::uint32_t>(width)).Int(std::uint64_t{4});
    shard.Int(std::uint32_t{256}).Int(std::uint32_t{0});
    shard.Raw(crypto::Sha256(ids.bytes()).View()).Raw(ids.bytes());
    seeds.Add(fmt::format("ids-of-{}-bytes", width), shard);
    Script marked_ids(ids);
    marked_ids.Byte(0b1010);
    Script marked;
    marked.Raw(AsBytes(std::string_view("LOOMTOK\0", 8)));
    marked.Int(std::uint32_t{2}).Int(static_cast<std::uint32_t>(width)).Int(std::uint64_t{4});
    marked.Int(std::uint32_t{256}).Int(data::kLossBits);
    marked.Raw(crypto::Sha256(marked_ids.bytes()).View()).Raw(marked_ids.bytes());
    seeds.Add(fmt::format("marked-ids-of-{}-bytes", width), marked);
  }
}
