"""Seconds of a committed DiLoCo step of torchft with VALUES fp32 values among 4 replicas on loopback, as JSON: one
lighthouse, one manager a replica, SGD as the inner optimizer on gradients of zero, Nesterov outside, sync every step."""
import json
import logging
import multiprocessing as mp
import sys
import time
from datetime import timedelta

REPLICAS = 4


def replica(rank: int, values: int, rounds: int, lighthouse: str, queue) -> None:
    import torch
    from torch.distributed import TCPStore
    from torchft import Manager, ProcessGroupGloo
    from torchft.local_sgd import DiLoCo

    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    model = torch.nn.ParameterList([torch.nn.Parameter(torch.zeros(values))])
    inner = torch.optim.SGD(model.parameters(), lr=1.0)
    outer = torch.optim.SGD(model.parameters(), lr=0.7, momentum=0.9, nesterov=True)
    manager = Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=30)), min_replica_size=REPLICAS, use_async_quorum=False,
        load_state_dict=lambda state: None, state_dict=lambda: {}, rank=0, world_size=1, store_addr="127.0.0.1",
        store_port=store.port, lighthouse_addr=lighthouse, replica_id=f"replica_{rank}", hostname="127.0.0.1",
        timeout=timedelta(seconds=30), init_sync=False)
    seconds = []
    with DiLoCo(manager, [model], inner, outer, sync_every=1):
        for _ in range(rounds + 3):
            model[0].grad = torch.full((values,), float(rank))
            before = manager.current_step()
            begin = time.perf_counter()
            inner.step()
            if manager.current_step() > before:
                seconds.append(time.perf_counter() - begin)
    if rank == 0:
        queue.put(seconds[3:])
    time.sleep(1)  # the others may still ask this one's manager
    manager.shutdown(wait=False)


def main() -> None:
    from torchft.coordination import LighthouseServer

    values, rounds = int(sys.argv[1]), int(sys.argv[2])
    lighthouse = LighthouseServer(bind="127.0.0.1:0", min_replicas=REPLICAS, join_timeout_ms=1000)
    context = mp.get_context("spawn")
    queue = context.Queue()
    address = f"http://127.0.0.1:{lighthouse.address().rsplit(':', 1)[1].strip('/')}"
    processes = [context.Process(target=replica, args=(r, values, rounds, address, queue)) for r in range(REPLICAS)]
    for p in processes:
        p.start()
    print(json.dumps(queue.get(timeout=240)))
    for p in processes:
        p.join(20)
        if p.is_alive():
            p.kill()
    lighthouse.shutdown()


if __name__ == "__main__":
    main()
