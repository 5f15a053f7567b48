"""Speed of eager PyTorch on the "nano" preset: tokens per CPU second of forward + backward + AdamW.

Prints one line per repetition; bench/model_speed prints the same for Loom. Run them in turn:
    python3 tests/compat/bench_llama.py [steps] [repetitions]
"""
import sys
import time

import torch

from llama_reference import Config, Llama, loss

steps, repetitions = (int(a) for a in (sys.argv[1:] + ["100", "1"])[:2])
torch.set_num_threads(1)
torch.manual_seed(0)
B, T = 12, 64
model = Llama(Config(256, 4, 128, 4, 4, 32, 344, 64))
decay = [p for p in model.parameters() if p.dim() >= 2]
rest = [p for p in model.parameters() if p.dim() < 2]
optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}],
                              lr=1e-3, betas=(0.9, 0.95), fused=True)
data = torch.randint(0, 256, (steps, B, T + 1))


def step(tokens):
    optimizer.zero_grad(set_to_none=True)
    value = loss(model, tokens[:, :-1], tokens[:, 1:])
    value.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return value.item()


for i in range(10):
    step(data[i % steps])
for _ in range(repetitions):
    start = time.process_time()
    for tokens in data:
        last = step(tokens)
    seconds = time.process_time() - start
    print(f"pytorch {steps * B * T / seconds:.0f} tok/cpu-s loss {last:.4f}", flush=True)
