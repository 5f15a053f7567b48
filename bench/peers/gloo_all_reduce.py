"""Seconds of Gloo's all-reduce of VALUES fp32 values among 4 processes on loopback, as JSON. No encryption, and no
process may fail: what a round costs when nothing is asked of it but the sum."""
import json
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def process(rank: int, size: int, values: int, rounds: int, store: str, queue) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
    x = torch.randn(values)
    seconds = []
    for _ in range(rounds + 2):
        dist.barrier()
        begin = time.perf_counter()
        dist.all_reduce(x)
        x /= size
        seconds.append(time.perf_counter() - begin)
    if rank == 0:
        queue.put(seconds[2:])
    dist.destroy_process_group()


def main() -> None:
    values, rounds, store = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    queue = mp.get_context("spawn").SimpleQueue()
    context = mp.spawn(process, args=(4, values, rounds, store, queue), nprocs=4, join=False)
    seconds = queue.get()
    context.join()
    print(json.dumps(seconds))


if __name__ == "__main__":
    main()
