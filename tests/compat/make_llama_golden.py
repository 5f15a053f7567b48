"""Writes src/model/llama_golden.inc: losses, logits and gradients of tests/compat/llama_reference.py
on three tiny models whose weights are a formula that model_test.cc repeats.

    python3 tests/compat/make_llama_golden.py > src/model/llama_golden.inc
"""
import torch

from llama_reference import Config, Llama, loss

CASES = {  # name: config, weight of the z-loss
    "tied, grouped attention": (Config(19, 2, 16, 4, 2, 4, 24, 8), 0),
    "untied, full attention, biases, linear rope": (Config(
        23, 2, 24, 4, 4, 8, 32, 8, tie=False, attention_bias=True, mlp_bias=True,
        rope_theta=500.0, rope_scaling={"kind": "linear", "factor": 2.0}), 0),
    "tied, one key/value head, llama3 rope": (Config(
        17, 3, 8, 2, 1, 8, 20, 8, rope_theta=100.0, norm_eps=1e-3,
        rope_scaling={"kind": "llama3", "factor": 4.0, "low": 1.0, "high": 4.0,
                      "original_context": 64}), 0),
    "tied, grouped attention, z-loss": (Config(19, 2, 16, 4, 2, 4, 24, 8), 0.0625),
}


def hashed(n, salt):
    """n numbers in [-1, 1), each a pure function of index and salt, exact in fp32."""
    i = torch.arange(n, dtype=torch.int64)
    h = ((i + 1) * 2654435761 + salt * 40503) % 2**32
    h = (h ^ (h >> 15)) * 2246822519 % 2**32
    h = (h ^ (h >> 13)) % 2**32
    return ((h >> 9).double() / 2**22 - 1.0).float()


def fill(model):
    for salt, (name, p) in enumerate(model.named_parameters()):
        u = hashed(p.numel(), len(name) + 31 * sum(map(ord, name))).view(p.shape)
        if p.dim() == 2:
            u = u * 0.5
        elif name.endswith("norm.weight"):
            u = 1.0 + 0.5 * u
        with torch.no_grad():
            p.copy_(u)


def numbers(values):
    return "{" + ", ".join(f"{v:.9g}" for v in values) + "}"


torch.manual_seed(0)
print("// Made by tests/compat/make_llama_golden.py with PyTorch", torch.__version__.split("+")[0])
for name, (c, z_loss) in CASES.items():
    model = Llama(c)
    fill(model)
    ids = (hashed(2 * 9, 7).double() * 0.5 + 0.5).mul(c.vocab).floor().long().view(2, 9)
    inputs, targets = ids[:, :-1].clone(), ids[:, 1:].clone()
    targets[0, 2] = targets[1, 5] = targets[1, 6] = -100
    value = loss(model, inputs, targets)
    counted = (targets != -100).flatten()
    z = torch.logsumexp(model(inputs).flatten(0, 1), 1)[counted].square().mean()
    (value + z_loss * z).backward()
    logits = model(inputs)[0].detach().flatten()
    print(f'{{"{name}", {z_loss}, {value.item():.9g},')
    print(f" {numbers(logits.tolist())},")
    print(" {")
    for pname, p in sorted(dict(model.named_parameters()).items()):
        g = p.grad.flatten()
        probe = [g.double().norm().item(), g.double().sum().item(), g[0].item(), g[g.numel() // 2].item()]
        print(f'  {{"{pname}", {numbers(probe)}}},')
    print(" }},")
