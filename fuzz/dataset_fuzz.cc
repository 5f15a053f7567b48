// A folder of training data as a disk or a copy may give it back: what opens has only ids of its
// tokenizer. The first byte says whether the manifest gets the right hash of the tokenizer; then
// dataset.json, tokenizer.json and one shard of each split, each with a u16 length.
#include "data/dataset.h"

#include "base/json.h"
#include "crypto/hash.h"
#include "fuzz/fuzz.h"
#include "fuzz/harness/temp_folder.h"

namespace loom::fuzz {
namespace {

std::string WithHash(std::string_view text, ByteView tokenizer) {
  auto manifest = json::Parse(text);
  auto* object = manifest ? std::get_if<json::Object>(&manifest->data) : nullptr;
  if (object == nullptr) return std::string(text);
  for (auto& [key, value] : *object) {
    if (key == "tokenizer_sha256") value = crypto::Sha256(tokenizer).Hex();
  }
  return json::Dump(*manifest);
}

void Look(const data::TokenStream& stream, std::uint32_t vocab) {
  Expect(stream.CountTargets(0, stream.size()) == stream.num_targets(), "targets are counted");
  for (std::uint64_t i = 0; i < stream.size(); ++i) {
    const std::int32_t id = stream.At(i);
    Expect(id >= 0 && static_cast<std::uint32_t>(id) < vocab, "every id is of the vocabulary");
  }
}

}  // namespace
}  // namespace loom::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace loom;
  static const fuzz::TempFolder folder;
  fuzz::Input in(data, size);
  const bool right = in.Byte() % 2 == 1;
  const std::string_view manifest = AsText(in.Chunk());
  const ByteView tokenizer = in.Chunk();
  folder.Put("dataset.json",
             AsBytes(right ? fuzz::WithHash(manifest, tokenizer) : std::string(manifest)));
  folder.Put("tokenizer.json", tokenizer);
  folder.Put("train-00000.tokens", in.Chunk());
  folder.Put("val-00000.tokens", in.Chunk());
  const auto dataset = data::OpenDataset(folder.path());
  if (!dataset.ok()) {
    fuzz::ExpectGoodError(dataset.error());
    return 0;
  }
  fuzz::Look(dataset.value().train, dataset.value().tokenizer->vocab_size());
  fuzz::Look(dataset.value().val, dataset.value().tokenizer->vocab_size());
  fuzz::Accept();
  return 0;
}

void loom::fuzz::MakeSeeds(Seeds& seeds) {
  const TempFolder corpus, built;
  corpus.Put("a.txt", AsBytes("It is a truth universally acknowledged, that a single man."));
  corpus.Put("b.jsonl", AsBytes("{\"prompt\": \"It is \", \"completion\": \"a truth\"}\n"));
  for (const std::string tokenizer : {"chars", "bytes"}) {
    data::DataConfig config;
    config.paths = {corpus.Path(tokenizer == "chars" ? "a.txt" : "b.jsonl")};
    if (tokenizer == "bytes") config.weights = {1};
    config.tokenizer = tokenizer;
    config.val_fraction = 0.25;
    Expect(data::BuildDataset(config, built.path()).ok(), "a seed can be built");
    const auto read = [&](std::string_view name) {
      return ToBytes(AsBytes(ReadFile(built.Path(name), 1 << 20).value()));
    };
    seeds.Add(tokenizer, Script()
                             .Byte(1)
                             .Chunk(read("dataset.json"))
                             .Chunk(read("tokenizer.json"))
                             .Chunk(read("train-00000.tokens"))
                             .Chunk(read("val-00000.tokens")));
  }
}
