// A LoRA adapter from anywhere, for one small network. Two files, each with a u16 length.
#include <fmt/format.h>

#include "base/file.h"
#include "fuzz/fuzz.h"
#include "fuzz/harness/temp_folder.h"
#include "train/hf_adapter.h"

namespace {

loom::model::ModelConfig Network() {
  loom::model::ModelConfig config;
  config.vocab = 8, config.layers = 1, config.width = 8, config.heads = 2, config.kv_heads = 1;
  config.head_dim = 4, config.ffn = 16, config.context = 16;
  return config;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace loom;
  static const fuzz::TempFolder folder;
  fuzz::Input in(data, size);
  folder.Put("adapter_config.json", in.Chunk());
  folder.Put("adapter_model.safetensors", in.Chunk());
  const auto adapter = train::ReadAdapter(folder.path(), Network());
  if (!adapter.ok()) {
    fuzz::ExpectGoodError(adapter.error());
    return 0;
  }
  fuzz::Expect(adapter->grid.tensors() == model::ParameterShapes(adapter->config),
               "the adapter has the pairs that its configuration names");
  const auto grid = model::MakeGrid(Network()).value();
  agreed::FlatBuffer network(grid.flat_size());
  fuzz::Expect(
      train::MergeAdapter(adapter->config, adapter->grid, adapter->weights.span(), network.span())
          .ok(),
      "what was read can be merged");
  fuzz::Accept();
  return 0;
}

void loom::fuzz::MakeSeeds(Seeds& seeds) {
  for (const std::uint32_t rank : {1U, 3U}) {
    model::ModelConfig config = Network();
    config.tuning = {{}, rank, 2, {"q_proj", "down_proj"}};
    const auto grid = model::MakeGrid(config).value();
    const agreed::FlatBuffer weights(grid.flat_size());
    const TempFolder folder;
    for (const tensor::DType dtype : {tensor::DType::kF32, tensor::DType::kBF16}) {
      const Status done = train::ExportAdapter(folder.Path("adapter"),
                                               {config, grid, weights.span(), "base", dtype});
      Expect(done.ok(), "a seed can be exported");
      Script script;
      for (const char* name :
           {"adapter/adapter_config.json", "adapter/adapter_model.safetensors"}) {
        const auto text = ReadFile(folder.Path(name), 1 << 20).value();
        script.Chunk(AsBytes(text));
      }
      seeds.Add(fmt::format("rank-{}-{}", rank, tensor::DTypeName(dtype)), script);
    }
  }
}
