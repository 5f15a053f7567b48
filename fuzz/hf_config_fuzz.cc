// config.json of a Hugging Face folder: what is accepted is written back in a form that means the
// same model.
#include "fuzz/fuzz.h"
#include "model/family.h"
#include "train/hf_folder.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace loom;
  const auto config = train::ParseHfConfig(fuzz::Text(data, size));
  if (!config.ok()) {
    fuzz::ExpectGoodError(config.error());
    return 0;
  }
  const std::string written = train::HfConfigJson(config.value());
  const auto again = train::ParseHfConfig(written);
  fuzz::Expect(again.ok(), "what is written can be read", again.ok() ? "" : again.error().message);
  fuzz::Expect(train::HfConfigJson(again.value()) == written, "writing is stable");
  fuzz::Accept();
  return 0;
}

void loom::fuzz::MakeSeeds(Seeds& seeds) {
  seeds.Add("nano.json", train::HfConfigJson(model::Preset("nano").value()));
  for (const model::FamilyTraits& family : model::Families()) {
    model::ModelConfig config = model::Preset("nano").value();
    config.family = family.family;
    config.attention_bias = family.attention_bias;
    config.mlp_bias = family.mlp_bias;
    config.window = family.window ? 32 : 0;
    seeds.Add(std::string(family.name) + ".json", train::HfConfigJson(config));
  }
  seeds.Add("gpt2-published.json", R"({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"],
 "vocab_size": 50257, "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12,
 "n_positions": 1024, "activation_function": "gelu_new", "attn_pdrop": 0.1, "resid_pdrop": 0.1,
 "layer_norm_epsilon": 1e-05, "initializer_range": 0.02, "task_specific_params": {}})");
  seeds.AddRefused("yarn.json", R"({"model_type": "qwen2", "vocab_size": 96, "hidden_size": 64,
 "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
 "rope_scaling": {"rope_type": "yarn", "factor": 4.0}})");
  seeds.Add("llama3.json", R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"],
 "vocab_size": 96, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
 "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128,
 "rms_norm_eps": 1e-5, "hidden_act": "silu", "rope_theta": 500000.0, "tie_word_embeddings": true,
 "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
 "high_freq_factor": 4.0, "original_max_position_embeddings": 64}})");
}
