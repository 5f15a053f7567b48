// A model folder from anywhere: configuration, index, weights and tokenizer. What is imported has
// the shapes that its configuration names. Four files, each with a u16 length.
#include "train/hf_folder.h"

#include "base/file.h"
#include "fuzz/fuzz.h"
#include "fuzz/harness/temp_folder.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace loom;
  static const fuzz::TempFolder folder;
  fuzz::Input in(data, size);
  folder.Put("config.json", in.Chunk());
  folder.Put("model.safetensors", in.Chunk());
  folder.Put("model.safetensors.index.json", in.Chunk());
  folder.Put("tokenizer.json", in.Chunk());
  const auto model = train::ImportHfFolder(folder.path());
  if (!model.ok()) {
    fuzz::ExpectGoodError(model.error());
    return 0;
  }
  fuzz::Expect(model.value().weights.size() == model.value().grid.flat_size(),
               "the weights fill the grid");
  fuzz::Accept();
  return 0;
}

void loom::fuzz::MakeSeeds(Seeds& seeds) {
  const TempFolder folder;
  model::ModelConfig config;
  config.vocab = 8;
  config.layers = 1;
  config.width = 8;
  config.heads = 2;
  config.kv_heads = 1;
  config.head_dim = 4;
  config.ffn = 16;
  config.context = 16;
  const auto grid = agreed::TileGrid::Make(model::ParameterShapes(config), 256).value();
  const agreed::FlatBuffer weights(grid.flat_size());
  const std::string_view texts[] = {"abcdefgh"};
  const auto tokenizer = data::Tokenizer::TrainChars(texts).value();
  Expect(train::ExportHfFolder(folder.Path("model"), config, grid, weights.span(), *tokenizer).ok(),
         "a seed can be exported");
  const auto read = [&](std::string_view name) {
    const auto text = ReadFile(folder.Path("model/" + std::string(name)), 1 << 20);
    return text.ok() ? ToBytes(AsBytes(text.value())) : Bytes{};
  };
  seeds.Add("exported", Script()
                            .Chunk(read("config.json"))
                            .Chunk(read("model.safetensors"))
                            .Chunk({})
                            .Chunk(read("tokenizer.json")));
  const std::string_view index = R"({"weight_map": {"model.norm.weight": "model.safetensors"}})";
  seeds.AddRefused("index", Script()
                                .Chunk(read("config.json"))
                                .Chunk({})
                                .Chunk(AsBytes(index))
                                .Chunk(read("tokenizer.json"))
                                .bytes());
}
