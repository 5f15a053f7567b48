// A model folder from anywhere: configuration, index, weights and tokenizer. What is imported has
// the shapes that its configuration names. Four files, each with a u16 length.
#include "train/hf_folder.h"

#include <fmt/format.h>

#include "base/file.h"
#include "fuzz/fuzz.h"
#include "fuzz/harness/temp_folder.h"
#include "model/family.h"

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

namespace {

/// The files of one small model.
struct Sample {
  loom::Bytes config, weights, tokenizer;
};

Sample Export(const loom::model::ModelConfig& config, loom::tensor::DType dtype) {
  using namespace loom;
  const fuzz::TempFolder folder;
  const auto grid = agreed::TileGrid::Make(model::ParameterShapes(config), 256).value();
  const agreed::FlatBuffer weights(grid.flat_size());
  const std::string_view texts[] = {"abcdefgh"};
  train::HfTexts with;
  with.files.emplace("tokenizer.json", data::Tokenizer::TrainChars(texts).value()->ToJson());
  const auto views = train::WeightViews(grid, weights.span());
  const Status done = train::ExportHfFolder(
      folder.Path("model"), {.config = config, .tensors = views, .texts = with, .dtype = dtype});
  fuzz::Expect(done.ok(), "a seed can be exported");
  const auto read = [&](std::string_view name) {
    const auto text = ReadFile(folder.Path("model/" + std::string(name)), 1 << 20);
    return text.ok() ? ToBytes(AsBytes(text.value())) : Bytes{};
  };
  return {read("config.json"), read("model.safetensors"), read("tokenizer.json")};
}

}  // namespace

void loom::fuzz::MakeSeeds(Seeds& seeds) {
  for (const model::FamilyTraits& family : model::Families()) {
    model::ModelConfig config;
    config.family = family.family;
    config.vocab = 8;
    config.layers = 1;
    config.width = 8;
    config.heads = 2;
    config.kv_heads = family.rotary ? 1 : 2;
    config.head_dim = 4;
    config.ffn = 16;
    config.context = 16;
    config.tie_embeddings = family.family != model::Family::kMistral;
    for (const tensor::DType dtype : {tensor::DType::kF32, tensor::DType::kBF16}) {
      const Sample sample = Export(config, dtype);
      const auto script = [&](ByteView index) {
        return Script()
            .Chunk(sample.config)
            .Chunk(sample.weights)
            .Chunk(index)
            .Chunk(sample.tokenizer);
      };
      const std::string name = fmt::format("{}-{}", family.name, tensor::DTypeName(dtype));
      seeds.Add(name, script({}));
      const std::string index =
          fmt::format(R"({{"weight_map": {{"{}": "model.safetensors"}}}})", family.embedding);
      seeds.Add(name + "-index", script(AsBytes(index)));
      const std::string_view outside = R"({"weight_map": {"a": "../model.safetensors"}})";
      seeds.AddRefused(name + "-outside", script(AsBytes(outside)).bytes());
    }
  }
}
