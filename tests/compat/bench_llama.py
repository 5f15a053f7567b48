"""Speed of eager PyTorch on a Llama: forward, backward, clip_grad_norm_, fused AdamW, one thread.

    python3 tests/compat/bench_llama.py [steps] [repetitions]
prints tokens per CPU second on the "nano" preset, one line a repetition; bench/model_speed prints the same for Loom.

    python3 tests/compat/bench_llama.py --turns VOCAB,LAYERS,WIDTH,HEADS,KV_HEADS,HEAD_DIM,FFN,CONTEXT BATCH STEPS
does STEPS steps for each line on stdin and prints the CPU seconds they took: bench/train_speed takes turns with it.
"""
import sys
import time

import torch

from llama_reference import Config, Llama, loss

TEXT = 1_000_000
turns = "--turns" in sys.argv
if turns:
    config = Config(*(int(a) for a in sys.argv[2].split(",")))
    B, steps = int(sys.argv[3]), int(sys.argv[4])
else:
    config, B = Config(256, 4, 128, 4, 4, 32, 344, 64), 12
    steps, repetitions = (int(a) for a in (sys.argv[1:] + ["100", "1"])[:2])
T = config.context
torch.set_num_threads(1)
torch.manual_seed(0)
model = Llama(config)
decay = [p for p in model.parameters() if p.dim() >= 2]
rest = [p for p in model.parameters() if p.dim() < 2]
optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}],
                              lr=1e-3, betas=(0.9, 0.95), fused=True)
text = torch.randint(0, config.vocab, (TEXT,))


def step():
    at = torch.randint(0, TEXT - T - 1, (B,))
    tokens = torch.stack([text[i:i + T + 1] for i in at])
    optimizer.zero_grad(set_to_none=True)
    value = loss(model, tokens[:, :-1], tokens[:, 1:])
    value.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return value.item()


def turn():
    start = time.process_time()
    for _ in range(steps):
        last = step()
    return time.process_time() - start, last


for _ in range(10 if not turns else 0):
    step()
if turns:
    for _ in sys.stdin:
        print(turn()[0], flush=True)
else:
    for _ in range(repetitions):
        seconds, last = turn()
        print(f"pytorch {steps * B * T / seconds:.0f} tok/cpu-s loss {last:.4f}", flush=True)
