"""A Llama in plain PyTorch, written to be read beside src/model/llama.cc and independent of it.

Used by make_llama_golden.py (numbers that model_test.cc compares with) and by bench_llama.py (the
eager PyTorch loop that Loom's speed is measured against). Needs torch only.
"""
import math
from dataclasses import dataclass, field

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    vocab: int
    layers: int
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    context: int
    rope_theta: float = 10000.0
    norm_eps: float = 1e-5
    tie: bool = True
    attention_bias: bool = False
    mlp_bias: bool = False
    rope_scaling: dict = field(default_factory=dict)


def frequencies(c: Config) -> torch.Tensor:
    f = 1.0 / (c.rope_theta ** (torch.arange(0, c.head_dim, 2).float() / c.head_dim))
    s = c.rope_scaling
    if not s:
        return f
    if s["kind"] == "linear":
        return f / s["factor"]
    wave = 2 * math.pi / f
    smooth = (s["original_context"] / wave - s["low"]) / (s["high"] - s["low"])
    mid = (1 - smooth) * f / s["factor"] + smooth * f
    out = torch.where(wave > s["original_context"] / s["low"], f / s["factor"], f)
    is_mid = (wave <= s["original_context"] / s["low"]) & (wave >= s["original_context"] / s["high"])
    return torch.where(is_mid, mid, out)


class RmsNorm(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x):
        h = x.float()
        h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * h.to(x.dtype)


class Attention(nn.Module):
    def __init__(self, c: Config):
        super().__init__()
        self.c = c
        bias = c.attention_bias
        self.q_proj = nn.Linear(c.width, c.heads * c.head_dim, bias=bias)
        self.k_proj = nn.Linear(c.width, c.kv_heads * c.head_dim, bias=bias)
        self.v_proj = nn.Linear(c.width, c.kv_heads * c.head_dim, bias=bias)
        self.o_proj = nn.Linear(c.heads * c.head_dim, c.width, bias=bias)

    def forward(self, x, cos, sin):
        c, (B, T, _) = self.c, x.shape
        q = self.q_proj(x).view(B, T, c.heads, c.head_dim).transpose(1, 2)
        k = self.k_proj(x).view(B, T, c.kv_heads, c.head_dim).transpose(1, 2)
        v = self.v_proj(x).view(B, T, c.kv_heads, c.head_dim).transpose(1, 2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        if c.kv_heads != c.heads:
            k = k.repeat_interleave(c.heads // c.kv_heads, dim=1)
            v = v.repeat_interleave(c.heads // c.kv_heads, dim=1)
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(o.transpose(1, 2).reshape(B, T, -1))


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-b, a), dim=-1) * sin


class Mlp(nn.Module):
    def __init__(self, c: Config):
        super().__init__()
        self.gate_proj = nn.Linear(c.width, c.ffn, bias=c.mlp_bias)
        self.up_proj = nn.Linear(c.width, c.ffn, bias=c.mlp_bias)
        self.down_proj = nn.Linear(c.ffn, c.width, bias=c.mlp_bias)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, c: Config):
        super().__init__()
        self.self_attn, self.mlp = Attention(c), Mlp(c)
        self.input_layernorm = RmsNorm(c.width, c.norm_eps)
        self.post_attention_layernorm = RmsNorm(c.width, c.norm_eps)

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Inner(nn.Module):
    def __init__(self, c: Config):
        super().__init__()
        self.embed_tokens = nn.Embedding(c.vocab, c.width)
        self.layers = nn.ModuleList(Layer(c) for _ in range(c.layers))
        self.norm = RmsNorm(c.width, c.norm_eps)


class Llama(nn.Module):
    def __init__(self, c: Config):
        super().__init__()
        self.c, self.model = c, Inner(c)
        self.lm_head = nn.Linear(c.width, c.vocab, bias=False)
        if c.tie:
            self.lm_head.weight = self.model.embed_tokens.weight
        angle = torch.outer(torch.arange(c.context).float(), frequencies(c))
        angle = torch.cat((angle, angle), dim=-1)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, ids):
        x = self.model.embed_tokens(ids)
        cos, sin = self.cos[: ids.shape[1]], self.sin[: ids.shape[1]]
        for layer in self.model.layers:
            x = layer(x, cos, sin)
        return self.lm_head(self.model.norm(x))


def loss(model, ids, targets):
    logits = model(ids).float()
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100)
