// A token shard from a peer or a disk: what is accepted has its hash, its size and only ids of the
// vocabulary.
#include "data/shards.h"
#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace loom;
  const auto header = data::ParseShard(fuzz::View(data, size), 256);
  if (!header.ok()) return 0;
  fuzz::Expect(header.value().vocab == 256, "the vocabulary is the one asked for");
  fuzz::Expect(size == data::kShardHeaderBytes + header.value().count * header.value().id_bytes,
               "the file is exactly header and ids");
  return 0;
}
