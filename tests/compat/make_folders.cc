// Writes model folders for the Python side of the compatibility tests: one for each combination of
// tied or untied embeddings and grouped or full attention, with every parameter redrawn (on fresh
// models biases are 0 and norm weights 1, so a test of their logits proves little).
//   make_folders OUT            writes OUT/{tied,untied}-{grouped,full}
//   make_folders --tokenize TOKENIZER_JSON FILE   prints the ids of a text, separated by spaces
//   make_folders --import FOLDER   writes the flat fp32 weights as FOLDER/loom_weights.bin
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "agreed/random.h"
#include "base/file.h"
#include "data/tokenizer.h"
#include "model/config.h"
#include "train/hf_folder.h"

namespace loom {
namespace {

constexpr std::uint64_t kSeed = 20240;

model::ModelConfig Config(bool tied, bool grouped, std::uint32_t vocab) {
  model::ModelConfig c;
  c.vocab = vocab;
  c.layers = 3;
  c.width = 48;
  c.heads = 6;
  c.kv_heads = grouped ? 2 : 6;
  c.head_dim = 8;
  c.ffn = 80;
  c.context = 96;
  c.rope_theta = grouped ? 500000.0F : 10000.0F;
  c.tie_embeddings = tied;
  c.attention_bias = tied && grouped;
  c.mlp_bias = tied && grouped;
  return c;
}

/// Matrices N(0, 4/fan_in), biases N(0, 0.5^2), norm weights U(0.5, 1.5).
void Redraw(const agreed::TileGrid& grid, std::span<float> weights) {
  for (std::size_t t = 0; t < grid.tensors().size(); ++t) {
    const agreed::TensorShape& tensor = grid.tensors()[t];
    const std::span<float> out = weights.subspan(grid.TensorOffset(t), tensor.Numel());
    if (tensor.shape.size() == 2) {
      const auto fan_in = static_cast<float>(tensor.shape[1]);
      agreed::FillNormal(out, kSeed, t, 2.0F / std::sqrt(fan_in));
    } else if (tensor.name.ends_with("bias")) {
      agreed::FillNormal(out, kSeed, t, 0.5F);
    } else {
      const agreed::Philox philox(kSeed, t);
      for (std::size_t i = 0; i < out.size(); ++i) {
        out[i] = static_cast<float>(0.5 + philox.Uniform(i));
      }
    }
  }
}

Status WriteFolder(const std::string& folder, bool tied, bool grouped) {
  const std::array<std::string_view, 1> texts{
      "The quick brown fox, 'jumps' over\n\tthe lazy dog! "
      "é ß 漢字 😀 \u2029 \u00ad \ufeff \u0301"};
  std::unique_ptr<data::Tokenizer> tokenizer = data::Tokenizer::Bytes();
  if (!grouped) {
    LOOM_ASSIGN(tokenizer, data::Tokenizer::TrainChars(texts));
  }
  const model::ModelConfig config = Config(tied, grouped, tokenizer->vocab_size());
  LOOM_ASSIGN(const agreed::TileGrid grid, model::MakeGrid(config));
  LOOM_ASSIGN(agreed::FlatBuffer weights, agreed::FlatBuffer::Allocate(grid.flat_size()));
  Redraw(grid, weights.span());
  return train::ExportHfFolder(folder, config, grid, weights.span(), *tokenizer);
}

Status Tokenize(const std::string& tokenizer_json, const std::string& text_file) {
  LOOM_ASSIGN(const std::string json, ReadFile(tokenizer_json, data::Tokenizer::kMaxJsonBytes));
  LOOM_ASSIGN(const std::string text, ReadFile(text_file, 64 << 20));
  LOOM_ASSIGN(const auto tokenizer, data::Tokenizer::FromJson(AsBytes(json)));
  LOOM_ASSIGN(const auto ids, tokenizer->Encode(text));
  fmt::print("{}\n", fmt::join(ids, " "));
  return {};
}

Status Run(const std::vector<std::string>& args) {
  if (args.size() == 3 && args[0] == "--tokenize") return Tokenize(args[1], args[2]);
  if (args.size() == 2 && args[0] == "--import") {
    LOOM_ASSIGN(const auto model, train::ImportHfFolder(args[1]));
    return WriteFileAtomic(args[1] + "/loom_weights.bin", std::as_bytes(model.weights.span()));
  }
  if (args.size() != 1) return MakeError(Code::kInvalid, "usage: make_folders OUT");
  for (const bool tied : {true, false}) {
    for (const bool grouped : {true, false}) {
      LOOM_RETURN_IF_ERROR(WriteFolder(
          fmt::format("{}/{}-{}", args[0], tied ? "tied" : "untied", grouped ? "grouped" : "full"),
          tied, grouped));
    }
  }
  return {};
}

}  // namespace
}  // namespace loom

int main(int argc, char** argv) {
  const loom::Status done = loom::Run({argv + 1, argv + argc});
  if (done) return 0;
  fmt::print(stderr, "{}\n", done.error().ToString());
  return 1;
}
