"""Small models of every family that Loom knows, with every parameter redrawn, and the mistakes that
a comparison of logits has to notice (on fresh models biases are 0 and norm weights 1, so that equal
logits prove little)."""

import torch
from transformers import (GPT2Config, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config,
                          AutoModelForCausalLM)

VOCAB = 256  # the bytes tokenizer's
CONTEXT = 288
EPS = 1e-5
SEED = 7


def rotary(kind, heads, kv_heads, head_dim, width, **more):
    rope = more.pop("rope", {"rope_type": "default", "rope_theta": 20000.0})
    return kind(vocab_size=VOCAB, hidden_size=width, intermediate_size=52, num_hidden_layers=3,
                num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=head_dim,
                max_position_embeddings=CONTEXT, rms_norm_eps=EPS, rope_parameters=rope,
                bos_token_id=None, eos_token_id=None, pad_token_id=None, **more)


LINEAR = {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32, "rope_theta": 10000.0}


def gpt2(tied):
    return GPT2Config(vocab_size=VOCAB, n_positions=CONTEXT, n_embd=36, n_layer=3, n_head=3,
                      layer_norm_epsilon=EPS, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
                      bos_token_id=None, eos_token_id=None, tie_word_embeddings=tied)


# Odd head counts, sizes without a power of two, grouped and full attention.
CASES = {
    "llama": lambda tied: rotary(LlamaConfig, 3, 1, 12, 36, tie_word_embeddings=tied),
    "llama-biased": lambda tied: rotary(LlamaConfig, 3, 1, 12, 36, tie_word_embeddings=tied,
                                        attention_bias=True, mlp_bias=True),
    "llama-linear": lambda tied: rotary(LlamaConfig, 5, 5, 8, 40, tie_word_embeddings=tied,
                                        rope=LINEAR),
    "llama-llama3": lambda tied: rotary(LlamaConfig, 4, 2, 16, 48, tie_word_embeddings=tied,
                                        rope=LLAMA3),
    "mistral": lambda tied: rotary(MistralConfig, 3, 1, 16, 48, tie_word_embeddings=tied,
                                   sliding_window=None),
    "mistral-window": lambda tied: rotary(MistralConfig, 3, 3, 16, 48, tie_word_embeddings=tied,
                                          sliding_window=11),
    "qwen2": lambda tied: rotary(Qwen2Config, 5, 1, None, 60, tie_word_embeddings=tied),
    "qwen3": lambda tied: rotary(Qwen3Config, 3, 1, 32, 48, tie_word_embeddings=tied),
    "qwen3-biased": lambda tied: rotary(Qwen3Config, 3, 1, 10, 44, tie_word_embeddings=tied,
                                        attention_bias=True),
    "gpt2": gpt2,
}


def make(name, tied):
    """The model of a case: matrices N(0, 4/fan_in), biases N(0, 0.5^2), norm weights U(0.5, 1.5)."""
    config = CASES[name](tied)
    if name == "qwen2":
        del config.head_dim
    model = AutoModelForCausalLM.from_config(config).eval()
    generator = torch.Generator().manual_seed(SEED)
    with torch.no_grad():
        for key, p in model.named_parameters():
            if p.dim() == 2:
                input_major = name == "gpt2" and ".h." in key
                fan_in = p.shape[0] if input_major else p.shape[1]
                p.normal_(0, 2 / fan_in**0.5, generator=generator)
            elif key.endswith("bias"):
                p.normal_(0, 0.5, generator=generator)
            else:
                p.uniform_(0.5, 1.5, generator=generator)
    assert tied == (model.get_input_embeddings().weight is model.get_output_embeddings().weight)
    return model


def drop_bias(model, ending):
    def change():
        for key, p in model.named_parameters():
            if key.endswith(ending):
                p.zero_()
    return change


def ignore_norm(model, ending):
    def change():
        for key, p in model.named_parameters():
            if key.endswith(ending):
                p.fill_(1)
    return change


def set_eps(model, value):
    def change():
        for module in model.modules():
            for name in ("variance_epsilon", "eps"):
                if isinstance(getattr(module, name, None), float):
                    setattr(module, name, value)
    return change


def mistakes(model):
    """Name and change of each mistake that the model of this case can be read with."""
    out = {}
    for key, p in model.named_parameters():
        if (".layers." in key or ".h." in key) and ".0." not in key:
            continue
        ending = key.split(".0.", 1)[-1] if ".0." in key else key
        if key.endswith("bias"):
            out["dropped " + ending] = drop_bias(model, ending)
        elif p.dim() == 1:
            out["ignored " + ending] = ignore_norm(model, ending)
    out["eps"] = set_eps(model, EPS / 10)
    kind = model.config.model_type
    if kind == "gpt2":
        def erf_gelu():
            for block in model.transformer.h:
                block.mlp.act = torch.nn.GELU()
        out["GELU of the other kind"] = erf_gelu
    else:
        plain = dict(model.config.rope_parameters)

        def change_rope(**new):
            def change():
                rope = model.model.rotary_emb
                dim = getattr(model.config, "head_dim", None)
                dim = dim or model.config.hidden_size // model.config.num_attention_heads
                theta = new.get("theta", plain["rope_theta"])
                rope.inv_freq = 1.0 / theta ** (torch.arange(0, dim, 2).float() / dim)
            return change
        out["theta"] = change_rope(theta=plain["rope_theta"] * 2)
        if plain["rope_type"] != "default":
            out["rope scaling ignored"] = change_rope()
        if getattr(model.config, "sliding_window", None):
            def all_tokens():
                model.config.sliding_window = None
                for layer in model.model.layers:
                    layer.self_attn.sliding_window = None
            out["window ignored"] = all_tokens
    return out
